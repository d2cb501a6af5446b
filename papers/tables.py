"""Data sets for measuring: read, sampled, held out, and partitioned among parties."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from veilboost.data.load import load_table
from veilboost.data.schema import SchemaRules
from veilboost.data.table import PartyTable
from veilboost.errors import MissingLabel
from veilboost.types import Column, Float64Array, Int64Array, PartyName

ACTIVE, PASSIVE = "active", "passive"


def labels(table: PartyTable) -> Float64Array:
    if table.label is None:
        raise MissingLabel("there are no labels in this table")
    return table.label


def load(file: Path, categorical: tuple[str, ...] = ()) -> PartyTable:
    """A table of the columns `id`, `label` and features; columns of one value are dropped."""
    rules = SchemaRules(constant="drop")
    return load_table(file, id="id", label="label", categorical=categorical, rules=rules).sorted_by_id()


def synthetic(rows: int, features: int = 8) -> PartyTable:
    """Normal columns x0, x1, ... and balanced labels that depend on those of the first party and of the last."""
    rng = np.random.default_rng(0)
    columns = [rng.normal(size=rows).astype(np.float32) for _ in range(features)]
    score = columns[0] + columns[1] * columns[-1] + np.abs(columns[-2]) + rng.normal(size=rows)
    label = (score > np.median(score)).astype(np.float64)
    return PartyTable(np.arange(rows), tuple(Column(f"x{k}", c) for k, c in enumerate(columns)), label)


def sampled(table: PartyTable, rows: int) -> PartyTable:
    """So many rows by chance, always the same ones; all rows where there are not more."""
    if rows >= table.rows:
        return table
    return table.take(np.sort(np.random.default_rng(0).permutation(table.rows)[:rows]))


def hold_out(rows: int, share: float = 0.2, seed: int = 0) -> tuple[Int64Array, Int64Array]:
    """Shuffled training and test rows."""
    order = np.random.default_rng(seed).permutation(rows)
    test = int(rows * share)
    return np.sort(order[test:]), np.sort(order[:test])


def among(table: PartyTable, parties: int) -> dict[PartyName, PartyTable]:
    """Contiguous blocks of columns for party0, party1, ...; the first party holds the labels."""
    blocks: list[Int64Array] = np.array_split(np.arange(len(table.columns)), parties)
    shares = [tuple(table.columns[int(at)] for at in block) for block in blocks]
    tables = {f"party{k}": PartyTable(table.ids, columns) for k, columns in enumerate(shares)}
    tables["party0"] = replace(table, columns=shares[0])
    return tables


def divided(table: PartyTable, own: float) -> dict[PartyName, PartyTable]:
    """The active party has the labels and this share of the columns, a passive party has the others."""
    first = int(own * len(table.columns))
    active, passive = table.columns[:first], table.columns[first:]
    return {ACTIVE: replace(table, columns=active), PASSIVE: PartyTable(table.ids, passive)}
