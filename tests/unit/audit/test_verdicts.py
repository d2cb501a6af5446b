"""Every status rests on an attack: this runs it at default options, and fails where the status no longer fits."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import numpy as np
import pytest

from lossy import Lossy, config_of
from support import split_among
from veilboost.audit.attacks import all_attacks, attack
from veilboost.audit.lower_bound import label_lower_bound
from veilboost.audit.sources import kept_key, views_of_simulation
from veilboost.audit.view import Truth, View
from veilboost.cli.lists import directions_of
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.party.simulation import SERVER, simulate_training
from veilboost.privacy.statement import Status
from veilboost.protocols.registry import all_protocols
from veilboost.protocols.spec import Evidence
from veilboost.types import Column

FALLEN = (Status.BROKEN, Status.UNPROTECTED)
# Attack-relevant defaults stay; a short key is quick, and what is attacked does not depend on it.
OPTIONS = {
    "paillier": {"key_bits": 512, "allow_insecure_key": True},
    "elxgb": {"key_bits": 512, "allow_insecure_key": True},
}
# A hundred trees' masks at the root tell who is left of a cut: levels below cost time and add little.
ROOTS = ("masked", "passive")
ROWS = {"elxgb": 200, "masked": 300, "smm1": 200, "smm2": 300, "federboost": 400}


SPECS = all_protocols()


@cache
def finished(protocol: str, roots: bool = False) -> tuple[dict[str, View], Truth]:
    """A small run whose labels follow mostly from what the active party has."""
    rows = ROWS.get(protocol, 300)
    rng = np.random.default_rng(7)
    values = rng.normal(size=(6, rows)).astype(np.float32)
    label = (values[0] + 0.7 * values[1] + 0.6 * values[3] > 0).astype(np.float64)
    tables = split_among([Column(f"n{k}", column) for k, column in enumerate(values)], label, 2)
    config = TrainingConfig(
        objective="binary",
        n_estimators=100 if roots else 15,
        max_depth=1 if roots else 2 if protocol == "masked" else 4,
        max_bin=256 if protocol == "federboost" else 8,
        learning_rate=0.3,
        categories="onehot",
        options=OPTIONS.get(protocol, {}),
    )
    key = kept_key(protocol, config)
    # Whether an attack succeeds has no computed probability: the noise is the same in every run.
    run = simulate_training(tables, "p0", protocol, config, record="payload", prepared=key, unsafe_noise_seed=0)
    return views_of_simulation(run, tables)


@cache
def finished_horizontally(protocol: str, buckets: int) -> tuple[dict[str, View], Truth]:
    """Three participants, of `secagg` with as few rows as its status speaks of."""
    rows = {"secagg": 90}.get(protocol, 900)
    rng = np.random.default_rng(8)
    values = rng.normal(size=(8, rows)).astype(np.float32)
    label = (values[0] + 0.7 * values[1] + rng.logistic(scale=0.5, size=rows) > 0.4).astype(np.float64)
    tables = {
        f"h{k}": PartyTable(at, tuple(Column(f"n{j}", column[at]) for j, column in enumerate(values)), label[at])
        for k, at in enumerate(np.array_split(np.arange(rows), 3))
    }
    depth = 1 if protocol == "mal" else 2
    config = TrainingConfig(objective="binary", n_estimators=2, max_depth=depth, max_bin=buckets)
    # Whether an attack succeeds has no computed probability (that on the labels of mal did in 5 of 8 drawings), so the
    # noise is the same in every run.
    run = simulate_training(tables, SERVER, protocol, config, record="payload", unsafe_noise_seed=1)
    return views_of_simulation(run, tables)


@cache
def without_one() -> tuple[dict[str, View], Truth]:
    """A run of `secagg` in which one of five participants is lost."""
    rng = np.random.default_rng(9)
    tables: dict[str, PartyTable] = {}
    for k in range(5):
        values = rng.normal(size=(10, 100)).astype(np.float32)
        label = (values[0] + rng.logistic(scale=0.5, size=100) > 0.4).astype(np.float64)
        columns = tuple(Column(f"n{j}", column) for j, column in enumerate(values))
        tables[f"h{k}"] = PartyTable(np.arange(100 * k, 100 * k + 100), columns, label)
    config = config_of(1, n_estimators=4, max_bin=TrainingConfig().max_bin)
    run = Lossy(tables, config, {"h1": (2, 1)}, record="payload").train()
    return views_of_simulation(run, tables)


def views_for(protocol: str, evidence: Evidence) -> tuple[View, Truth, str]:
    """The decisive attacker's view, what is scored against, and who is attacked."""
    if SPECS[protocol].setting == "horizontal":
        assert evidence.attack is not None
        # What `mal` says of features speaks of few buckets.
        buckets = 16 if (protocol, evidence.subject) == ("mal", "features") else TrainingConfig().max_bin
        lost = evidence.subject == "sums of a lost participant"
        views, truth = without_one() if lost else finished_horizontally(protocol, buckets)
        return views[all_attacks()[evidence.attack].adversary], truth, "h1"
    views, truth = finished(protocol, (protocol, evidence.victim) == ROOTS)
    return (views["p1"], truth, "p0") if evidence.victim == "active" else (views["p0"], truth, "p1")


