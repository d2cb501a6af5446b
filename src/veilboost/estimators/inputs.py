"""From what a caller hands over to one aligned table per party."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard, cast

import numpy as np

from veilboost.align.preshared import align_by_id
from veilboost.data.load import load_table
from veilboost.data.schema import SchemaRules
from veilboost.data.table import PartyTable
from veilboost.errors import ForeignColumns, ImpossibleParameter, MissingColumn, RowsDiffer
from veilboost.types import AnyArray, Column, PartyName

KEEP = SchemaRules(constant="keep")
Parties = int | Mapping[PartyName, Sequence[Any]]


def is_by_party(X: Any) -> TypeGuard[Mapping[PartyName, Any]]:
    """Is this a table per party? (Some sparse matrices are mappings too, but have no party names.)"""
    return isinstance(X, Mapping) and not hasattr(cast(object, X), "shape")


def assign_columns(parties: Parties, names: Sequence[str]) -> dict[PartyName, list[int]]:
    """Which columns of one matrix belong to whom. A number of parties takes contiguous blocks, none of them empty:
    there are at most as many parties as columns."""
    if not isinstance(parties, Mapping):
        if isinstance(parties, bool) or parties < 1:
            raise ImpossibleParameter(f"parties={parties!r} is not a positive number or a mapping")
        blocks = np.array_split(np.arange(len(names)), min(parties, len(names)))
        labels = ["active"] + [f"passive{k}" for k in range(1, len(blocks))]
        return {label: block.tolist() for label, block in zip(labels, blocks, strict=True)}
    place = {name: at for at, name in enumerate(names)}
    assigned: dict[PartyName, list[int]] = {}
    for party, columns in parties.items():
        assigned[party] = [_place(column, place) for column in columns]
    every = [at for columns in assigned.values() for at in columns]
    if len(set(every)) != len(every):
        raise ImpossibleParameter("a column belongs to two parties")
    return assigned


def _place(column: Any, place: Mapping[str, int]) -> int:
    if isinstance(column, str):
        if column not in place:
            raise MissingColumn(f"there is no column {column!r}")
        return place[column]
    at = int(column)
    if not 0 <= at < len(place):
        raise MissingColumn(f"there is no column number {at}")
    return at


def tables_of_matrix(
    X: AnyArray, names: Sequence[str], assigned: Mapping[PartyName, Sequence[int]]
) -> dict[PartyName, PartyTable]:
    """One party table per block of columns of a numeric matrix."""
    ids = np.arange(int(X.shape[0]), dtype=np.int64)
    return {
        party: PartyTable(ids, tuple(Column(names[at], np.ascontiguousarray(X[:, at], np.float32)) for at in columns))
        for party, columns in assigned.items()
    }


def tables_of_frames(
    frames: Mapping[PartyName, Any],
    active: PartyName,
    label: str | None,
    id: str | None,
    categorical: Sequence[str],
) -> dict[PartyName, PartyTable]:
    """Load every party's frame; arrays get column names of their own."""
    tables: dict[PartyName, PartyTable] = {}
    for party, frame in frames.items():
        if isinstance(frame, np.ndarray):
            matrix = cast(AnyArray, frame)
            names = [f"{party}.{k}" for k in range(matrix.shape[1])]
            tables[party] = tables_of_matrix(matrix, names, {party: range(matrix.shape[1])})[party]
            continue
        available = {str(name) for name in frame.columns} if hasattr(frame, "columns") else set[str]()
        if hasattr(frame, "column_names"):
            available = set(frame.column_names)
        tables[party] = load_table(
            frame,
            id=id,
            label=label if party == active else None,
            categorical=[name for name in categorical if name in available],
            rules=KEEP,
        )
    return tables


def align(
    tables: Mapping[PartyName, PartyTable], active: PartyName, by_id: bool, every_row: bool
) -> dict[PartyName, PartyTable]:
    """Rows of the same people side by side; `every_row`: no row of the active party may be lost."""
    if not by_id:
        rows = tables[active].rows
        for party, table in tables.items():
            if table.rows != rows:
                raise RowsDiffer(f"{party} has {table.rows} rows, {active} has {rows}")
        return dict(tables)
    aligned = align_by_id(tables)
    lost = tables[active].rows - aligned[active].rows
    if every_row and lost:
        raise RowsDiffer(f"{lost} rows of {active} are not known to all parties")
    return aligned


def check_parties(expected: Sequence[PartyName], given: Mapping[PartyName, Any]) -> None:
    absent = [name for name in expected if name not in given]
    if absent:
        raise ForeignColumns(f"there are no rows of {', '.join(absent)}")
