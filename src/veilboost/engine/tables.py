"""Read Parquet files as a party's table, shard by shard, and select rows of it. No process holds the whole table."""

from __future__ import annotations

import hmac
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from veilboost.data.categories import category_counts, frequent_codes, renumbered
from veilboost.data.columns import (
    feature_column,
    id_values,
    label_values,
    pyarrow,
    weight_values,
    without_markers,
)
from veilboost.data.load import feature_names
from veilboost.data.schema import (
    SchemaRules,
    Selection,
    check_columns,
    check_names,
    check_present,
    check_roles,
    check_size,
)
from veilboost.data.table import PartyTable
from veilboost.engine import shard_ops
from veilboost.engine.api import Engine
from veilboost.engine.pool import Pool, Ref
from veilboost.engine.sharded import ShardedEngine
from veilboost.engine.shards import ShardedArray, Shards
from veilboost.errors import MixedTypes, UnreadableFile
from veilboost.types import AnyArray, Column, Float64Array, Int64Array


@dataclass(frozen=True)
class Piece:
    """Rows begin .. end of one file."""

    file: str
    begin: int
    end: int


@dataclass(frozen=True)
class Files:
    """Files in order, the number of rows in each, and their common columns, with types that fit all files."""

    rows: tuple[tuple[str, int], ...]
    schema: Any

    @property
    def names(self) -> list[str]:
        return cast("list[str]", self.schema.names)

    @property
    def total(self) -> int:
        return sum(rows for _, rows in self.rows)


@dataclass(frozen=True)
class ColumnSummary:
    """A shard's summary of a column: its categories, or its smallest and largest value; whether any is missing."""

    categories: tuple[str, ...] | None
    ends: tuple[float, float] | None
    missing: bool


@dataclass(frozen=True)
class ShardSummary:
    """A shard's summary of its columns and ids, and the classes of text labels."""

    columns: list[ColumnSummary]
    ids: Any
    classes: tuple[str, ...] | None


def table_in_place(
    engine: ShardedEngine,
    folder: str | Path,
    *,
    id: str | None = None,
    label: str | None = None,
    weight: str | None = None,
    features: Sequence[str] | None = None,
    categorical: Sequence[str] = (),
    missing_values: Sequence[str] = (),
    rules: SchemaRules = SchemaRules(),  # noqa: B008 - frozen
) -> PartyTable:
    """Read the table in a parquet file or a folder of them, local or on any filesystem of pyarrow (`s3://...`).

    A worker reads every shard and checks it as `load_table` does; the shard stays in the engine's store. Files are
    read in the order of their names. A repeated id is found within a shard here, and between shards during alignment.
    """
    named = None if features is None else tuple(features)
    selection = Selection(id, label, weight, named, frozenset(categorical), tuple(missing_values))
    check_roles(selection)
    files = _files(str(folder))
    wanted = feature_names(files.names, selection)
    check_present(files.names, replace(selection, features=wanted))
    check_size(files.total, len(wanted), label is not None)
    shards = engine.cut(files.total)
    empty = files.schema.empty_table().select(list(dict.fromkeys([*wanted, *selection.roles.values()])))
    pieces = [_pieces(files.rows, *ends) for ends in shards.ranges]
    parts = shards.each_for(len(wanted) + 4, read_part, pieces, selection, wanted, shards.firsts, empty)
    summaries: list[ShardSummary] = shards.pool.get(parts[-1])
    described = list(zip(*(each.columns for each in summaries), strict=True))
    columns = [_column(shards, *each) for each in zip(wanted, parts, described, strict=False)]
    # Smallest and largest value suffice to find a constant or empty column.
    samples = [_sample(*each) for each in zip(columns, described, strict=True)]
    kept = {column.name for column in check_columns(samples, rules)}
    check_size(shards.rows, len(kept), label is not None)

    def rowwise(at: int, dtype: Any) -> AnyArray:
        return shards.array(parts[at], (shards.rows,), dtype)

    classes, labels = None, None if label is None else rowwise(len(wanted) + 1, np.float64)
    if labels is not None and summaries[0].classes is not None:
        classes, codes = _joined([each.classes or () for each in summaries])
        labels = shards.array(shards.each(shard_ops.recoded, labels, codes), (shards.rows,), np.float64)
    return PartyTable(
        ids=rowwise(len(wanted), np.result_type(*(each.ids for each in summaries))),
        columns=tuple(column for column in columns if column.name in kept),
        label=labels,
        label_classes=classes,
        weight=None if weight is None else rowwise(len(wanted) + 2, np.float64),
    )


