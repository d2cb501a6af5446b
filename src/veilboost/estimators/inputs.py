"""Convert the arguments of `fit` and `predict` to one table per party.

A party's rows are a frame (pandas, polars or pyarrow) or a matrix; the columns of a matrix are named here.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard, cast

import numpy as np

from veilboost.align.clear import align_by_id
from veilboost.data.categories import with_categories
from veilboost.data.columns import ArrowTable, id_values, pyarrow, table_of
from veilboost.data.load import check_table, load_table, read_source
from veilboost.data.report import TableReport
from veilboost.data.schema import SchemaRules, Selection, check_names, check_weight, did_you_mean, mixed
from veilboost.data.table import PartyTable
from veilboost.errors import InvalidParameter, MissingColumn, RowsDiffer, UnknownFormat
from veilboost.model.share import ColumnInfo
from veilboost.types import AnyArray, Column, Float64Array, Int64Array, PartyName

KEEP = SchemaRules(constant="keep")
Parties = int | Mapping[PartyName, Sequence[Any]]
Tables = dict[PartyName, PartyTable]


def is_by_party(X: Any) -> TypeGuard[Mapping[PartyName, Any]]:
    """Whether X is a mapping of party name to table. Some sparse matrices are mappings too; they have a `shape`."""
    return isinstance(X, Mapping) and not hasattr(cast(object, X), "shape")


def is_frame(X: Any) -> bool:
    return hasattr(X, "column_names") or hasattr(X, "columns")


def names_of(frame: Any) -> list[str]:
    """A frame's column names, which must differ."""
    # `columns` of a pyarrow table holds values, so `column_names` comes first.
    names = [str(name) for name in (frame.column_names if hasattr(frame, "column_names") else frame.columns)]
    check_names(names)
    return names


def thread_count(n_jobs: object) -> int:
    """The number of threads; None means 1 and -1 one per core, as in scikit-learn."""
    if n_jobs is None:
        return 1
    if n_jobs == -1:
        return os.cpu_count() or 1
    check_count("n_jobs", n_jobs)
    return cast(int, n_jobs)


def check_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or cast(int, value) < 1:
        raise InvalidParameter(f"{name}={value!r} is not a whole number of 1 or more", f"set {name} to such a number")


# --- frames -----------------------------------------------------------------------------------------------


def frame_of(given: Any, party: PartyName, prefix: str) -> Any:
    """Return a party's frame unchanged, or its matrix as a frame with numbered column names."""
    if is_frame(given):
        return given
    matrix = np.asarray(given)
    if matrix.ndim != 2:
        raise UnknownFormat(
            f"{party} gives neither a frame nor a matrix", "give one row per sample and one column per feature"
        )
    return frame_of_matrix(matrix, [f"{prefix}{at}" for at in range(matrix.shape[1])])


def frame_of_matrix(matrix: AnyArray, names: Sequence[str]) -> ArrowTable:
    return table_of({name: _arrow_column(matrix[:, at], name) for at, name in enumerate(names)})


def _arrow_column(values: AnyArray, name: str) -> Any:
    try:
        return pyarrow().array(np.ascontiguousarray(values), from_pandas=True)  # NaN becomes missing, also among text
    except (ValueError, TypeError, NotImplementedError):
        raise mixed(name, has_role=False) from None  # `from None`: pyarrow's message quotes a value


def assign_columns(parties: Parties, names: Sequence[str]) -> dict[PartyName, list[str]]:
    """Assign the columns of one matrix to parties, by name or by position.

    A number of parties gives contiguous blocks. None is empty: there are at most as many parties as columns.
    """
    if isinstance(parties, Mapping):
        assigned = {party: find_columns(columns, names) for party, columns in parties.items()}
        every = [name for columns in assigned.values() for name in columns]
        if len(set(every)) != len(every):
            raise InvalidParameter("a column is assigned to two parties", "assign every column to one party")
        return assigned
    if isinstance(parties, bool) or not isinstance(cast(Any, parties), int | np.integer) or parties < 1:
        raise InvalidParameter(
            f"parties={parties!r} is neither a number of 1 or more nor a mapping",
            "set parties to the number of parties, or to a mapping of names to columns",
        )
    blocks = np.array_split(np.arange(len(names)), min(parties, len(names)))
    labels = ["active"] + [f"passive{k}" for k in range(1, len(blocks))]
    return {label: [names[int(at)] for at in block] for label, block in zip(labels, blocks, strict=True)}


