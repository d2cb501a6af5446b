"""A ledger only grows, knows when it was touched, and lends no epsilon twice."""

from __future__ import annotations

import json
import math
import multiprocessing
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing

import pytest

from veilboost.errors import DamagedLedger, InvalidParameter, LedgerRestored, LedgerUnavailable
from veilboost.privacy.accountant import gaussian_epsilon
from veilboost.privacy.event import Adjacency, ExactRelease, Gaussian
from veilboost.privacy.ledger import Ledger

pytestmark = pytest.mark.fast

DELTA = 1e-5


def event(release, mahalanobis=0.2, adjacency=Adjacency.LABEL, content=""):
    about = {"what": "gradients", "adjacency": adjacency, "adversary": "passive parties", "protocol": "test"}
    return Gaussian(mahalanobis, **about, release=release, content=content)


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(tmp_path / "runs" / "ledger.sqlite")
    for at in range(5):
        assert made.append("credit/1", event(f"round {at}"))
    return made


def tamper(ledger, *statements):
    """What somebody does who knows SQLite: the triggers go first."""
    with closing(sqlite3.connect(ledger.path)) as connection:
        for statement in ("DROP TRIGGER no_update", "DROP TRIGGER no_delete", *statements):
            connection.execute(statement)
        connection.commit()


def test_an_untouched_ledger_is_whole(ledger):
    head = ledger.verify()
    assert head.rows == 5
    assert [e.release for e in ledger.events()] == [f"round {at}" for at in range(5)]
    assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600
    exported = json.loads(json.dumps(ledger.export()))
    assert exported["head"] == {"rows": 5, "hash": exported["rows"][-1]["hash"]}
    assert exported["rows"][0]["body"]["release"] == "round 0"


def test_a_retry_spends_once_and_other_content_or_another_job_again(ledger):
    assert not ledger.append("credit/1", event("round 0"))
    assert ledger.verify().rows == 5
    assert ledger.append("credit/1", event("round 0", content="other"))
    assert ledger.append("credit/2", event("round 0"))
    assert ledger.verify().rows == 7


def test_the_total_is_that_of_the_events(ledger):
    assert ledger.spent(DELTA) == pytest.approx(gaussian_epsilon(0.2 * math.sqrt(5), DELTA))
    ledger.append("shop/1", event("histogram", 1.0, Adjacency.PASSIVE_RECORD))
    one, two = gaussian_epsilon(0.2 * math.sqrt(5), DELTA), gaussian_epsilon(1.0, DELTA)
    assert ledger.spent(DELTA, Adjacency.LABEL) == pytest.approx(one)
    assert ledger.spent(DELTA, Adjacency.PASSIVE_RECORD) == pytest.approx(two)
    assert ledger.spent(DELTA) == pytest.approx(one + two)
    assert ledger.spent(DELTA, besides="credit/1") == pytest.approx(two)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger SET body = '{}'",
        "DELETE FROM ledger",
        "REPLACE INTO ledger SELECT number, at, 'x', entry, body, hash FROM ledger WHERE number = 1",
        "INSERT INTO ledger SELECT number + 7, at, 'x', entry, body, hash FROM ledger WHERE number = 1",
    ],
)
def test_rows_cannot_be_changed_in_the_ordinary_way(ledger, statement):
    connection = sqlite3.connect(ledger.path)
    with closing(connection), pytest.raises(sqlite3.IntegrityError, match="only grows"):
        connection.execute(statement)
    assert ledger.verify().rows == 5


