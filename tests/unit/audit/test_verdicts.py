"""Every status rests on an attack: this runs it at default options, and fails where the status no longer fits."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from support import split_among
from veilboost.audit.lower_bound import label_lower_bound
from veilboost.audit.runner import attack
from veilboost.audit.sources import views_of_simulation
from veilboost.audit.verdicts import DECISIVE
from veilboost.audit.view import Truth, View
from veilboost.config import TrainingConfig
from veilboost.party.simulation import simulate_training
from veilboost.privacy.statement import Status
from veilboost.protocols.registry import all_protocols
from veilboost.types import Column

FALLEN = (Status.BROKEN, Status.OPEN)
# Attack-relevant defaults stay; a short key is quick, and what is attacked does not depend on it.
OPTIONS = {
    "paillier": {"key_bits": 512, "allow_insecure_key": True},
    "elxgb": {"key_bits": 512, "allow_insecure_key": True},
}
# A hundred trees' masks at the root tell who is left of a cut: levels below cost time and add little.
TREES = {"masked": 100}
ROWS = {"elxgb": 200, "masked": 300, "smm1": 200, "smm2": 300, "federboost": 400}


@cache
def finished(protocol: str) -> tuple[dict[str, View], Truth]:
    """A small run whose labels follow mostly from what the active party has."""
    rows = ROWS.get(protocol, 300)
    rng = np.random.default_rng(7)
    values = rng.normal(size=(6, rows)).astype(np.float32)
    label = (values[0] + 0.7 * values[1] + 0.6 * values[3] > 0).astype(np.float64)
    tables = split_among([Column(f"n{k}", column) for k, column in enumerate(values)], label, 2)
    config = TrainingConfig(
        n_estimators=TREES.get(protocol, 15),
        max_depth=1 if protocol == "masked" else 4,
        max_bin=256 if protocol == "federboost" else 8,
        learning_rate=0.3,
        categories="onehot",
        options=OPTIONS.get(protocol, {}),
    )
    run = simulate_training(tables, "p0", protocol, config, record="payload")
    return views_of_simulation(run, tables, config)


CASES = [(protocol, victim) for protocol, of in DECISIVE.items() for victim in of]


@pytest.mark.parametrize(("protocol", "victim"), CASES)
def test_the_decisive_attack_does_what_the_status_says(protocol: str, victim: str) -> None:
    evidence = DECISIVE[protocol][victim]
    if evidence.attack is None:
        assert label_lower_bound(1.0, 60).holds != evidence.succeeds
        return
    views, truth = finished(protocol)
    from_, on = ("p1", "p0") if victim == "active" else ("p0", "p1")
    finding = attack(evidence.attack, views[from_], truth, on, np.random.default_rng(0))
    assert finding is not None
    assert finding.succeeded == evidence.succeeds, finding


@pytest.mark.parametrize(("protocol", "victim"), CASES)
def test_the_status_fits_the_evidence(protocol: str, victim: str) -> None:
    status = all_protocols()[protocol].statement.worst_for(victim)
    assert (status in FALLEN) == DECISIVE[protocol][victim].succeeds


def test_every_vertical_protocol_has_evidence() -> None:
    own = {name for name, spec in all_protocols().items() if type(spec).__module__.startswith("veilboost")}
    assert own <= set(DECISIVE)