CASES = [(protocol, evidence) for protocol, spec in SPECS.items() for evidence in spec.evidence]
NAMES = [f"{protocol}: {evidence.victim}, {evidence.subject}" for protocol, evidence in CASES]


@pytest.mark.parametrize(("protocol", "evidence"), CASES, ids=NAMES)
def test_the_decisive_attack_does_what_the_status_says(protocol: str, evidence: Evidence) -> None:
    if evidence.attack is None:
        assert label_lower_bound(1.0, 20, trees=2).holds != evidence.succeeds
        return
    view, truth, victim = views_for(protocol, evidence)
    finding = attack(all_attacks()[evidence.attack], view, truth, victim, np.random.default_rng(0))
    assert (finding is not None) == evidence.applies
    assert (finding is not None and finding.succeeded) == evidence.succeeds, finding


@pytest.mark.parametrize(("protocol", "evidence"), CASES, ids=NAMES)
def test_the_status_fits_the_evidence(protocol: str, evidence: Evidence) -> None:
    status = SPECS[protocol].statement.worst_for(evidence.victim, evidence.subject)
    assert (status in FALLEN) == evidence.succeeds


@pytest.mark.parametrize("protocol", SPECS)
def test_whatever_is_exposed_has_evidence(protocol: str) -> None:
    """And so has one subject at least of every victim; what is proved or has no known attack may have none."""
    statement = SPECS[protocol].statement
    told = {(evidence.victim, evidence.subject) for evidence in SPECS[protocol].evidence}
    exposed = {each for each in statement.directions if statement.worst_for(*each) in FALLEN}
    assert exposed <= told <= set(statement.directions)
    assert {victim for victim, _ in told} == {victim for victim, _ in statement.directions}


def test_the_table_of_protocols_is_complete() -> None:
    for name, spec in SPECS.items():
        assert spec.relative_cost is not None
        assert spec.relative_cost > 0
        for way in directions_of(name, spec.statement):
            exposed = way["status"] in FALLEN
            assert (way["decisive_attack"] is not None) or not exposed


@pytest.mark.parametrize("protocol", SPECS)
def test_the_leakage_page_names_every_direction(protocol: str) -> None:
    page = " ".join(files(f"veilboost.protocols.{protocol}").joinpath("LEAKAGE.md").read_text().split())
    for each in SPECS[protocol].statement.protections:
        assert f"| {each.data} | {each.adversary.split(',')[0]}" in page
        assert f"**{each.status}**" in page
        assert each.why in page