def table_in_memory(folder: str | Path, **selected: Any) -> PartyTable:
    """The same table in this process's memory."""
    return gathered(table_in_place(ShardedEngine(Pool(), 1, "local"), folder, **selected))


def rows_in_place(folder: str | Path) -> int:
    """The number of rows; reads only the files' metadata."""
    return _files(str(folder)).total


def table_digest(table: PartyTable, key: bytes) -> str:
    """A digest of ids, columns, labels, weights and constraints, in order.

    Of sharded arrays, one shard is in memory at a time. It is keyed: without the key nobody can test guesses about the
    table.
    """
    digest = hmac.new(key, digestmod="sha256")
    if table.constraints:
        digest.update(repr(table.constraints).encode())
    arrays = [("ids", None, table.ids), ("label", table.label_classes, table.label), ("weight", None, table.weight)]
    arrays += [(column.name, column.categories, column.values) for column in table.columns]
    for name, categories, values in arrays:
        if values is None:
            continue
        digest.update(json.dumps([name, categories, str(values.dtype)]).encode())
        for piece in values.chunks() if isinstance(values, ShardedArray) else [values]:
            digest.update(np.ascontiguousarray(piece, dtype=values.dtype).view(np.uint8).data)
    return digest.hexdigest()


def read_part(
    pieces: Sequence[Piece], selection: Selection, features: Sequence[str], first: int, empty: Any
) -> tuple[Any, ...]:
    """A shard's columns, ids (by default numbered from `first`), labels and weights, and their summary.

    `empty` is a table of the selected columns, with types that fit all files.
    """
    pa = pyarrow()
    rows = [_rows_of(piece, empty.column_names) for piece in pieces]
    table = pa.concat_tables([empty, *rows], promote_options="permissive")

    def column(name: str) -> Any:
        return without_markers(table.column(name), selection.missing_values)

    columns = [
        feature_column(name, column(name), categorical=name in selection.categorical, typed=True) for name in features
    ]
    ids = None if selection.id is None else id_values(selection.id, column(selection.id), typed=True)
    if ids is None:
        ids = np.arange(first, first + table.num_rows, dtype=np.int64)
    label = weight = classes = None
    if selection.label is not None:
        label, classes = label_values(selection.label, column(selection.label), typed=True)
        if classes is not None:
            label = label.astype(np.int32)
    if selection.weight is not None:
        weight = weight_values(selection.weight, column(selection.weight))
    summary = ShardSummary([_summarise(column) for column in columns], ids.dtype, classes)
    return (*(column.values for column in columns), ids, label, weight, summary)


def _summarise(column: Column) -> ColumnSummary:
    if column.categories is not None:
        return ColumnSummary(column.categories, None, bool((column.values < 0).any()))
    present = column.values[~np.isnan(column.values)]
    ends = (float(present.min()), float(present.max())) if len(present) else None
    return ColumnSummary(None, ends, len(present) < len(column.values))


def _column(shards: Shards, name: str, parts: Sequence[Ref], summaries: Sequence[ColumnSummary]) -> Column:
    if summaries[0].categories is None:
        return Column(name, shards.array(parts, (shards.rows,), np.float32))
    categories, codes = _joined([each.categories or () for each in summaries])
    recoded = shards.each(shard_ops.recoded, list(parts), [own.astype(np.int32) for own in codes])
    return Column(name, shards.array(recoded, (shards.rows,), np.int32), categories)


