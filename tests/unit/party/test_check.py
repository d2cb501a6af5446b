"""`check` is green only if training starts: every cause of a refusal is found at its party, with its code."""

from __future__ import annotations

import json
import shutil
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parties import CONFIG, Town, make_certificates
from veilboost.config import TrainingConfig
from veilboost.durable import Locks
from veilboost.errors import CertificateExpired, VeilBoostError
from veilboost.party import checks, session
from veilboost.party.certs import issue
from veilboost.party.checks import CHECKS, Readiness
from veilboost.party.coordinator import Coordinator
from veilboost.party.daemon import Daemon
from veilboost.party.federation import coordinate
from veilboost.party.job import Job, JobParty, load_job
from veilboost.party.messages import Checked, Propose
from veilboost.party.runs import RunFolder
from veilboost.party.settings import DataSettings, load_party
from veilboost.privacy.ledger import Ledger

ROWS = 120
SMALL = replace(CONFIG, n_estimators=2, max_depth=2)
PARTICIPANTS = ("bank", "shop", "telecom")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_certificates(tmp_path_factory.mktemp("authority") / "certs")
    for name in ("hub", "ta", "csp"):
        issue(folder, name, ["localhost"])
    return folder


@pytest.fixture
def town(tmp_path: Path, certificates: Path) -> Town:
    return Town(tmp_path, certificates, rows=ROWS, overlap=False)


@contextmanager
def driving(town: Town, **job: Any) -> Iterator[Coordinator]:
    """The bank as driver; the shop as a daemon of its settings."""
    daemon = Daemon(load_party(town.folder / "shop.toml"))
    try:
        file = town.write_job({"shop": f"127.0.0.1:{daemon.port}"}, **{"config": SMALL} | job)
        with coordinate(load_party(town.folder / "bank.toml"), load_job(file)) as driver:
            yield driver
    finally:
        daemon.stop()


def red(found: Readiness) -> dict[tuple[str, str], str]:
    return {
        (party, check): each.code for party, all in found.parties.items() for check, each in all.items() if each.code
    }


def refusal(driver: Coordinator) -> str:
    with pytest.raises(VeilBoostError) as refused:
        driver.train()
    return str(refused.value)


