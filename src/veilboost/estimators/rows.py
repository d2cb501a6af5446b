"""Rows of the same people side by side, and columns in the terms that training knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from veilboost.align.clear import align_by_id
from veilboost.data.table import PartyTable
from veilboost.errors import RowsDiffer
from veilboost.types import Column, Int64Array, PartyName

Tables = dict[PartyName, PartyTable]


@dataclass(frozen=True)
class Shared:
    """Aligned tables; row k was row `origin[k]` of the active party."""

    tables: Tables
    origin: Int64Array


def shared_rows(tables: Mapping[PartyName, PartyTable], active: PartyName, by_id: bool) -> Shared:
    """The people whom all parties know, in the order of their ids: training does not depend on how rows came in."""
    if not by_id:
        return Shared(_same_rows(tables, active), np.arange(tables[active].rows))
    aligned = align_by_id(tables)
    ids = tables[active].ids
    order = np.argsort(ids, kind="stable")
    return Shared(aligned, order[np.searchsorted(ids, aligned[active].ids, sorter=order)])


def rows_of_active(tables: Mapping[PartyName, PartyTable], active: PartyName, by_id: bool) -> Tables:
    """All rows of the active party, in its order; every party must know them."""
    if not by_id:
        return _same_rows(tables, active)
    wanted = tables[active].ids
    found: Tables = {}
    for party, table in tables.items():
        same_kind = (table.ids.dtype.kind == "i") == (wanted.dtype.kind == "i")
        unknown = ~np.isin(wanted, table.ids) if same_kind else np.ones(len(wanted), dtype=np.bool_)
        if unknown.any():
            raise RowsDiffer(
                f"{int(unknown.sum())} of the {len(wanted)} rows of {active} are not known to {party}",
                "predict for people whom every party knows",
            )
        order = np.argsort(table.ids, kind="stable")
        found[party] = table.take(order[np.searchsorted(table.ids, wanted, sorter=order)])
    return found


def _same_rows(tables: Mapping[PartyName, PartyTable], active: PartyName) -> Tables:
    rows = tables[active].rows
    for party, table in tables.items():
        if table.rows != rows:
            raise RowsDiffer(f"{party} has {table.rows} rows, {active} has {rows}")
    return dict(tables)


def with_seen_categories(table: PartyTable) -> PartyTable:
    """The table without categories that none of its rows has: people who left it must leave no trace in a model."""
    return replace(table, columns=tuple(_seen(column) for column in table.columns))


def with_categories_of(table: PartyTable, trained: PartyTable) -> PartyTable:
    """Rows to validate on as prediction will see them: a category that training does not know is missing."""
    known = {column.name: column.categories for column in trained.columns}
    return replace(table, columns=tuple(_recoded(column, known[column.name]) for column in table.columns))


def _seen(column: Column) -> Column:
    if column.categories is None:
        return column
    used: list[int] = np.unique(column.values[column.values >= 0]).tolist()
    return _recoded(column, [column.categories[code] for code in used])


def _recoded(column: Column, categories: Sequence[str] | None) -> Column:
    if column.categories is None or categories is None:
        return column
    code = {category: at for at, category in enumerate(categories)}
    table = np.array([code.get(category, -1) for category in column.categories] + [-1], dtype=np.int32)
    return Column(column.name, table[column.values], tuple(categories))  # the last entry serves the missing code -1
