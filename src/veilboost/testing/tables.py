"""Small tables for tests, generated from a seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veilboost.data.table import PartyTable
from veilboost.types import AnyArray, Column


def make_columns(
    seed: int, rows: int, numeric: int = 4, categorical: int = 0, missing: float = 0.0, distinct: int | None = None
) -> list[Column]:
    """Columns n0, n1, ... and c0, c1, ...; `distinct` limits the number of numeric values, which creates ties."""
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
        shares = np.sqrt(np.arange(1, classes) / classes)  # the first class has the most rows
        return np.searchsorted(np.quantile(score, shares), score).astype(np.float64)
    if objective == "poisson":
        return rng.poisson(np.exp(np.clip(score / 3, -3, 2))).astype(np.float64)
    return score * 100 + 1000


def split_among(
    columns: Sequence[Column], label: AnyArray, parties: int, weight: AnyArray | None = None
) -> dict[str, PartyTable]:
    """Partition columns into contiguous blocks; the first party is active, and may have no columns."""
    ids = np.arange(len(label))
    blocks = np.array_split(np.arange(len(columns)), parties)
    tables = {f"p{k}": PartyTable(ids, tuple(columns[int(at)] for at in block)) for k, block in enumerate(blocks)}
    tables["p0"] = PartyTable(ids, tables["p0"].columns, label, None, weight)
    return tables