def rewritten(town: Town, party: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    path = town.folder / f"{party}.parquet"
    pq.write_table(pa.table(change(pq.read_table(path).to_pydict())), path)


def columns(**new: Any) -> Callable[[Town, str], None]:
    return lambda town, party: rewritten(town, party, lambda old: old | new)


def settled(party: str, **data: Any) -> Callable[[Town, str], None]:
    label = {"label": "label"} if party == "bank" else {}
    return lambda town, _: town.settle(
        party, data=DataSettings(Path(f"{party}.parquet"), **{"id": "id"} | label | data)
    )


def policy(**rules: Any) -> Callable[[Town, str], None]:
    return lambda town, party: town.settle(party, policy=rules)


def finished(town: Town, party: str) -> None:
    run = RunFolder.create(town.folder / f"runs-{party}", "credit")
    run.note(state="finished", active="bank", party=party)


def of_another(town: Town, party: str) -> None:
    run = RunFolder.create(town.folder / f"runs-{party}", "credit")
    run.note(state="failed", active="telecom", party=party)


def spent(town: Town, party: str) -> None:
    town.settle(party, policy={"assignments_total": 3, "assignments_per_job": 1000})


CAUSES: dict[str, tuple[str, str, str, Callable[[Town, str], None], dict[str, Any]]] = {
    "no label column": ("bank", "table", "VB-1104", settled("bank", label="lable"), {}),
    "no label": ("bank", "label", "VB-1104", settled("bank", label=None), {}),
    "labels do not fit": ("bank", "label", "VB-1106", columns(label=np.arange(ROWS)), {}),
    "metric does not fit": ("bank", "label", "VB-1004", columns(), {"config": replace(SMALL, eval_metric="mlogloss")}),
    "no id column": ("shop", "table", "VB-1112", settled("shop", id="nobody"), {}),
    "no feature": ("shop", "table", "VB-1112", settled("shop", features=("n2", "n9")), {}),
    "ids repeat": ("shop", "table", "VB-1103", columns(id=["c00001"] * ROWS), {}),
    "constant column": ("shop", "table", "VB-1107", columns(n2=np.ones(ROWS)), {}),
    "bytes": ("shop", "table", "VB-1109", columns(n2=[b"1"] * ROWS), {}),
    "no file": ("shop", "table", "VB-1101", lambda town, party: (town.folder / f"{party}.parquet").unlink(), {}),
    "protocol": ("shop", "policy", "VB-1612", policy(protocols=()), {}),
    "own protocol": ("bank", "policy", "VB-1612", policy(protocols=()), {}),
    "too few rows": ("shop", "policy", "VB-1612", policy(min_rows=ROWS + 1), {}),
    "own too few rows": ("bank", "policy", "VB-1612", policy(min_rows=ROWS + 1), {}),
    "columns": ("shop", "table", "VB-1612", policy(columns=("n2",)), {}),
    "budget": ("shop", "policy", "VB-1612", spent, {}),
    "finished": ("shop", "run", "VB-1704", finished, {}),
    "own finished": ("bank", "run", "VB-1704", finished, {}),
    "of another driver": ("shop", "run", "VB-1704", of_another, {}),
    "other ids": (
        "shop", "match", "VB-1202", columns(id=[f"d{at:05d}" for at in range(ROWS)]), {"alignment": "prealigned"},
    ),
    "other order": (
        "shop", "match", "VB-1202",
        lambda town, party: rewritten(town, party, lambda old: {name: each[::-1] for name, each in old.items()}),
        {"alignment": "prealigned"},
    ),
    "fewer rows": (
        "shop", "match", "VB-1202",
        lambda town, party: rewritten(town, party, lambda old: {name: each[:-1] for name, each in old.items()}),
        {"alignment": "prealigned"},
    ),
    "fewer rows without ids": (
        "shop", "match", "VB-1202",
        lambda town, party: [
            settled(each, id=None)(town, each) for each in ("bank", "shop")
        ] and rewritten(
            town, party, lambda old: {name: each[:-1] for name, each in old.items() if name != "id"}
        ),
        {"alignment": "prealigned"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("cause", CAUSES)
def test_what_stops_training_is_found_before(town: Town, cause: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    party, check, code, change, job = CAUSES[cause]
    change(town, party)
    before = sorted(town.folder.rglob("*"))
    with driving(town, **job) as driver:
        found = driver.check()
        assert red(found) == {(party, check): code}
        assert not found.ready
        written = {path.name for path in set(town.folder.rglob("*")) - set(before)}
        assert written <= {"runs-shop", "runs-bank", "credit.toml", ".daemon.lock", "ledger.sqlite"}, "nothing is kept"
        assert code in refusal(driver)
    told = found.parties[party][check].text
    assert told.startswith(code)
    if party == "shop" and check == "table":
        assert not any(word in told for word in ("n2", "n9", "nobody", "parquet")), "names are for the owner alone"
        assert any(code in record.getMessage() for record in caplog.records if record.name == checks.__name__)


@pytest.mark.parametrize("alignment", ["ecdh", "prealigned"])
def test_a_green_check_trains(town: Town, alignment: str) -> None:
    with driving(town, alignment=alignment) as driver:
        found = driver.check()
        assert found.ready, red(found)
        assert all(found.parties["shop"][name].code is None for name in CHECKS if name in found.parties["shop"])
        assert set(found.parties["shop"]) == set(CHECKS) - {"label"} - ({"match"} if alignment == "ecdh" else set())
        assert found.parties["shop"]["certificate"].text.endswith(" days")
        assert not (town.folder / "runs-shop" / "credit").exists()
        assert Ledger(town.folder / "runs-shop" / "ledger.sqlite").reserved() == {}
        assert len(driver.train()[1].history) == SMALL.n_estimators


def test_a_dry_run_leaves_no_session(town: Town) -> None:
    """Also where tables are compared after the answer, and where the driver cannot compare."""
    for change in (columns(), settled("bank", label="nothing")):
        change(town, "bank")
        daemon = Daemon(load_party(town.folder / "shop.toml"))
        try:
            job = load_job(town.write_job({"shop": f"127.0.0.1:{daemon.port}"}, alignment="prealigned"))
            with coordinate(load_party(town.folder / "bank.toml"), job) as driver:
                driver.check()
            assert daemon.host._sessions == {}
        finally:
            daemon.stop()


def test_a_table_in_use_and_a_locked_run_are_found(town: Town) -> None:
    town.settle("shop", limits={"max_jobs": 1})
    with driving(town) as driver:
        text = driver.job.text().replace('name = "credit"', 'name = "other"')
        driver._caller("shop").send(Propose(text, dry_run=False, resume=False))()
        assert red(driver.check()) == {("shop", "run"): "VB-1701"}
        assert "VB-1701" in refusal(driver)
    with driving(town) as driver:
        locks, lock = Locks(), town.folder / "runs-shop" / ".credit.lock"
        locks.take(lock, "testing")
        try:
            assert red(driver.check()) == {("shop", "run"): "VB-1709"}
            assert "VB-1709" in refusal(driver)
        finally:
            locks.release(lock)
        own = town.folder / "runs-bank" / ".credit.lock"
        locks.take(own, "testing")
        try:
            assert red(driver.check()) == {("bank", "run"): "VB-1709"}
            assert "VB-1709" in refusal(driver)
        finally:
            locks.release(own)


@pytest.mark.parametrize("party", ["bank", "shop"])
def test_a_full_disk_is_found(town: Town, monkeypatch: pytest.MonkeyPatch, party: str) -> None:
    usage = namedtuple("usage", "free")
    real = shutil.disk_usage

    def full(path: Path) -> Any:
        return usage(1 << 20) if f"runs-{party}" in str(path) else real(path)

    with driving(town) as driver:
        (town.folder / "runs-bank").mkdir(exist_ok=True)
        monkeypatch.setattr(checks.shutil, "disk_usage", full)
        assert red(driver.check()) == {(party, "disk"): "VB-1702"}
        assert "VB-1702" in refusal(driver)


@pytest.mark.parametrize(("ahead", "word"), [(400.0, "fast"), (-400.0, "slow"), (200.0, "")])
def test_clocks_that_differ_are_found(town: Town, monkeypatch: pytest.MonkeyPatch, ahead: float, word: str) -> None:
    answer = checks.Checks.answer
    monkeypatch.setattr(
        checks.Checks,
        "answer",
        lambda *args, **options: replace(found := answer(*args, **options), clock=found.clock + ahead),
    )
    with driving(town) as driver:
        found = driver.check()
    assert red(found) == ({("shop", "clock"): "VB-1615"} if word else {})
    assert word in found.parties["shop"]["clock"].text


def test_findings_of_a_peer_cannot_write_to_the_terminal() -> None:
    answer = Checked("0.2.0", ("policy", "run\x1b"), ("VB-1612\x1b[2J", "VB-1704"), ("no\x07" * 1000, ""), 0.0, 9)
    found = checks.of_answer("shop", "bank", answer, sent=0.0)
    assert found["policy"].code == "VB-1612\\x1b[2J"
    assert found["policy"].text.isprintable()
    assert len(found["policy"].text) < 4000
    assert "run" not in found


def test_a_certificate_that_is_not_valid_any_more_is_found(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    def expired(settings: object) -> None:
        raise CertificateExpired("shop.crt was valid until yesterday")

    with driving(town) as driver:
        monkeypatch.setattr(session, "own_identity", expired)
        found = driver.check()
    assert red(found) == {("shop", "certificate"): "VB-1603"}
    assert found.parties["shop"]["table"].code is None, "the other checks are made"


# --- horizontal -------------------------------------------------------------------------------------------


@contextmanager
def serving(town: Town, protocol: str = "secagg", **changes: Any) -> Iterator[Coordinator]:
    """A hub as server, and three participants with the same columns, unless `changes` names others."""
    rng = np.random.default_rng(3)
    daemons: dict[str, Daemon] = {}
    everyone = ("hub", *PARTICIPANTS)
    rules = {"protocols": (protocol,), "allow_unprotected": (protocol,)}
    for party in PARTICIPANTS:
        values = {"id": np.arange(ROWS), "a": rng.normal(size=ROWS), "b": rng.normal(size=ROWS)}
        made = values | {"label": (values["a"] + rng.normal(size=ROWS) > 0).astype(np.int64)}
        made = made | {name: each for name, each in changes.get(party, {}).items() if each is not None}
        pq.write_table(
            pa.table({name: made[name] for name in changes.get(f"{party}_order", made)}),
            town.folder / f"{party}.parquet",
        )
        peers = {other: ("any",) for other in everyone if other != party}
        data = DataSettings(Path(f"{party}.parquet"), id="id", label="label")
        town.settle(party, policy=rules | {"peers": peers}, data=data)
        daemons[party] = Daemon(load_party(town.folder / f"{party}.toml"))
    town.settle("hub", policy=rules | {"peers": dict.fromkeys(PARTICIPANTS, ("any",))}, data=None)
    parties = {"hub": JobParty(role="server", connect="in")}
    parties |= {party: JobParty(f"127.0.0.1:{daemon.port}", role="participant") for party, daemon in daemons.items()}
    training = TrainingConfig(objective=changes.get("objective", "binary"), n_estimators=2, max_depth=2, max_bin=8)
    try:
        with coordinate(
            load_party(town.folder / "hub.toml"), Job("credit", parties, protocol, training=training)
        ) as driver:
            yield driver
    finally:
        for daemon in daemons.values():
            daemon.stop()


NORMAL = np.random.default_rng(5).normal(size=ROWS)
DIFFERENT: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "a column more": ("shop", "match", "VB-1112", {"shop": {"c": NORMAL}}),
    "a column more at the first": ("bank", "match", "VB-1112", {"bank": {"c": NORMAL}}),
    "another order": ("telecom", "match", "VB-1112", {"telecom_order": ("id", "b", "a", "label")}),
    "another type": ("telecom", "match", "VB-1109", {"telecom": {"b": ["x", "y"] * (ROWS // 2)}}),
    "text as label": ("shop", "match", "VB-1106", {"shop": {"label": ["no", "yes"] * (ROWS // 2)}}),
    "labels beyond 0 and 1": ("shop", "label", "VB-1106", {"shop": {"label": np.arange(ROWS) % 3}}),
    "labels missing": ("shop", "table", "VB-1105", {"shop": {"label": [None, *[1.0, 0.0] * 59, 1.0]}}),
    "constant": ("shop", "table", "VB-1107", {"shop": {"a": np.ones(ROWS)}}),
    "different losses": ("hub", "match", "VB-1106", {"objective": "auto", "shop": {"label": NORMAL}}),
}


@pytest.mark.parametrize("cause", DIFFERENT)
def test_a_participant_that_differs_is_named(town: Town, cause: str) -> None:
    party, check, code, changes = DIFFERENT[cause]
    with serving(town, **changes) as driver:
        found = driver.check()
        assert red(found) == {(party, check): code}
        assert check != "match" or party == "hub" or party in found.parties[party][check].text
        assert code in refusal(driver)


def test_participants_that_agree_train(town: Town) -> None:
    with serving(town) as driver:
        found = driver.check()
        assert found.ready, red(found)
        assert set(found.parties["shop"]) == set(CHECKS)
        assert set(found.parties["hub"]) == {"certificate", "policy", "run", "disk", "match"}
        assert not (town.folder / "runs-shop" / "credit").exists()
        assert len(driver.train()[1].history) == 2


# --- on the command line ----------------------------------------------------------------------------------


def test_the_table_and_the_json_of_the_command(town: Town) -> None:
    settled("shop", features=("n2", "n9"))(town, "shop")
    daemon = Daemon(load_party(town.folder / "shop.toml"))
    try:
        job = town.write_job({"shop": f"127.0.0.1:{daemon.port}"}, config=SMALL)
        code, out, _ = town.run("check", job.name, "--config", "bank.toml")
        lines = out.splitlines()
        assert code == 1
        assert lines[0].split() == ["party", *CHECKS]
        assert lines[2].split()[-4:] == ["VB-1112", "-", "ok", "-"]
        assert lines[-1] == "the job credit cannot start"
        assert any(line.startswith("shop, table: VB-1112: a column") for line in lines)
        code, out, _ = town.run("check", job.name, "--config", "bank.toml", "--json")
        told = json.loads(out)
        assert (code, told["job"], told["party"], told["ready"]) == (1, "credit", "bank", False)
        assert list(told["parties"]) == ["bank", "shop"]
        assert all(tuple(each) == CHECKS for each in told["parties"].values())
        assert told["parties"]["shop"]["table"]["code"] == "VB-1112"
        assert told["parties"]["shop"]["policy"] == {"code": None, "text": ""}
        assert told["parties"]["shop"]["label"] is None
    finally:
        daemon.stop()
