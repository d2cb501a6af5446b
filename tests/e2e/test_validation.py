"""Over TLS: `check` and `train` refuse alike, a daemon refuses a proposal made by hand, and class names stay home."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parties import CONFIG, PARTIES, Town, make_certificates
from veilboost.config import TrainingConfig
from veilboost.party.federation import coordinate
from veilboost.party.job import Job, load_job
from veilboost.party.settings import load_party
from veilboost.party.vertical import VerticalCoordinator

NAMES = ("sealed", "lattice")
SMALL = replace(CONFIG, n_estimators=2, categories="ordinal", objective="auto")
CLASSES = ("hiv-negative", "hiv-positive", "hiv-unknown")


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    folder = tmp_path_factory.mktemp("town")
    made = Town(folder, make_certificates(folder / "certs"), rows=120, overlap=False)
    for party in PARTIES:
        made.settle(party, policy={"protocols": NAMES, "allow_unprotected": NAMES})
    made.serve("shop", "telecom")
    yield made
    made.close()


def labelled(town: Town, label: object) -> None:
    table = pq.read_table(town.folder / "bank.parquet").drop_columns(["label"])
    pq.write_table(table.append_column("label", pa.array(label)), town.folder / "bank.parquet")


def written(town: Town, name: str, protocol: str = "sealed", config: TrainingConfig = SMALL) -> Path:
    addresses = {party: town.address(party) for party in ("shop", "telecom")}
    return town.write_job(addresses, name, config, protocol=protocol, record="payload")


def checked(town: Town, job: Path) -> str:
    """The bank's own error about the labels; the others are not asked."""
    code, out, _ = town.run("check", job.name, "--config", "bank.toml", "--json")
    found = json.loads(out)["parties"]
    assert code == 1
    assert not any(found["shop"].values())
    return str(found["bank"]["label"]["text"])


def test_check_and_train_refuse_a_regression_and_the_hint_works(town: Town) -> None:
    labelled(town, np.linspace(-1e4, 1e4, 120))
    job = written(town, "amounts")
    for told in (checked(town, job), town.refused("train", job.name, "--config", "bank.toml")):
        assert told.startswith("VB-1004: ")
        assert "regression" in told
        assert "lattice" in told
    assert not (town.folder / "runs-bank" / "amounts").exists(), "nothing was proposed, kept or spent"
    assert not (town.folder / "runs-shop" / "amounts").exists()
    job = written(town, "amounts", "lattice")
    assert town.answer("check", job.name, "--config", "bank.toml")["ready"]
    assert town.answer("train", job.name, "--config", "bank.toml")["rounds"] == 2


def received(town: Town, job: str) -> bytes:
    """All that the passive parties have of a job, with the payload of every message."""
    kept = [file for party in ("shop", "telecom") for file in (town.folder / f"runs-{party}" / job).rglob("*")]
    return b"".join(file.read_bytes() for file in kept if file.is_file())


def test_undeclared_classes_are_refused_and_declared_ones_stay_home(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    labelled(town, np.array(CLASSES)[np.arange(120) % 3])
    job = written(town, "kinds")
    for told in (checked(town, job), town.refused("train", job.name, "--config", "bank.toml")):
        assert told.startswith("VB-1004: ")
    line = re.search(r"(classes = \[.*\]) \(", told)
    assert line is not None
    job.write_text(f"{line[1]}\n{job.read_text()}".replace("# classes =", "#"))
    assert town.answer("check", job.name, "--config", "bank.toml")["ready"]
    assert town.answer("train", job.name, "--config", "bank.toml")["rounds"] == 2
    contents = received(town, "kinds")
    assert b"multiclass" in contents, "the objective is told"
    # Ciphertexts are random: a name of twelve letters is among them by chance with probability below 1e-20.
    assert not any(name.encode() in contents for name in CLASSES), "what the classes are called is not"
    sent = (town.folder / "runs-bank" / "kinds" / "job.toml").read_text()  # predictions propose this text again
    assert "hiv" not in sent
    # A broken twin that sends the whole job is found out by the same search.
    told = job.with_name("told.toml")
    told.write_text(job.read_text().replace('"kinds"', '"told"'))
    monkeypatch.setattr(Job, "shared", lambda self: self)
    assert town.answer("train", told.name, "--config", "bank.toml")["rounds"] == 2
    assert all(name.encode() in received(town, "told") for name in CLASSES)


def test_zero_and_one_are_declared_by_the_objective(town: Town) -> None:
    labelled(town, np.arange(120) % 2)
    job = written(town, "flags")
    assert 'objective = "binary"' in checked(town, job)
    job = written(town, "flags", config=replace(SMALL, objective="binary"))
    assert town.answer("train", job.name, "--config", "bank.toml")["rounds"] == 2


def test_a_daemon_refuses_a_proposal_that_its_driver_did_not_check(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    labelled(town, np.arange(120) % 2)
    monkeypatch.setattr(VerticalCoordinator, "_settle", lambda self: None)
    for objective in ("auto", "regression"):
        job = written(town, "bent", config=replace(SMALL, objective=objective))
        with coordinate(load_party(town.folder / "bank.toml"), load_job(job)) as driver:
            answers = driver.check().errors
        for told in (answers["shop"], answers["telecom"]):
            assert told is not None
            assert "VB-1004" in told
