"""From what a caller hands over to one table per party.

A party's rows come as a frame (pandas, polars or pyarrow) or as a matrix, whose columns get names here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard, cast

import numpy as np

from veilboost.align.clear import align_by_id
from veilboost.data.columns import ArrowTable, id_values, pyarrow, table_of
from veilboost.data.load import load_table, read_source
from veilboost.data.schema import SchemaRules, Selection, check_weight, mixed
from veilboost.data.table import PartyTable
from veilboost.errors import InvalidParameter, MissingColumn, RowsDiffer, UnknownFormat
from veilboost.model.share import ColumnInfo
from veilboost.types import AnyArray, Column, Float64Array, Int64Array, PartyName

KEEP = SchemaRules(constant="keep")
Parties = int | Mapping[PartyName, Sequence[Any]]
Tables = dict[PartyName, PartyTable]


def is_by_party(X: Any) -> TypeGuard[Mapping[PartyName, Any]]:
    """Is this a table per party? (Some sparse matrices are mappings too, but have no party names.)"""
    return isinstance(X, Mapping) and not hasattr(cast(object, X), "shape")


def is_frame(X: Any) -> bool:
    return hasattr(X, "column_names") or hasattr(X, "columns")


def names_of(frame: Any) -> list[str]:
    """A frame's column names; pyarrow's tables have `columns` as well, but these are the values."""
    return [str(name) for name in (frame.column_names if hasattr(frame, "column_names") else frame.columns)]


# --- frames -----------------------------------------------------------------------------------------------


def frame_of(given: Any, party: PartyName, prefix: str) -> Any:
    """A party's frame as it is, or its matrix as a frame whose columns are named by number."""
    if is_frame(given):
        return given
    matrix = np.asarray(given)
    if matrix.ndim != 2:
        raise UnknownFormat(
            f"{party} gives neither a frame nor a matrix", "give a row per person and a column per feature"
        )
    return frame_of_matrix(matrix, [f"{prefix}{at}" for at in range(matrix.shape[1])])


def frame_of_matrix(matrix: AnyArray, names: Sequence[str]) -> ArrowTable:
    return table_of({name: _arrow_column(matrix[:, at], name) for at, name in enumerate(names)})


def _arrow_column(values: AnyArray, name: str) -> Any:
    try:
        return pyarrow().array(np.ascontiguousarray(values), from_pandas=True)  # NaN becomes missing, also among text
    except (ValueError, TypeError, NotImplementedError):
        raise mixed(name, has_role=False) from None  # the reason quotes the value it stumbled over


def assign_columns(parties: Parties, names: Sequence[str]) -> dict[PartyName, list[str]]:
    """Which columns of one matrix belong to whom, by name or by position.

    A number of parties takes contiguous blocks, none of them empty: there are at most as many parties as columns.
    """
    if isinstance(parties, Mapping):
        assigned = {party: find_columns(columns, names) for party, columns in parties.items()}
        every = [name for columns in assigned.values() for name in columns]
        if len(set(every)) != len(every):
            raise InvalidParameter("a column belongs to two parties", "give every column to one party")
        return assigned
    if isinstance(parties, bool) or not isinstance(cast(Any, parties), int | np.integer) or parties < 1:
        raise InvalidParameter(f"parties={parties!r} is neither a number of 1 or more nor a mapping")
    blocks = np.array_split(np.arange(len(names)), min(parties, len(names)))
    labels = ["active"] + [f"passive{k}" for k in range(1, len(blocks))]
    return {label: [names[int(at)] for at in block] for label, block in zip(labels, blocks, strict=True)}


def find_columns(wanted: Sequence[Any], names: Sequence[str]) -> list[str]:
    """Columns given by name or by position, by name."""
    return [_find(column, names) for column in _listed(wanted)]


def _listed(names: Sequence[Any]) -> Sequence[Any]:
    """A bare text is one name, not a sequence of letters."""
    return [names] if isinstance(names, str) else names