def find_columns(wanted: Sequence[Any], names: Sequence[str]) -> list[str]:
    """The names of columns that are given by name or by position."""
    return [_find(column, names) for column in listed(wanted)]


def listed(given: Any) -> Sequence[Any]:
    """What was given as a sequence, as one name or number, or as None for nothing."""
    if given is None:
        return ()
    return [given] if isinstance(given, str | int | float) else given


def _find(column: Any, names: Sequence[str]) -> str:
    if isinstance(column, str):
        if column in names:
            return column
        raise MissingColumn(f"there is no column {column!r}", did_you_mean(column, names))
    if isinstance(column, int | np.integer):
        at = int(cast(int, column))
        if 0 <= at < len(names):
            return names[at]
    raise MissingColumn(f"there is no column number {column}", f"count the {len(names)} columns from 0")


# --- tables -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wanted:
    """The columns to read from a party's frame. `features=None` reads every column without another role."""

    features: tuple[str, ...] | None
    categorical: tuple[str, ...]

    @staticmethod
    def like(columns: Iterable[Column | ColumnInfo]) -> Wanted:
        """The columns used in training. Other columns of the frame, such as a label, are not read."""
        known = tuple(columns)
        # Declared even where training found text: a few rows may look numeric.
        categorical = tuple(column.name for column in known if column.categories is not None)
        return Wanted(tuple(column.name for column in known), categorical)


def everything(frames: Mapping[PartyName, Any], categorical: Sequence[Any]) -> dict[PartyName, Wanted]:
    """All columns of all parties' frames, with the declared categorical columns assigned to their parties."""
    own = {party: names_of(frame) for party, frame in frames.items()}
    every = [name for names in own.values() for name in names]
    # By name only: positions would count id and label columns and depend on the order of the parties.
    declared = find_columns([str(name) for name in listed(categorical)], every)
    return {party: Wanted(None, tuple(name for name in declared if name in names)) for party, names in own.items()}


def read_frame(
    frame: Any,
    wanted: Wanted,
    id: str | None,
    label: str | None,
    missing_values: Sequence[Any],
    max_categories: int | None = None,
) -> TableReport:
    """A party's table, with notes on its columns if `max_categories` is given."""
    if wanted.features == () and label is None:  # an active party may hold only labels
        if id is None:
            table = PartyTable(np.arange(len(frame), dtype=np.int64), ())
        else:
            source = read_source(frame, Selection(id=id, features=()))
            table = PartyTable(id_values(id, source.columns[id], typed=True), ())
        return TableReport(table.rows, table=table)
    return check_table(
        frame,
        id=id,
        label=label,
        features=wanted.features,
        categorical=wanted.categorical,
        missing_values=listed(missing_values),
        rules=KEEP,
        max_categories=max_categories,
    )


# --- labels and weights -----------------------------------------------------------------------------------


def labels_of(y: Any) -> AnyArray:
    """Validate an array of labels like a label column, and keep its dtype."""
    given = np.asarray(y)
    if given.ndim != 1:
        raise RowsDiffer(f"the labels have {given.ndim} dimensions", "give one label per row")
    read = named_labels(load_table(frame_of_matrix(given[:, None], ["y"]), label="y"))
    return read if given.dtype.kind == "O" else given


def named_labels(table: PartyTable) -> AnyArray:
    """A table's labels in their original form: text, integers or floats."""
    label = cast(Float64Array, table.label)
    if table.label_classes is not None:
        return np.asarray(table.label_classes)[label.astype(np.int64)]
    exact = bool((np.abs(label) < 2.0**53).all() and (label == np.floor(label)).all())
    return label.astype(np.int64) if exact else label