def _joined(found: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], list[Float64Array]]:
    """The categories of all shards, and for each shard the mapping of its codes, and of -1 for missing, to them."""
    known = tuple(sorted({category for each in found for category in each}))
    place = {category: at for at, category in enumerate(known)}
    return known, [np.array([*(place[c] for c in each), -1], dtype=np.float64) for each in found]


def _sample(column: Column, summaries: Sequence[ColumnSummary]) -> Column:
    """A short column with the same smallest and largest value, categories and missing values as the whole column."""
    if column.categories is not None:
        values: list[float] = list(range(len(column.categories)))
        return Column(
            column.name,
            np.array(values + [-1] * any(each.missing for each in summaries), dtype=np.int32),
            column.categories,
        )
    ends = [end for each in summaries for end in each.ends or ()]
    found = [min(ends), max(ends)] if ends else []
    return Column(column.name, np.array(found + [np.nan] * any(each.missing for each in summaries), dtype=np.float32))


# --- files ----------------------------------------------------------------------------------------------------------


def _opened(path: str) -> Any:
    fs, inner = pyarrow("fs").FileSystem.from_uri(path if "://" in path else Path(path).resolve().as_uri())
    return pyarrow("parquet").ParquetFile(inner, filesystem=fs)


def _paths(folder: str) -> list[str]:
    """One file, or the files of a folder in order."""
    fs_module = pyarrow("fs")
    try:
        fs, inner = fs_module.FileSystem.from_uri(folder if "://" in folder else Path(folder).resolve().as_uri())
        if fs.get_file_info(inner).is_file:
            return [folder]
        found = fs.get_file_info(fs_module.FileSelector(inner))
    except (OSError, ValueError):
        raise UnreadableFile(f"there is no folder {folder!r}") from None
    root = folder.rstrip("/")
    paths = sorted(f"{root}/{info.base_name}" for info in found if info.base_name.endswith(".parquet"))
    if not paths:
        raise UnreadableFile(f"there is no .parquet file in {folder!r}")
    return paths


def _files(folder: str) -> Files:
    pa = pyarrow()
    rows: list[tuple[str, int]] = []
    schemas: list[Any] = []
    for path in _paths(folder):
        try:
            with _opened(path) as opened:
                schema = opened.schema_arrow.remove_metadata()
                rows.append((path, int(opened.metadata.num_rows)))
        except (OSError, ValueError):  # the error's own text may quote the file
            raise UnreadableFile(f"{path!r} could not be read as parquet") from None
        check_names(schema.names)
        if schemas and set(schema.names) != set(schemas[0].names):
            raise UnreadableFile(f"the files in {folder!r} differ in their columns")
        schemas.append(schema)
    try:
        return Files(tuple(rows), pa.unify_schemas(schemas, promote_options="permissive"))
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        raise MixedTypes(f"the files in {folder!r} disagree on whether a column is numbers or text") from None


def _pieces(files: Sequence[tuple[str, int]], begin: int, end: int) -> list[Piece]:
    edges = [0, *itertools.accumulate(rows for _, rows in files)]
    return [
        Piece(path, max(begin - first, 0), min(end - first, rows))
        for (path, rows), first in zip(files, edges, strict=False)
        if first < end and first + rows > begin
    ]


def _rows_of(piece: Piece, names: list[str]) -> Any:
    """Read a piece, and only the row groups that it overlaps."""
    with _opened(piece.file) as opened:
        sizes = [opened.metadata.row_group(k).num_rows for k in range(opened.metadata.num_row_groups)]
        edges = [0, *itertools.accumulate(sizes)]
        touched = [k for k in range(len(sizes)) if edges[k] < piece.end and edges[k + 1] > piece.begin]
        table = opened.read_row_groups(touched, columns=names)
        return table.slice(piece.begin - edges[touched[0]], piece.end - piece.begin)