def _find(column: Any, names: Sequence[str]) -> str:
    if isinstance(column, str):
        if column in names:
            return column
        raise MissingColumn(f"there is no column {column!r}")
    if isinstance(column, int | np.integer):
        at = int(cast(int, column))
        if 0 <= at < len(names):
            return names[at]
    raise MissingColumn(f"there is no column number {column}", f"count the {len(names)} columns from 0")


# --- tables -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wanted:
    """What to take from a party's frame; no names of features: every column without another role."""

    features: tuple[str, ...] | None
    categorical: tuple[str, ...]

    @staticmethod
    def like(columns: Iterable[Column | ColumnInfo]) -> Wanted:
        """The columns that training took, and nothing else: what else a frame holds, such as a label, is not read."""
        known = tuple(columns)
        # Declared even where training found text: a few rows may hold nothing that tells text from numbers.
        categorical = tuple(column.name for column in known if column.categories is not None)
        return Wanted(tuple(column.name for column in known), categorical)


def everything(frames: Mapping[PartyName, Any], categorical: Sequence[Any]) -> dict[PartyName, Wanted]:
    """All columns of all parties' frames; those declared categorical are named once, wherever they are."""
    own = {party: names_of(frame) for party, frame in frames.items()}
    every = [name for names in own.values() for name in names]
    # By name only: positions would count ids and labels, and depend on the order of the parties.
    declared = find_columns([str(name) for name in _listed(categorical)], every)
    return {party: Wanted(None, tuple(name for name in declared if name in names)) for party, names in own.items()}


def load_frame(frame: Any, wanted: Wanted, id: str | None, label: str | None) -> PartyTable:
    if wanted.features == () and label is None:  # an active party may hold labels and nothing else
        if id is None:
            return PartyTable(np.arange(len(frame), dtype=np.int64), ())
        source = read_source(frame, Selection(id=id, features=()))
        return PartyTable(id_values(id, source.table.column(id), typed=True), ())
    return load_table(frame, id=id, label=label, features=wanted.features, categorical=wanted.categorical, rules=KEEP)


# --- labels and weights -----------------------------------------------------------------------------------


def labels_of(y: Any) -> AnyArray:
    """Labels in an array, checked as a label column is, in the type they came in."""
    given = np.asarray(y)
    if given.ndim != 1:
        raise RowsDiffer(f"the labels have {given.ndim} dimensions", "give one label per row")
    read = named_labels(load_table(frame_of_matrix(given[:, None], ["y"]), label="y"))
    return read if given.dtype.kind == "O" else given


def named_labels(table: PartyTable) -> AnyArray:
    """A table's labels as their owner wrote them: text, whole numbers or numbers."""
    label = cast(Float64Array, table.label)
    if table.label_classes is not None:
        return np.asarray(table.label_classes)[label.astype(np.int64)]
    exact = bool((np.abs(label) < 2.0**53).all() and (label == np.floor(label)).all())
    return label.astype(np.int64) if exact else label


def check_weights(sample_weight: Any, rows: int, kept: Int64Array) -> Float64Array | None:
    """The weights of the kept ones among the active party's rows, or None; at least one is above 0."""
    if sample_weight is None:
        return None
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (rows,):
        raise RowsDiffer(f"there are {rows} rows, and the weights have shape {weight.shape}", "give a weight per row")
    check_weight(weight[kept], "sample_weight")
    return weight[kept]


# --- rows of the same people side by side, and columns in the terms that training knows ----------------------------


def shared_rows(tables: Mapping[PartyName, PartyTable], active: PartyName, by_id: bool) -> tuple[Tables, Int64Array]:
    """The people whom all parties know, in the order of their ids: training does not depend on how rows came in.

    Beside the aligned tables stands which row of the active party each row was.
    """
    if not by_id:
        return _same_rows(tables, active), np.arange(tables[active].rows)
    aligned = align_by_id(tables)
    ids = tables[active].ids
    order = np.argsort(ids, kind="stable")
    return aligned, order[np.searchsorted(ids, aligned[active].ids, sorter=order)]


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
