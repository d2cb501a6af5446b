"""Jobs that continue the model of a finished run, between parties over TLS."""

from __future__ import annotations

import json
from collections.abc import Iterator
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
from veilboost.errors import (
    ImpossibleSetting,
    NothingToResume,
    PeerRefused,
    StateDiffers,
    UnknownRun,
    UnsupportedCombination,
    VeilBoostError,
)
from veilboost.model.store import save_share
from veilboost.party.daemon import Daemon
from veilboost.party.federation import Federation
from veilboost.party.job import Job
from veilboost.party.settings import load_party
from veilboost.party.vertical_session import VerticalSession

pytestmark = pytest.mark.fast
FIRST, MORE = replace(CONFIG, n_estimators=3), replace(CONFIG, n_estimators=5)
TWO = ("bank", "shop")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("authority") / "certs")


@pytest.fixture
def town(tmp_path: Path, certificates: Path) -> Iterator[Town]:
    made = Town(tmp_path, certificates)
    yield made
    made.close()


@contextmanager
def shop_of(town: Town) -> Iterator[dict[str, str]]:
    daemon = Daemon(load_party(town.folder / "shop.toml"))
    try:
        yield {"shop": f"127.0.0.1:{daemon.port}"}
    finally:
        daemon.stop()


def train(town: Town, address: dict[str, str], config: TrainingConfig, continues: str | None = None, **job: Any) -> Any:
    file = town.write_job(address, config=config, **job)
    return Federation(file, town.folder / "bank.toml", continues).train(progress=False)


@pytest.mark.parametrize("alignment", ["ecdh", "prealigned"])
def test_a_continued_model_is_that_of_one_training(town: Town, alignment: str) -> None:
    if alignment == "prealigned":
        align_files(town)
    with shop_of(town) as address:
        train(town, address, FIRST, name="first", alignment=alignment)
        train(town, address, MORE, "first", name="second", alignment=alignment)
        train(town, address, FIRST, "second", name="third", alignment=alignment)
        train(town, address, replace(CONFIG, n_estimators=11), name="whole", alignment=alignment)
    assert town.sha("third", TWO) == town.sha("whole", TWO)
    shares = [town.run_folder("shop", name).load_share().records for name in ("third", "whole")]
    assert shares[0].rules() == shares[1].rules()
    assert town.run_folder("shop", "third").status["trees"] == 11


def align_files(town: Town) -> None:
    """The same customers in the same order at both parties."""
    tables = {party: pq.read_table(town.folder / f"{party}.parquet") for party in TWO}
    ids = sorted(set.intersection(*(set(table["id"].to_pylist()) for table in tables.values())))
    for party, table in tables.items():
        place = {each: at for at, each in enumerate(table["id"].to_pylist())}
        pq.write_table(table.take([place[each] for each in ids]), town.folder / f"{party}.parquet")


def test_only_new_rounds_are_booked_under_a_new_key(town: Town) -> None:
    with shop_of(town) as address:
        train(town, address, FIRST, name="first")
        train(town, address, FIRST, "first", name="second")
    ledgers = [town.run_folder("shop", name).ledger for name in ("first", "second")]
    first, second = (json.dumps(each).replace('"second', '"first') for each in ledgers)
    assert len(first) == len(second)
    keys = [(town.run_folder("shop", name).path / "table.key").read_bytes() for name in ("first", "second")]
    assert keys[0] != keys[1]


def test_a_continued_job_resumes(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    handle, failures = VerticalSession.handle, [0]

    def failing(session: VerticalSession, peer: Any, requests: Any) -> bytes:
        checkpoints = sum(message.type_name() == "Checkpoint" for message, _ in requests)
        failures[0] += checkpoints
        if checkpoints and failures[0] == 3:
            raise StateDiffers("a fault")
        return handle(session, peer, requests)

    with shop_of(town) as address:
        train(town, address, FIRST, name="first")
        train(town, address, replace(CONFIG, n_estimators=8), name="whole")
        monkeypatch.setattr(VerticalSession, "handle", failing)
        file = town.write_job(address, config=MORE, name="second")
        with pytest.raises(VeilBoostError):
            Federation(file, town.folder / "bank.toml", "first").train(progress=False)
        monkeypatch.undo()
        Federation(file, town.folder / "bank.toml", "first").train(resume=True, progress=False)
    assert town.sha("second", TWO) == town.sha("whole", TWO)


# --- refusals ---------------------------------------------------------------------------------------------


def test_runs_that_cannot_be_continued_are_refused(town: Town) -> None:
    with shop_of(town) as address:
        with pytest.raises(UnknownRun, match="first"):
            train(town, address, FIRST, "first", name="second")
        early = replace(CONFIG, n_estimators=40, early_stopping_rounds=1, learning_rate=1.0)
        train(town, address, early, name="first", validation=0.3)
        with pytest.raises(NothingToResume, match="stopped early"):
            train(town, address, FIRST, "first", name="second", validation=0.3)
        bank = town.run_folder("bank", "first")
        bank.note(trees=None)
        with pytest.raises(NothingToResume, match="earlier release"):
            train(town, address, FIRST, "first", name="second")
        bank.note(state="failed")
        with pytest.raises(NothingToResume, match="no finished run"):
            train(town, address, FIRST, "first", name="second")


def test_the_passive_party_checks_its_own_run(town: Town) -> None:
    with shop_of(town) as address:
        train(town, address, FIRST, name="first")
        train(town, address, FIRST, name="other")
        shop = town.run_folder("shop", "first")
        shop.note(active="mallory")
        with pytest.raises(PeerRefused, match="no finished model"):
            train(town, address, FIRST, "first", name="second")
        shop.note(active="bank")
        share = shop.load_share()
        changed = replace(share.records, node=share.records.node + 1)
        save_share(replace(share, records=changed), shop.path / "share")
        with pytest.raises(StateDiffers, match="another model"):
            train(town, address, FIRST, "first", name="second")


@pytest.mark.parametrize("party", TWO)
def test_other_values_of_a_row_are_refused(town: Town, party: str) -> None:
    """A model that is continued on other rows would start from margins that are not its own."""
    with shop_of(town) as address:
        train(town, address, FIRST, name="first")
        file = town.folder / f"{party}.parquet"
        table = pq.read_table(file)
        at = next(at for at, kind in enumerate(table.schema.types) if pa.types.is_floating(kind))
        values = np.array(table.column(at).to_numpy(zero_copy_only=False))
        values[5:] += 1.0
        pq.write_table(table.set_column(at, table.schema.names[at], pa.array(values)), file)
    with shop_of(town) as address, pytest.raises(VeilBoostError, match=r"VB-1710.*run"):
        train(town, address, FIRST, "first", name="second")


def test_a_run_that_was_restored_without_its_keys_does_not_say_that_its_rows_differ(town: Town) -> None:
    with shop_of(town) as address:
        train(town, address, FIRST, name="first")
        (town.run_folder("shop", "first").path / "table.key").unlink()
        with pytest.raises(VeilBoostError, match=r"VB-1703: .* cannot compare its rows"):
            train(town, address, FIRST, "first", name="second")


def test_jobs_that_cannot_continue_are_refused_when_they_are_read(town: Town) -> None:
    with shop_of(town) as address:
        file = town.write_job(address, config=FIRST, name="first")
    with pytest.raises(ImpossibleSetting, match="continues itself"):
        Federation(file, town.folder / "bank.toml", "first")
    job = Federation(file, town.folder / "bank.toml").job
    with pytest.raises(UnsupportedCombination, match="claim about labels"):
        replace(job, protocol="sealed", continues="other")
    assert isinstance(replace(job, continues="other"), Job)
