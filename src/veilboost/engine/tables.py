"""A folder of parquet files as a party's table, read by shard: no process holds all of it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from veilboost.data.arrow import pyarrow
from veilboost.data.columns import feature_column, id_values, label_values, weight_values
from veilboost.data.schema import SchemaRules, check_columns, check_names
from veilboost.data.selection import Selection
from veilboost.data.table import PartyTable
from veilboost.engine import work
from veilboost.engine.pool import Ref
from veilboost.engine.sharded import ShardedEngine
from veilboost.engine.shards import Shards
from veilboost.errors import UnreadableFile, UnsupportedCombination
from veilboost.types import AnyArray, Column


@dataclass(frozen=True)
class Piece:
    """Rows begin .. end of one file."""

    file: str
    begin: int
    end: int


@dataclass(frozen=True)
class Described:
    """What a shard tells of a column: its categories, or its least and largest value; and whether any is missing."""

    categories: tuple[str, ...] | None
    ends: tuple[float, float] | None
    missing: bool


def table_in_place(
    engine: ShardedEngine,
    folder: str | Path,
    *,
    id: str | None = None,
    label: str | None = None,
    weight: str | None = None,
    features: Sequence[str] | None = None,
    categorical: Sequence[str] = (),
    rules: SchemaRules = SchemaRules(),  # noqa: B008 - frozen
) -> PartyTable:
    """The table in a folder of parquet files, or in a folder that a filesystem known to pyarrow has (`s3://...`).

    Every shard is read by a worker, checked as `load_table` checks, and stays in the engine's store. Files follow
    each other in the order of their names. Labels are numbers here.
    """
    files, names = _files(str(folder))
    selection = Selection(id, label, weight, None if features is None else tuple(features), frozenset(categorical))
    taken = set(selection.roles.values())
    wanted = tuple(name for name in names if name not in taken) if features is None else tuple(features)
    shards = engine.cut(sum(rows for _, rows in files))
    parts: list[list[Ref]] = []
    for begin, end in shards.ranges:
        pieces = _pieces(files, begin, end)
        parts.append(shards.pool.call_for(len(wanted) + 4, read_part, pieces, selection, wanted, begin))
    told = shards.pool.get([part[-1] for part in parts])
    described = [each for each, _ in told]
    columns = [
        _column(shards, name, [part[k] for part in parts], [each[k] for each in described])
        for k, name in enumerate(wanted)
    ]
    # The ends of a column are as constant, or as empty, as the column.
    kept = {
        column.name
        for column in check_columns([_sample(c, [each[k] for each in described]) for k, c in enumerate(columns)], rules)
    }

    def rowwise(at: int, dtype: Any) -> AnyArray:
        return shards.array([part[at] for part in parts], (shards.rows,), dtype)

    return PartyTable(
        ids=rowwise(len(wanted), np.result_type(*(dtype for _, dtype in told))),
        columns=tuple(column for column in columns if column.name in kept),
        label=None if label is None else rowwise(len(wanted) + 1, np.float64),
        weight=None if weight is None else rowwise(len(wanted) + 2, np.float64),
    )


def read_part(pieces: Sequence[Piece], selection: Selection, features: Sequence[str], first: int) -> tuple[Any, ...]:
    """A shard's columns, ids (by default numbers from `first` on), labels and weights, and what is told of columns."""
    pa = pyarrow()
    names = list(dict.fromkeys([*features, *selection.roles.values()]))
    table = pa.concat_tables([_rows_of(piece, names) for piece in pieces], promote_options="permissive")
    columns = [
        feature_column(name, table.column(name), categorical=name in selection.categorical, typed=True)
        for name in features
    ]
    ids = None if selection.id is None else id_values(selection.id, table.column(selection.id), typed=True)
    if ids is None:
        ids = np.arange(first, first + table.num_rows, dtype=np.int64)
    label = weight = None
    if selection.label is not None:
        label, classes = label_values(selection.label, table.column(selection.label), typed=True)
        if classes is not None:
            raise UnsupportedCombination("labels of a table that is read by shard are numbers", "write 0 and 1")
    if selection.weight is not None:
        weight = weight_values(selection.weight, table.column(selection.weight))
    described = [_described(column) for column in columns], ids.dtype
    return (*(column.values for column in columns), ids, label, weight, described)