@pytest.mark.parametrize(
    ("statements", "found"),
    [
        (["UPDATE ledger SET body = replace(body, '0.2', '0.1') WHERE number = 3"], "row 3"),
        (["UPDATE ledger SET job = 'other' WHERE number = 2"], "row 2"),
        (["UPDATE ledger SET at = at + 1 WHERE number = 2"], "row 2"),
        (["UPDATE ledger SET entry = 'closed' WHERE number = 5"], "row 5"),
        (["UPDATE ledger SET hash = replace(hash, 'a', 'b')"], "row"),
        (["DELETE FROM ledger WHERE number = 1"], "row 1"),
        (["DELETE FROM ledger WHERE number = 3"], "row 3"),
        (["DELETE FROM ledger WHERE number = 3", "UPDATE ledger SET number = number - 1 WHERE number > 3"], "row 3"),
        (["DELETE FROM ledger WHERE number = 5"], "1 rows at the end"),
        (["DELETE FROM ledger"], "5 rows at the end"),
        (
            [
                "UPDATE ledger SET number = 100 WHERE number = 2",
                "UPDATE ledger SET number = 2 WHERE number = 3",
                "UPDATE ledger SET number = 3 WHERE number = 100",
            ],
            "row 2",
        ),
    ],
)
def test_tampering_is_found(ledger, statements, found):
    tamper(ledger, *statements)
    with pytest.raises(DamagedLedger, match=found):
        ledger.verify()


def test_a_whole_chain_made_anew_is_found_by_the_remembered_head(ledger, tmp_path):
    """Somebody writes a cheaper ledger of the same length, with a chain of its own."""
    forged = Ledger(tmp_path / "forged" / "ledger.sqlite")
    for at in range(5):
        forged.append("credit/1", event(f"round {at}", 0.001))
    forged.path.replace(ledger.path)
    with pytest.raises(DamagedLedger, match="stored head"):
        ledger.verify()


def test_a_ledger_that_lost_its_end_takes_no_more_entries(ledger):
    tamper(ledger, "DELETE FROM ledger WHERE number > 2")
    with pytest.raises(DamagedLedger, match="3 rows at the end"):
        ledger.append("credit/1", event("round 9"))
    ledger.path.unlink()
    with pytest.raises(DamagedLedger, match="5 rows at the end"):
        ledger.verify()


@pytest.mark.parametrize("keep", [0, 100, 5000])
def test_a_truncated_file_is_found(ledger, keep):
    ledger.path.write_bytes(ledger.path.read_bytes()[:keep])
    with pytest.raises(DamagedLedger):
        ledger.verify()


def test_text_that_is_not_utf8_is_found(ledger):
    content = ledger.path.read_bytes()
    ledger.path.write_bytes(content.replace(b"gradients", b"gradient\xff"))
    with pytest.raises(DamagedLedger):
        ledger.rows()


def test_a_crash_before_the_head_was_remembered_is_no_damage(ledger):
    before = ledger.path.with_name("ledger.sqlite.head").read_text()
    ledger.append("credit/1", event("round 5"))
    ledger.path.with_name("ledger.sqlite.head").write_text(before)
    assert ledger.verify().rows == 6
    ledger.path.with_name("ledger.sqlite.head").unlink()
    assert ledger.verify().rows == 6


# --- crashes and disks ------------------------------------------------------------------------------------

KILLED = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")  # changed pages are written before the commit
connection.execute("BEGIN IMMEDIATE")
for number in range(int(sys.argv[2]), 500):
    connection.execute("INSERT INTO ledger VALUES (?, 0, 'credit/1', 'spent', ?, '')", (number, f"{number} " * 300))
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_within_a_transaction(ledger, first):
    done = subprocess.run([sys.executable, "-c", KILLED, ledger.path, str(first)], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert ledger.path.with_name("ledger.sqlite-journal").stat().st_size > 0


def test_a_kill_within_a_transaction_loses_nothing_and_stops_nobody(ledger):
    before, size = ledger.rows(), ledger.path.stat().st_size
    killed_within_a_transaction(ledger, 6)
    assert ledger.path.stat().st_size > size
    assert ledger.rows() == before
    assert ledger.verify().rows == 5
    killed_within_a_transaction(ledger, 6)
    assert ledger.append("credit/1", event("round 5"))
    assert ledger.verify().rows == 6


def test_the_journal_of_a_lost_ledger_is_not_rolled_back_into_the_restored_one(ledger, tmp_path):
    ledger.copy_to(tmp_path / "copy.sqlite")
    killed_within_a_transaction(ledger, 6)
    ledger.path.unlink()
    assert ledger.restore(tmp_path / "copy.sqlite", "2026-11-19")
    assert ledger.verify().rows == 6
    with pytest.raises(LedgerRestored):
        ledger.check_reconciled()


def test_a_kill_within_the_first_transaction_of_all_leaves_an_empty_ledger(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    with closing(sqlite3.connect(ledger.path)) as connection:
        connection.execute("PRAGMA user_version = 1")  # a database without a table
    assert ledger.rows() == ()
    assert ledger.append("credit/1", event("round 0"))


def test_a_ledger_that_is_gone_is_not_an_empty_one(ledger):
    ledger.path.unlink()
    with pytest.raises(DamagedLedger, match="5 rows at the end"):
        ledger.spent(DELTA)


def test_a_disk_error_is_not_damage_and_says_to_keep_the_ledger(ledger, monkeypatch):
    def unavailable(call):
        with pytest.raises(LedgerUnavailable, match="nothing that was booked is lost"):
            call()

    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as other:  # another process, for too long
        monkeypatch.setattr("veilboost.privacy.ledger._LOCK_TIMEOUT", 0.01)
        other.execute("BEGIN EXCLUSIVE")
        unavailable(ledger.rows)
        unavailable(lambda: ledger.append("credit/1", event("round 5")))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))  # as on a full disk, writing fails half-way
    try:
        unavailable(lambda: ledger.append("credit/1", event("round 5")))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert ledger.verify().rows == 5
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    unavailable(lambda: ledger.append("credit/1", event("round 6")))  # its row is stored, its head is not
    monkeypatch.undo()
    assert ledger.verify().rows == 6
    folder = Ledger(ledger.path.parent)
    unavailable(folder.rows)


