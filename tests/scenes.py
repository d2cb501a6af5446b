"""The models that exact protocols must give for the jobs of the contract tests."""

from __future__ import annotations

from support import QUICK_OPTIONS, sha, train
from veilboost.errors import UnsupportedCombination
from veilboost.party.simulation import SERVER, simulate_training
from veilboost.protocols.registry import all_protocols, protocols_of
from veilboost.testing.contract import (
    HORIZONTAL_CASES,
    VERTICAL_CASES,
    horizontal_config,
    horizontal_tables,
    vertical_problem,
)


def exact_models(protocol: str) -> dict[str, str]:
    """The hash of what each scene's model computes, by scene, for a protocol that gives the same one every time."""
    if protocol in protocols_of("horizontal"):
        spec = all_protocols()[protocol]
        runs = {
            name: simulate_training(horizontal_tables(name), SERVER, protocol, horizontal_config(spec, name))
            for name in HORIZONTAL_CASES
        }
        return {name: run.model.sha256() for name, run in runs.items()}
    found: dict[str, str] = {}
    for name in VERTICAL_CASES:
        try:
            tables, config = vertical_problem(name, all_protocols()[protocol], QUICK_OPTIONS.get(protocol, {}))
        except UnsupportedCombination:
            continue
        found[name] = sha(train(tables, config, protocol))
    return found


def exact_protocols() -> list[str]:
    return [spec.name for spec in all_protocols().values() if spec.exact]