def check_weights(sample_weight: Any, rows: int, kept: Int64Array) -> Float64Array | None:
    """The weights of the `kept` rows, or None. At least one must be positive."""
    if sample_weight is None:
        return None
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (rows,):
        raise RowsDiffer(f"there are {rows} rows, and the weights have shape {weight.shape}", "give a weight per row")
    check_weight(weight[kept], "sample_weight")
    return weight[kept]


def check_base_margin(base_margin: Any, rows: int) -> Float64Array:
    """Margins (K, rows), given as (rows,) or (rows, K)."""
    given = np.asarray(base_margin, dtype=np.float64)
    if given.ndim not in (1, 2) or len(given) != rows:
        raise RowsDiffer(
            f"there are {rows} rows, and base_margin has shape {given.shape}",
            "give one number per row; with several classes, one per row and class",
        )
    if not np.isfinite(given).all():
        raise InvalidParameter("base_margin has a missing or infinite value", "give a finite number for every row")
    return np.ascontiguousarray(given.reshape(rows, -1).T)


# --- row alignment and category codes ---------------------------------------------------------------------


def shared_rows(tables: Mapping[PartyName, PartyTable], active: PartyName, by_id: bool) -> tuple[Tables, Int64Array]:
    """Keep the records that all parties have, in the order of their ids, so that training ignores input order.

    Returns
    -------
    tuple of tables and array
        The aligned tables, and for each aligned row its index in the active party's input.
    """
    if not by_id:
        return _same_rows(tables, active), np.arange(tables[active].rows)
    aligned = align_by_id(tables)
    ids = tables[active].ids
    order = np.argsort(ids, kind="stable")
    return aligned, order[np.searchsorted(ids, aligned[active].ids, sorter=order)]


def rows_of_active(tables: Mapping[PartyName, PartyTable], active: PartyName, by_id: bool) -> Tables:
    """All rows of the active party, in its order. Every party must have them."""
    if not by_id:
        return _same_rows(tables, active)
    wanted = tables[active].ids
    found: Tables = {}
    for party, table in tables.items():
        same_kind = (table.ids.dtype.kind == "i") == (wanted.dtype.kind == "i")
        unknown = ~np.isin(wanted, table.ids) if same_kind else np.ones(len(wanted), dtype=np.bool_)
        if unknown.any():
            raise RowsDiffer(
                f"{int(unknown.sum())} of the {len(wanted)} rows of {active} are not in the table of {party}",
                "predict only for records that every party has",
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


def evaluation_rows(
    tables: Tables, holders: Iterable[PartyName]
) -> tuple[dict[PartyName, tuple[Column, ...]], Float64Array]:
    """The columns of evaluation rows for the holder of each model share, and the labels."""
    labels = np.concatenate([table.label for table in tables.values() if table.label is not None])
    if set(holders) <= set(tables):
        return {name: tables[name].columns for name in holders}, labels
    (server,) = holders  # a horizontal model: the rows of all participants, one after the other
    return {server: functools.reduce(PartyTable.followed_by, tables.values()).columns}, labels


def with_seen_categories(table: PartyTable) -> PartyTable:
    """Drop categories without rows: records that were removed must leave no trace in a model."""
    return replace(table, columns=tuple(_seen(column) for column in table.columns))


def with_categories_of(table: PartyTable, trained: PartyTable) -> PartyTable:
    """Validation rows as prediction reads them: a category that is not in the training data is missing."""
    known = {column.name: column.categories for column in trained.columns}
    return replace(table, columns=tuple(_recoded(column, known[column.name]) for column in table.columns))


def _seen(column: Column) -> Column:
    if column.categories is None:
        return column
    used: list[int] = np.unique(column.values[column.values >= 0]).tolist()
    return with_categories(column, [column.categories[code] for code in used])


def _recoded(column: Column, categories: Sequence[str] | None) -> Column:
    return column if column.categories is None or categories is None else with_categories(column, categories)