def _described(column: Column) -> Described:
    if column.categories is not None:
        return Described(column.categories, None, bool((column.values < 0).any()))
    present = column.values[~np.isnan(column.values)]
    ends = (float(present.min()), float(present.max())) if len(present) else None
    return Described(None, ends, len(present) < len(column.values))


def _column(shards: Shards, name: str, parts: Sequence[Ref], told: Sequence[Described]) -> Column:
    if told[0].categories is None:
        return Column(name, shards.array(parts, (shards.rows,), np.float32))
    known = tuple(sorted({category for each in told for category in each.categories or ()}))
    place = {category: at for at, category in enumerate(known)}
    codes = [np.array([*(place[c] for c in each.categories or ()), -1], dtype=np.int32) for each in told]
    recoded = shards.each(work.recoded, list(parts), codes)
    return Column(name, shards.array(recoded, (shards.rows,), np.int32), known)


def _sample(column: Column, told: Sequence[Described]) -> Column:
    """A column of few rows with the same least and largest value, the same categories and missing values if any."""
    if column.categories is not None:
        values: list[float] = list(range(len(column.categories)))
        return Column(
            column.name, np.array(values + [-1] * any(t.missing for t in told), dtype=np.int32), column.categories
        )
    ends = [end for each in told for end in each.ends or ()]
    found = [min(ends), max(ends)] if ends else []
    return Column(column.name, np.array(found + [np.nan] * any(t.missing for t in told), dtype=np.float32))


# --- files ----------------------------------------------------------------------------------------------------------


def _opened(path: str) -> Any:
    fs, inner = pyarrow("fs").FileSystem.from_uri(path if "://" in path else Path(path).resolve().as_uri())
    return pyarrow("parquet").ParquetFile(inner, filesystem=fs)


def _files(folder: str) -> tuple[list[tuple[str, int]], list[str]]:
    """The files of a folder in order, with their rows; and the columns, which all of them have."""
    fs_module = pyarrow("fs")
    try:
        fs, inner = fs_module.FileSystem.from_uri(folder if "://" in folder else Path(folder).resolve().as_uri())
        found = fs.get_file_info(fs_module.FileSelector(inner))
    except (OSError, ValueError):
        raise UnreadableFile(f"there is no folder {folder!r}") from None
    root = folder.rstrip("/")
    paths = sorted(f"{root}/{info.base_name}" for info in found if info.base_name.endswith(".parquet"))
    if not paths:
        raise UnreadableFile(f"there is no .parquet file in {folder!r}")
    files: list[tuple[str, int]] = []
    names: list[str] = []
    for path in paths:
        with _opened(path) as opened:
            own = cast("list[str]", opened.schema_arrow.names)
            check_names(own)
            if names and set(own) != set(names):
                raise UnreadableFile(f"the files in {folder!r} differ in their columns")
            names = names or own
            files.append((path, int(opened.metadata.num_rows)))
    return files, names


def _pieces(files: Sequence[tuple[str, int]], begin: int, end: int) -> list[Piece]:
    edges = [0, *itertools.accumulate(rows for _, rows in files)]
    return [
        Piece(path, max(begin - first, 0), min(end - first, rows))
        for (path, rows), first in zip(files, edges, strict=False)
        if first < end and first + rows > begin
    ]


def _rows_of(piece: Piece, names: list[str]) -> Any:
    """Only the groups of rows that a piece touches are read."""
    with _opened(piece.file) as opened:
        sizes = [opened.metadata.row_group(k).num_rows for k in range(opened.metadata.num_row_groups)]
        edges = [0, *itertools.accumulate(sizes)]
        touched = [k for k in range(len(sizes)) if edges[k] < piece.end and edges[k + 1] > piece.begin]
        table = opened.read_row_groups(touched, columns=names)
        return table.slice(piece.begin - edges[touched[0]], piece.end - piece.begin)