Moves = list[tuple[Int64Array, Int64Array]]  # for each old shard: its rows, and their positions in a new shard


def taken(engine: Engine, table: PartyTable, positions: Iterable[Int64Array], rows: int) -> PartyTable:
    """Select these rows, `rows` in all, in this order. For a sharded table, one list of positions is in memory."""
    if not isinstance(table.ids, ShardedArray) or not isinstance(engine, ShardedEngine):
        return table.take(np.concatenate([np.empty(0, dtype=np.int64), *positions]))
    shards, edges = engine.cut(rows), table.ids.shards.edges
    places = [shards.pool.call(moves_of, wanted, edges) for wanted in _recut(positions, shards)]
    return moved(table, shards, places)


def moved(table: PartyTable, shards: Shards, places: Sequence[Ref]) -> PartyTable:
    """The table in new shards; `places` are the `Moves` to each of them."""

    def move(values: AnyArray) -> AnyArray:
        if not isinstance(values, ShardedArray):
            raise TypeError("a column that is not in shards")
        parts = [shards.pool.call(received, moves, *values.parts) for moves in places]
        return shards.array(parts, (shards.rows,), values.dtype)

    return table.mapped(move)


def with_frequent_categories(table: PartyTable, max_categories: int) -> PartyTable:
    """The rows that a job trains on, with categories as training uses them: see `veilboost.data.categories`."""
    return replace(table, columns=tuple(_with_frequent(column, max_categories) for column in table.columns))


def _with_frequent(column: Column, max_categories: int) -> Column:
    if column.categories is None or len(column.categories) <= max_categories:
        return column
    values = column.values
    if isinstance(values, ShardedArray):
        counts = sum(category_counts(replace(column, values=chunk)) for chunk in values.chunks())
    else:
        counts = category_counts(column)
    kept = frequent_codes(np.asarray(counts), max_categories)
    codes = renumbered(kept, len(column.categories))
    if isinstance(values, ShardedArray):
        parts = values.shards.each(shard_ops.recoded, values, codes)
        recoded = values.shards.array(parts, values.shape, np.int32)
    else:
        recoded = codes[values]
    return Column(column.name, recoded, tuple(column.categories[code] for code in cast("list[int]", kept.tolist())))


def gathered(table: PartyTable) -> PartyTable:
    """The table in this process's memory."""
    return table.mapped(np.asarray)


def moves_of(positions: Int64Array, edges: Sequence[int]) -> Moves:
    """The source shards and rows of a new shard, whose rows are at these positions of the table."""
    shard = np.searchsorted(np.array(edges[1:]), positions, side="right")
    places = [np.flatnonzero(shard == number) for number in range(len(edges) - 1)]
    return [(positions[at] - first, at) for at, first in zip(places, edges, strict=False)]


def received(moves: Moves, *parts: AnyArray) -> AnyArray:
    """The entries of a new shard, in order, from the entries of all old shards."""
    whole = np.empty(sum(len(rows) for rows, _ in moves), dtype=np.result_type(*parts))
    for (rows, at), part in zip(moves, parts, strict=True):
        whole[at] = part[rows]
    return whole


def _recut(pieces: Iterable[Int64Array], shards: Shards) -> Iterator[Int64Array]:
    """The same numbers, re-divided into pieces as long as the shards."""
    waiting = np.empty(0, dtype=np.int64)
    sizes = iter(shards.sizes)
    size = next(sizes)
    for piece in itertools.chain(pieces, [np.empty(0, dtype=np.int64)]):
        waiting = np.concatenate((waiting, piece))
        while len(waiting) >= size > 0:
            yield waiting[:size]
            waiting, size = waiting[size:], next(sizes, 0)
