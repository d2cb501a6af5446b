"""A party's table comes in: one function for every kind of source."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from veilboost.data.columns import feature_column, id_values, label_values, weight_values
from veilboost.data.schema import (
    STRICT,
    SchemaRules,
    Selection,
    check_columns,
    check_present,
    check_roles,
    check_size,
)
from veilboost.data.sources import Read, read_source
from veilboost.data.table import PartyTable

# How pandas writes its index to csv (no name) and to parquet: row numbers, no feature.
_INDEX_NAME = re.compile(r"(__index_level_\d+__)?")


def load_table(
    source: object,
    *,
    id: str | None = None,
    label: str | None = None,
    weight: str | None = None,
    features: Iterable[str] | None = None,
    categorical: Iterable[str] = (),
    format: str | None = None,
    query: str | None = None,
    rules: SchemaRules = STRICT,
) -> PartyTable:
    """Load, check and convert a party's table.

    Parameters
    ----------
    source : path, str, pyarrow table, pandas frame, polars frame or None
        A file (.parquet, .csv, .csv.gz, .arrow, .feather, .ipc, .libsvm, .svm, .txt), a folder of parquet
        files, a table in memory, or `"sql:SELECT ..."`, which duckdb runs. With `query`, a duckdb database
        file or None.
    id : str, optional
        Column of row ids, whole numbers or text. Without it, rows are numbered 0, 1, ...
    label : str, optional
        Column to predict. A LIBSVM file always gives its first field as the label.
    weight : str, optional
        Column of row weights.
    features : iterable of str, optional
        Columns to train on, in this order. Unset: every column without another role.
    categorical : iterable of str
        Features to take as categories although they hold numbers (text always is categories).
    format : {"parquet", "csv", "arrow", "libsvm"}, optional
        For a path whose ending does not say.
    query : str, optional
        SQL for duckdb.
    rules : SchemaRules
        What to do with constant and all-missing columns.

    Returns
    -------
    PartyTable
        Numbers as float32 with NaN for missing, categories as codes with -1 for missing.

    Raises
    ------
    DataError
        The table is refused; the code says why (VB-1101 to VB-1115).
    ParameterError
        The arguments do not go together, or an optional library is not installed.
    """
    selection = Selection(
        id, label, weight, None if features is None else _names(features), frozenset(_names(categorical))
    )
    check_roles(selection)
    read = read_source(source, selection, format, query)
    selection = _complete(selection, read)
    check_present(read.table.column_names, selection)
    check_size(read.table.num_rows, len(selection.features or ()), selection.label is not None)
    return _convert(read, selection, rules)


def _complete(selection: Selection, read: Read) -> Selection:
    """Fill in what the caller left to the table: the label of a format that has one, the features."""
    if selection.label is None:
        selection = replace(selection, label=read.label)
    return replace(selection, features=feature_names(read.table.column_names, selection))


def feature_names(names: Iterable[str], selection: Selection) -> tuple[str, ...]:
    """The features among the columns of a source: those that are named, or all without another role."""
    if selection.features is not None:
        return selection.features
    taken = set(selection.roles.values())
    return tuple(name for name in names if name not in taken and not _INDEX_NAME.fullmatch(name))


def _convert(read: Read, selection: Selection, rules: SchemaRules) -> PartyTable:
    table, typed = read.table, read.typed
    id, label, weight = selection.id, selection.label, selection.weight
    ids = np.arange(table.num_rows, dtype=np.int64) if id is None else id_values(id, table.column(id), typed=typed)
    labels, classes = (None, None) if label is None else label_values(label, table.column(label), typed=typed)
    weights = None if weight is None else weight_values(weight, table.column(weight))
    declared = selection.categorical
    features = (
        feature_column(name, table.column(name), categorical=name in declared, typed=typed)
        for name in selection.features or ()
    )
    columns = check_columns(features, rules)
    check_size(len(ids), len(columns), label is not None)
    return PartyTable(ids, columns, labels, classes, weights)


def _names(names: Iterable[str]) -> tuple[str, ...]:
    # A bare string is one name, not a sequence of letters.
    return (names,) if isinstance(names, str) else tuple(names)
