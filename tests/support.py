"""Small federations for tests, made from a seed."""

from __future__ import annotations

import dataclasses

from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.model.joined import join
from veilboost.party.simulation import Simulation, simulate_training
from veilboost.protocols.registry import protocol_named
from veilboost.testing.tables import make_columns, make_labels, split_among  # noqa: F401 - tests take them from here

# Options that switch a protocol's noise off: then it must give the model of `plain`.
QUIET_OPTIONS = {
    "ldp": {"mechanism": "none"},
    "federboost": {"mechanism": "none"},
    "masked": {"sigma1": 0.0, "sigma2": 0.0},
    "elxgb": {"mechanism": "none", "key_bits": 512, "allow_insecure_key": True},
}
# Options that make a protocol quick where a test does not ask for its own; short keys protect nobody.
SHORT_KEY = {"key_bits": 512, "allow_insecure_key": True}
QUICK_OPTIONS = {"paillier": SHORT_KEY, **QUIET_OPTIONS}


def quick(config: TrainingConfig, protocol: str) -> TrainingConfig:
    return config if config.options else dataclasses.replace(config, options=QUICK_OPTIONS.get(protocol, {}))


def train(
    tables: dict[str, PartyTable], config: TrainingConfig, protocol: str = "plain", **options: object
) -> Simulation:
    active = next(iter(tables))
    options.setdefault("classes", declared(tables[active], config, protocol))
    return simulate_training(tables, active, protocol, quick(config, protocol), **options)  # type: ignore


def declared(table: PartyTable, config: TrainingConfig, protocol: str) -> tuple[str, ...] | None:
    """The classes of numbered labels, where the protocol wants them declared."""
    if config.objective != "multiclass" or not protocol_named(protocol).declared_classes:
        return None
    return tuple(str(code) for code in range(int(table.label.max()) + 1))  # type: ignore[union-attr]


def sha(simulation: Simulation) -> str:
    return join(simulation.shares).sha256()
