"""Approved jobs over TLS, in one process: several parties decide, a job resumes, a driver waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parties import CONFIG, DEADLINE, Town, make_certificates
from veilboost.boost.booster import RoundResult
from veilboost.errors import ApprovalPending, JobCancelled
from veilboost.party import coordinator
from veilboost.party.approvals import decide, list_proposals, run_approval, verify
from veilboost.party.certs import issue
from veilboost.party.coordinator import Coordinator, Watch
from veilboost.party.daemon import Daemon
from veilboost.party.federation import coordinate
from veilboost.party.job import Job, JobParty, load_job
from veilboost.party.lifecycle import cancel
from veilboost.party.settings import DataSettings, PartySettings, load_party
from veilboost.report.runs import facts_of_runs

pytestmark = pytest.mark.fast
FEW = replace(CONFIG, n_estimators=3, max_depth=2)
OTHERS = ("shop", "telecom")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_certificates(tmp_path_factory.mktemp("authority") / "certs")
    issue(folder, "hub", ["localhost"])
    return folder


@pytest.fixture
def town(tmp_path: Path, certificates: Path) -> Town:
    return Town(tmp_path, certificates, rows=150)


@contextmanager
def serving(town: Town) -> Iterator[dict[str, str]]:
    daemons = {party: Daemon(load_party(town.folder / f"{party}.toml")) for party in OTHERS}
    try:
        yield {party: f"127.0.0.1:{daemon.port}" for party, daemon in daemons.items()}
    finally:
        for daemon in daemons.values():
            daemon.stop()


def approve(settings: PartySettings) -> None:
    decide(settings, list_proposals(settings)[0].id, True, by="anna", reason="")


def pending(driver: Coordinator) -> tuple[str, ...]:
    with pytest.raises(ApprovalPending):
        driver.train()
    return driver.undecided


def drive(town: Town, addresses: dict[str, str], setting: str, watch: Watch | None = None) -> Coordinator:
    if setting == "vertical":
        job = load_job(town.write_job(addresses, config=FEW))
        return coordinate(load_party(town.folder / "bank.toml"), job, watch)
    parties = {"hub": JobParty(role="server")}
    parties |= {party: JobParty(address, role="participant") for party, address in addresses.items()}
    return coordinate(
        load_party(town.folder / "hub.toml"), Job("credit", parties, "secagg", training=replace(FEW, max_bin=8)), watch
    )


@pytest.mark.parametrize("setting", ["vertical", "horizontal"])
def test_a_job_begins_when_all_parties_have_approved_it(town: Town, setting: str) -> None:
    rules = {"approval": "ask"}
    for number, party in enumerate(OTHERS):
        if setting == "vertical":
            town.settle(party, rules)
            continue
        rng = np.random.default_rng(number)
        a, b = rng.normal(size=(2, 120))
        table = {"id": np.arange(120), "a": a, "b": b, "label": (a + rng.normal(size=120) > 0).astype(np.int64)}
        pq.write_table(pa.table(table), town.folder / f"{party}.parquet")
        known = {"peers": {other: ("any",) for other in ("hub", *OTHERS) if other != party}}
        data = DataSettings(Path(f"{party}.parquet"), id="id", label="label")
        protocols = {"protocols": ("secagg",), "allow_unprotected": ("secagg",)}
        town.settle(party, rules | known | protocols, data=data)
    if setting == "horizontal":
        town.settle("hub", {"protocols": ("secagg",), "peers": dict.fromkeys(OTHERS, ("any",))}, data=None)
    shop, telecom = (load_party(town.folder / f"{party}.toml") for party in OTHERS)
    with serving(town) as addresses, drive(town, addresses, setting) as driver:
        assert pending(driver) == OTHERS, "both persons are asked at once"
        approve(telecom)
        assert pending(driver) == ("shop",)
        assert pending(driver) == ("shop",), "the approval of the telecom still holds"
        approve(shop)
        driver.train()
        for settings in (shop, telecom):
            (held,) = list_proposals(settings)
            approval = run_approval(town.run_folder(settings.name))
            assert approval == held
            assert held.used_at is not None
            assert verify(settings, held)
            assert ("label" in held.columns) == (setting == "horizontal")
            about = facts_of_runs([town.run_folder(settings.name).path]).settings
            assert about[f"approval at {settings.name}"].startswith("approved by anna on ")


def test_a_job_resumes_without_a_new_approval_and_starts_anew_with_one(town: Town) -> None:
    town.settle("shop", {"approval": "ask"})
    shop = load_party(town.folder / "shop.toml")

    def stop(result: RoundResult) -> None:
        raise KeyboardInterrupt

    with serving(town) as addresses:
        with drive(town, addresses, "vertical", Watch(round=stop)) as driver:
            assert pending(driver) == ("shop",)
            approve(shop)
            with pytest.raises(KeyboardInterrupt):
                driver.train()
        with drive(town, addresses, "vertical") as driver:
            assert pending(driver) == ("shop",), "a new start is a new job"
            driver.train(resume=True)
    assert [each.state for each in list_proposals(shop)] == ["pending", "approved"]
    assert run_approval(town.run_folder("shop")) == list_proposals(shop)[1]
    assert town.sha() == town.simulated(FEW)


@pytest.mark.parametrize("then", ["approved", "cancelled"])
def test_a_driver_that_waits(town: Town, monkeypatch: pytest.MonkeyPatch, then: str) -> None:
    """It says for whom, ends when the job is cancelled, and otherwise trains."""
    monkeypatch.setattr(coordinator, "FIRST_LOOK", 0.01)
    monkeypatch.setattr(coordinator, "LONGEST_LOOK", 0.01)
    town.settle("shop", {"approval": "ask"})
    waits, waited = set[str](), threading.Event()

    def waiting(party: str, why: str) -> None:
        if "decided" in why:
            waits.add(party)
            waited.set()

    ended: list[BaseException | None] = []

    def train(driver: Coordinator) -> None:
        try:
            driver.train(wait=True)
            ended.append(None)
        except BaseException as error:
            ended.append(error)

    with serving(town) as addresses, drive(town, addresses, "vertical", Watch(waiting=waiting)) as driver:
        thread = threading.Thread(target=train, args=(driver,))
        thread.start()
        assert waited.wait(DEADLINE)
        if then == "approved":
            approve(load_party(town.folder / "shop.toml"))
        else:
            cancel(load_party(town.folder / "bank.toml"), "credit")
        thread.join(DEADLINE)
    assert waits == {"shop"}
    (error,) = ended
    if then == "approved":
        assert error is None
        assert town.sha() == town.simulated(FEW)
    else:
        assert isinstance(error, JobCancelled)
        assert town.run_folder("bank").state == "cancelled"
