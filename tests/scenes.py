"""The jobs that every protocol of the contract tests trains, and the models that exact protocols must give."""

from __future__ import annotations

import numpy as np

from support import make_columns, make_labels, quick, sha, split_among, train
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.errors import UnsupportedCombination
from veilboost.party.simulation import SERVER, simulate_training
from veilboost.protocols.registry import all_protocols, protocols_of
from veilboost.protocols.spec import ProtocolSpec
from veilboost.protocols.validation import ResolvedJob, validate

VERTICAL_SCENES = {
    "binary": {"objective": "binary"},
    "multiclass": {"objective": "multiclass"},
    "regression": {"objective": "regression"},
    "poisson": {"objective": "poisson"},
    "sampled": {"objective": "binary", "subsample": 0.6, "colsample_bytree": 0.6},
    "goss": {"objective": "binary", "sampling": "goss", "top_rate": 0.3, "other_rate": 0.1},
    "local": {"objective": "binary", "proposal": "local"},
    "onehot": {"objective": "binary", "categories": "onehot"},
    "ordinal": {"objective": "binary", "categories": "ordinal"},
    "first order": {"objective": "binary", "order": "first"},
}
HORIZONTAL_SCENES = ("binary", "multiclass", "regression")


def vertical_scene(name: str, spec: ProtocolSpec, parties: int = 3) -> tuple[dict[str, PartyTable], TrainingConfig]:
    """Tables and parameters, with categories as the protocol takes them.

    Raises
    ------
    UnsupportedCombination
        If the protocol does not train such a job.
    """
    parameters = {"n_estimators": 3, "max_depth": 3, "max_bin": 8} | VERTICAL_SCENES[name]
    config = spec.settled(TrainingConfig.from_dict(parameters))
    validate(ResolvedJob(spec, quick(config, spec.name)))
    columns = make_columns(21, rows=150, numeric=4, categorical=2, missing=0.1)
    return split_among(columns, make_labels(21, columns, config.objective), parties), config


def horizontal_tables(name: str = "binary", rows: int = 240, participants: int = 3) -> dict[str, PartyTable]:
    columns = make_columns(5, rows=rows, numeric=3, categorical=1, missing=0.1)
    label = make_labels(5, columns, name)
    whole = PartyTable(np.arange(rows), tuple(columns), label)
    parts = np.array_split(np.arange(rows), participants)
    return {f"p{at}": whole.take(part) for at, part in enumerate(parts)}


def horizontal_config(name: str = "binary") -> TrainingConfig:
    return TrainingConfig(objective=name, n_estimators=4, max_depth=3, max_bin=6)


def exact_models(protocol: str) -> dict[str, str]:
    """The hash of what each scene's model computes, by scene, for a protocol that gives the same one every time."""
    if protocol in protocols_of("horizontal"):
        runs = {
            name: simulate_training(horizontal_tables(name), SERVER, protocol, horizontal_config(name))
            for name in HORIZONTAL_SCENES
        }
        return {name: run.model.sha256() for name, run in runs.items()}
    found: dict[str, str] = {}
    for name in VERTICAL_SCENES:
        try:
            tables, config = vertical_scene(name, all_protocols()[protocol])
        except UnsupportedCombination:
            continue
        found[name] = sha(train(tables, config, protocol))
    return found


def exact_protocols() -> list[str]:
    return [spec.name for spec in all_protocols().values() if spec.exact]
