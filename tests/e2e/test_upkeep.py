"""A party's state over the years: backup, restore, formats, retention, and what is held about one person."""

from __future__ import annotations

import io
import json
import shutil
import sqlite3
import sys
import tarfile
import time
from types import SimpleNamespace

import pytest

from command_line import call
from two_parties import job_with, make_two, running, settings_of, trained
from veilboost.durable import Locks
from veilboost.errors import (
    DamagedLedger,
    LedgerRestored,
    NewerFormat,
    UnusableBackup,
    VeilBoostError,
    WouldOverwrite,
)
from veilboost.party import retention
from veilboost.party.backup import back_up, known_releases, restore
from veilboost.party.federation import coordinate
from veilboost.party.runs import RunFolder, list_runs
from veilboost.party.settings import load_party
from veilboost.privacy.ledger import UNKNOWN, Ledger

DELTA = 1e-5


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Two parties that have finished one job."""
    place = make_two(tmp_path_factory.mktemp("finished"))
    bank = settings_of(place, "bank")
    with running(settings_of(place, "shop")) as daemon:
        trained(bank, job_with(daemon, more='record = "payload"'))
    return place


@pytest.fixture
def place(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "place")


def empty_machine(place, folder):
    folder.mkdir()
    for file in ("shop.toml", "shop.parquet", "shop.key"):
        shutil.copy2(place / file, folder / file)
    return load_party(folder / "shop.toml")


def said(*arguments, refused=None):
    done = call(*arguments, env={"COLUMNS": "300"})
    assert (done.returncode == 0) == (refused is None), done.stderr + done.stdout
    if refused is not None:
        assert refused in done.stderr
    return done.stdout


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- backup and restore ---------------------------------------------------------------------------------------------


def test_a_restored_party_is_the_same_and_releases_nothing_until_it_is_reconciled(place, tmp_path):
    out, new = tmp_path / "shop.tar.gz", tmp_path / "new"
    said("party", "backup", out, "--config", place / "shop.toml", "--with-keys")
    assert out.stat().st_mode & 0o777 == 0o600
    with pytest.raises(WouldOverwrite):
        back_up(load_party(place / "shop.toml"), place / "shop.toml", out)
    new.mkdir()
    shutil.copy2(place / "shop.parquet", new / "shop.parquet")
    told = json.loads(said("party", "restore", out, "--config", new / "shop.toml", "--json"))
    assert told["reconcile"] is True
    assert contents(new / "runs-shop" / "first") == contents(place / "runs-shop" / "first")
    assert (new / "shop.toml").read_bytes() == (place / "shop.toml").read_bytes()
    assert {(path.stat().st_mode & 0o777, path.is_dir()) for path in (new / "runs-shop").rglob("*")} == {
        (0o600, False), (0o700, True)
    }  # fmt: skip
    for name in ("crt", "key"):
        assert (new / f"shop.{name}").read_bytes() == (place / f"shop.{name}").read_bytes()
    bank, shop = load_party(place / "bank.toml"), load_party(new / "shop.toml")
    with running(shop) as daemon:
        job = job_with(daemon, "second")
        with coordinate(bank, job) as coordinator:
            assert "VB-1803" in str(coordinator.check().errors["shop"])
        with pytest.raises(VeilBoostError, match="VB-1803"):
            trained(bank, job)
        said("ledger", "reconcile", "--config", new / "shop.toml", "--yes")
        trained(bank, job)
    before, after = (Ledger(each.ledger_file) for each in (load_party(place / "shop.toml"), shop))
    assert len(after.events()) == 2 * len(before.events())
    assert after.verify().rows == len(after.rows())


def test_what_jobs_since_the_backup_released_is_booked_again(place, tmp_path):
    out = tmp_path / "shop.tar"
    shop = load_party(place / "shop.toml")
    back_up(shop, place / "shop.toml", out)
    with running(shop) as daemon:
        trained(load_party(place / "bank.toml"), job_with(daemon, "second"))
    every = sorted(map(str, Ledger(shop.ledger_file).releases()))
    new = empty_machine(place, tmp_path / "new")
    shutil.copytree(place / "runs-shop" / "second", new.runs / "second")  # the disk with the ledger was lost
    restore(new, out)
    ledger = Ledger(new.ledger_file)
    lost = len(every) - len(ledger.events())
    assert lost > 0
    with pytest.raises(LedgerRestored):
        ledger.append("job", *ledger.events())
    with pytest.raises(LedgerRestored):
        ledger.reserve("job", 1.0, DELTA, lambda: None)
    said("ledger", "reconcile", "--config", tmp_path / "new" / "shop.toml", "--json", refused="--yes")
    said("ledger", "reconcile", "--config", tmp_path / "new" / "shop.toml", "--yes", "--unknown-epsilon", 1.5)
    assert sorted(map(str, ledger.releases())) == every
    assert {total.job: total.counted for total in ledger.totals(DELTA)}[UNKNOWN] == 1.5
    ledger.append("job", *ledger.events()[:1])
    assert ledger.verify().rows == len(ledger.rows())


def test_a_restore_never_shortens_a_ledger(place, tmp_path):
    shop, out = load_party(place / "shop.toml"), tmp_path / "old.tar"
    back_up(shop, place / "shop.toml", out)
    ledger = Ledger(shop.ledger_file)
    ledger.append("later", ledger.events()[0])
    rows = ledger.rows()
    found = restore(shop, out)
    assert str(shop.ledger_file) in found.kept
    assert ledger.rows() == rows  # the newer one
    newer = tmp_path / "newer.tar"
    back_up(shop, place / "shop.toml", newer)
    other = empty_machine(place, tmp_path / "other")
    restore(other, out)
    moved = Ledger(other.ledger_file)
    with pytest.raises(DamagedLedger, match="both have rows"):  # the mark, and the later release
        restore(other, newer)
    moved.reconcile(known_releases(other, [shop.ledger_file]), 0.0, DELTA)
    assert sorted(map(str, moved.releases())) == sorted(map(str, ledger.releases()))
    shop.ledger_file.unlink()  # the head file still knows how many rows there were
    restore(shop, out)
    with pytest.raises(LedgerRestored, match="at least 1 rows are missing"):
        ledger.check_reconciled()


def test_a_party_that_had_released_nothing_is_marked_too(place, tmp_path):
    shop = load_party(place / "shop.toml")
    shutil.rmtree(shop.runs)
    back_up(shop, place / "shop.toml", tmp_path / "out.tar")
    new = empty_machine(place, tmp_path / "new")
    restore(new, tmp_path / "out.tar")
    with pytest.raises(LedgerRestored):
        Ledger(new.ledger_file).check_reconciled()


def test_keys_are_in_a_backup_on_request_only(place, tmp_path):
    shop = load_party(place / "shop.toml")
    RunFolder(shop.runs / "first").save_key(b"k" * 32)
    secret = {"certificates/key", "runs/first/job.key"}
    for keys in (False, True):
        saved = back_up(shop, place / "shop.toml", tmp_path / f"{keys}.tar", with_keys=keys)
        assert secret & set(saved.files) == (secret if keys else set())


def test_a_job_that_runs_is_saved_at_its_checkpoint(place, tmp_path):
    shop, locks = load_party(place / "shop.toml"), Locks()
    run = RunFolder(shop.runs / "first")
    (run.path / ".2.checkpoint.partial").write_bytes(b"half")
    locks.take(run.lock, "testing")
    try:
        saved = back_up(shop, place / "shop.toml", tmp_path / "out.tar")
    finally:
        locks.release(run.lock)
    assert (saved.runs, saved.running) == ([], ["first"])
    new = empty_machine(place, tmp_path / "new")
    restore(new, tmp_path / "out.tar")
    restored = RunFolder(new.runs / "first")
    assert [each.trees for each in restored.checkpoints.kept()] == [each.trees for each in run.checkpoints.kept()]
    assert not list(new.runs.rglob("*.partial"))


def rewritten(source, target, change):
    """A copy of a backup with changed members."""
    with tarfile.open(source) as old, tarfile.open(target, "w") as new:
        for member in old:
            for name, content in change(member.name, old.extractfile(member).read()):
                member.name, member.size = name, len(content)
                new.addfile(member, io.BytesIO(content))
    return target


def test_a_damaged_backup_is_refused_before_anything_is_written(place, tmp_path):
    out = tmp_path / "shop.tar"
    back_up(load_party(place / "shop.toml"), place / "shop.toml", out)
    new = empty_machine(place, tmp_path / "new")

    def newer(name, content):
        return [(name, content.replace(b'"format": 1', b'"format": 2') if name == "manifest.json" else content)]

    cases = {
        "changed": lambda name, content: [
            (name, content[:-1] + bytes([content[-1] ^ 1]) if name.endswith("0.npy") else content)
        ],
        "missing": lambda name, content: [] if name.endswith("0.npy") else [(name, content)],
        "more": lambda name, content: (
            [(name, content), ("runs/x", b"")] if name == "ledger.sqlite" else [(name, content)]
        ),
        "outside": lambda name, content: [(f"../{name}" if name == "settings.toml" else name, content)],
        "no manifest": lambda name, content: [] if name == "manifest.json" else [(name, content)],
    }
    for name, change in cases.items():
        with pytest.raises(UnusableBackup):
            restore(new, rewritten(out, tmp_path / f"{name}.tar", change))
    with pytest.raises(NewerFormat, match=r"format 2 .* up to 1"):
        restore(new, rewritten(out, tmp_path / "newer.tar", newer))
    for damaged in (out.read_bytes()[:5000], b"nonsense", b""):
        (tmp_path / "short.tar").write_bytes(damaged)
        with pytest.raises(UnusableBackup):
            restore(new, tmp_path / "short.tar")
    with pytest.raises(UnusableBackup, match="a backup of shop, not of bank"):
        restore(load_party(place / "bank.toml"), out)
    assert contents(new.runs) == {}
    served = load_party(place / "shop.toml")
    with running(served), pytest.raises(VeilBoostError, match="VB-1709"):
        restore(served, out)


# --- formats --------------------------------------------------------------------------------------------------------


def test_a_newer_format_is_refused_with_both_versions(place):
    shop = load_party(place / "shop.toml")
    status = shop.runs / "first" / "status.json"
    assert json.loads(status.read_text())["format"] == 1
    status.write_text(status.read_text().replace('"format": 1', '"format": 7'))
    with pytest.raises(NewerFormat, match=r"run format 7; this release reads formats up to 1"):
        _ = RunFolder.open(shop.runs, "first").status
    listed = json.loads(said("jobs", "list", "--config", place / "shop.toml", "--json"))
    assert "VB-1712" in listed["runs"][0]["error"]
    with sqlite3.connect(shop.ledger_file) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
        connection.execute("PRAGMA user_version = 3")
    connection.close()
    ledger = Ledger(shop.ledger_file)
    for use in (ledger.rows, ledger.verify, lambda: ledger.close("first")):
        with pytest.raises(NewerFormat, match="ledger format 3; this release reads formats up to 1"):
            use()


# --- retention ------------------------------------------------------------------------------------------------------


@pytest.fixture
def later(monkeypatch):
    """The time of retention; tests set it forward."""

    def pass_days(days):
        monkeypatch.setattr(retention, "time", SimpleNamespace(time=lambda: time.time() + 86_400 * days))

    return pass_days


def names(settings, found):
    return {(each.what, str(each.path.relative_to(settings.runs))) for each in found}


def test_what_the_settings_keep(place, later):
    shop = settings_of(place, "shop", more="[retention]\nruns_days = 300\ntranscripts_days = 30\nkeys_days = 7")
    run = RunFolder(shop.runs / "first")
    run.save_key(b"k" * 32)
    shutil.copytree(run.path / "transcript", run.path / "transcript.1")  # of an earlier attempt
    (shop.runs / "prepared").mkdir()
    (shop.runs / "prepared" / "other.ids").write_bytes(b"ids")
    before, share = shop.ledger_file.read_bytes(), run.load_share()
    later(6)
    assert retention.apply_retention(shop) == []
    later(8)
    keys = {("keys", "first/job.key"), ("keys", "prepared/other.ids")}
    assert names(shop, retention.apply_retention(shop)) == keys
    later(31)
    transcripts = {("transcripts", f"first/{name}") for name in ("transcript", "transcript.1")}
    assert names(shop, retention.apply_retention(shop)) == transcripts
    assert run.load_share().party == share.party
    locks = Locks()
    locks.take(run.lock, "testing")
    later(301)
    assert retention.find_expired(shop) == []  # it runs
    locks.release(run.lock)
    expired = retention.find_expired(shop)
    locks.take(run.lock, "testing")
    assert retention.delete_expired(shop, expired) == []  # it has been started since
    locks.release(run.lock)
    assert names(shop, retention.apply_retention(shop)) == {("runs", "first")}
    assert not run.path.exists()
    assert shop.ledger_file.read_bytes() == before
    assert list(list_runs(shop.runs)) == []


def test_a_model_that_is_used_is_kept(place, later):
    shop = settings_of(place, "shop", more="[retention]\nruns_days = 300")
    run = RunFolder(shop.runs / "first")
    (run.path / "predictions").mkdir()
    run.note()
    status = json.loads((run.path / "status.json").read_text())
    (run.path / "status.json").write_text(json.dumps({**status, "updated": time.time() - 400 * 86_400}))
    (run.path / "predictions" / "transcript.jsonl").write_text("")
    assert retention.find_expired(shop) == []
    later(301)
    assert names(shop, retention.find_expired(shop)) == {("runs", "first")}


def test_jobs_purge_lists_before_it_deletes(place):
    config, run = place / "shop.toml", place / "runs-shop" / "first"
    assert "nothing is old enough" in said("jobs", "purge", "--config", config)
    asked = ("jobs", "purge", "--config", config, "--older-than", 0)
    assert str(run) in said(*asked, "--dry-run")
    assert str(run) in said(*asked, refused="--yes")
    said(*asked, "--what", "everything", refused="VB-1002")
    assert run.exists()
    told = json.loads(said(*asked, "--what", "transcripts", "--yes", "--json"))
    assert told["deleted"] == [str(run / "transcript")]
    said(*asked, "--yes")
    assert not run.exists()
    assert (place / "runs-shop" / "ledger.sqlite").exists()


# --- one person -----------------------------------------------------------------------------------------------------


def test_what_is_held_about_a_person(place, monkeypatch, caplog):
    config, run = place / "bank.toml", place / "runs-bank" / "first"
    (place / "runs-bank" / "prepared").mkdir()
    (place / "runs-bank" / "prepared" / "next.ids").write_bytes(b"hashes")

    def held(identifier, *options):
        told = json.loads(said("forget", identifier, "--config", config, "--json", *options))
        return {str(each["path"]).removeprefix(f"{place}/"): each for each in told["found"]}, told

    found, told = held("c050")
    hashed = "runs-bank/prepared/next.ids"
    parts = {f"runs-bank/first/{name}" for name in ("alignment", "checkpoint", "share", "transcript/payload.bin")}
    assert set(found) == {"bank.parquet", hashed, *parts}
    assert told["retrain"] == ["first"]
    assert all(each["certain"] for each in found.values())
    assert set(held("c005")[0]) == {"bank.parquet", hashed}  # in the table, but not in the job
    monkeypatch.setattr(sys, "stdin", io.StringIO("c050\n"))
    assert held("-")[0] == found
    said("forget", "c050", "--config", config, "--delete", refused="--yes")
    shown = said("forget", "c050", "--config", config, "--delete", "--yes")
    assert "models to train again: first" in shown
    assert "c050" not in shown + caplog.text
    for name in ("alignment", "checkpoint", "transcript/payload.bin"):
        assert not (run / name).exists()
    assert not (place / hashed).exists()
    assert RunFolder(run).load_share().party == "bank"
    assert (place / "runs-bank" / "ledger.sqlite").exists()


def test_a_run_counts_if_the_table_or_the_row_has_changed(place):
    config = place / "bank.toml"
    gone = json.loads(said("forget", "nobody", "--config", config, "--json"))["found"]
    assert {each["certain"] for each in gone} == {False}
    assert {each["path"].rpartition("/")[2] for each in gone} >= {"alignment", "share"}
    (place / "bank.parquet").touch()
    changed = json.loads(said("forget", "c005", "--config", config, "--json"))["found"]
    assert [each["certain"] for each in changed if "first" in each["path"]] == [False] * 4
