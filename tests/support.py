"""Small federations for tests, made from a seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.model.joined import join
from veilboost.party.simulation import Simulation, simulate_training
from veilboost.protocols.registry import protocol_named
from veilboost.types import AnyArray, Column


def make_columns(
    seed: int, rows: int, numeric: int = 4, categorical: int = 0, missing: float = 0.0, distinct: int | None = None
) -> list[Column]:
    """Columns n0, n1, ... and c0, c1, ...; `distinct` limits the values of the numeric ones, which makes ties."""
    rng = np.random.default_rng(seed)
    columns: list[Column] = []
    for k in range(numeric):
        values = rng.normal(size=rows) if distinct is None else rng.integers(distinct, size=rows)
        values = values.astype(np.float32)
        values[rng.random(rows) < missing] = np.nan
        columns.append(Column(f"n{k}", values))
    for k in range(categorical):
        codes = rng.integers(3 + k, size=rows).astype(np.int32)
        codes[rng.random(rows) < missing] = -1
        columns.append(Column(f"c{k}", codes, tuple("abcdefghij"[: 3 + k])))
    return columns


def make_labels(seed: int, columns: Sequence[Column], objective: str = "binary", classes: int = 3) -> AnyArray:
    """Labels that depend on every column, with some noise."""
    rng = np.random.default_rng(seed + 1000)
    score = rng.normal(scale=0.5, size=len(columns[0].values))
    for k, column in enumerate(columns):
        values = np.nan_to_num(column.values.astype(np.float64), nan=0.5)
        score += np.sin(values * (k + 1)) if column.categories is None else 0.4 * ((column.values + k) % 3)
    if objective == "binary":
        return (score > np.median(score)).astype(np.float64)
    if objective == "multiclass":
        return np.searchsorted(np.quantile(score, np.arange(1, classes) / classes), score).astype(np.float64)
    if objective == "poisson":
        return rng.poisson(np.exp(np.clip(score / 3, -3, 2))).astype(np.float64)
    return score * 100 + 1000


def split_among(
    columns: Sequence[Column], label: AnyArray, parties: int, weight: AnyArray | None = None
) -> dict[str, PartyTable]:
    """Contiguous blocks of columns; the first party is the active one. With more parties than columns it has none."""
    ids = np.arange(len(label))
    blocks = np.array_split(np.arange(len(columns)), parties)
    tables = {f"p{k}": PartyTable(ids, tuple(columns[at] for at in block)) for k, block in enumerate(blocks)}
    tables["p0"] = PartyTable(ids, tables["p0"].columns, label, None, weight)
    return tables


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
    return join(simulation.parts).sha256()
