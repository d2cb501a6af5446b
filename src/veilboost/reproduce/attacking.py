"""Train with all messages kept, and attack with what each party saw."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from veilboost.audit.attack import Attack
from veilboost.audit.result import Finding
from veilboost.audit.runner import attack
from veilboost.audit.sources import views_of_simulation
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.party.simulation import simulate_training
from veilboost.types import PartyName


def attacked(
    tables: Mapping[PartyName, PartyTable], protocol: str, config: TrainingConfig, attacks: Iterable[Attack]
) -> list[Finding]:
    """What these attacks find in one run of two parties, the active one first."""
    run = simulate_training(tables, next(iter(tables)), protocol, config, record="payload")
    views, truth = views_of_simulation(run, tables)
    active, passive = tables
    sides = {"active": active, "passive": passive}
    chances = ((how, views[sides[how.adversary]], truth, sides[how.victim]) for how in attacks)
    found = (attack(*chance, np.random.default_rng(config.seed)) for chance in chances)
    return [finding for finding in found if finding is not None]