# --- budgets ----------------------------------------------------------------------------------------------


def refuse():
    raise InvalidParameter("too much")


def test_what_is_set_aside_counts_until_the_job_ends(ledger):
    spent = ledger.spent(DELTA)
    first = ledger.reserve("next/1", 3.0, DELTA, lambda: None)
    assert ledger.spent(DELTA) == pytest.approx(spent + 3.0)
    ledger.append("next/1", event("round 0", 0.1))
    assert ledger.spent(DELTA) == pytest.approx(spent + 3.0)  # out of what was set aside
    second = ledger.reserve("next/1", 2.0, DELTA, lambda: None)
    ledger.close("next/1", first)  # an older session of the job: another one goes on
    assert ledger.reserved() == {"next/1": 2.0}
    ledger.close("next/1", second)
    assert ledger.reserved() == {}
    assert ledger.spent(DELTA) == pytest.approx(spent + gaussian_epsilon(0.1, DELTA))
    rows = ledger.verify().rows
    ledger.close("next/1")
    assert ledger.verify().rows == rows


def test_a_refusal_writes_nothing(ledger):
    with pytest.raises(InvalidParameter):
        ledger.reserve("next/1", 3.0, DELTA, refuse)
    for bad in (-1.0, math.nan):
        with pytest.raises(InvalidParameter):
            ledger.reserve("next/1", bad, DELTA, lambda: None)
    assert ledger.verify().rows == 5


def test_an_exact_release_leaves_nothing_to_spend(ledger):
    about = {"what": "sums", "adjacency": Adjacency.LABEL, "adversary": "all", "protocol": "test", "release": "r"}
    ledger.append("open/1", ExactRelease(**about))
    assert ledger.spent(DELTA) == math.inf
    ledger.reserve("other/1", math.inf, DELTA, lambda: None)
    assert ledger.reserved() == {"other/1": math.inf}


def _take(path, number, results):
    ledger = Ledger(path)

    def approve():
        if ledger.spent(DELTA) + 1.0 > 3.0:
            raise InvalidParameter("nothing is left")

    try:
        ledger.reserve(f"job/{number}", 1.0, DELTA, approve)
    except InvalidParameter:
        results.put(0)
        return
    for at in range(5):
        ledger.append(f"job/{number}", event(f"round {at}", 0.01))
    results.put(1)


def test_jobs_at_the_same_time_do_not_take_the_same_epsilon(tmp_path):
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    path = tmp_path / "ledger.sqlite"
    jobs = [context.Process(target=_take, args=(path, number, results)) for number in range(5)]
    for job in jobs:
        job.start()
    taken = sum(results.get(timeout=60) for _ in jobs)
    for job in jobs:
        job.join(60)
    assert taken == 3
    assert Ledger(path).verify().rows == 3 * 6
