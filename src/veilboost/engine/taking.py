"""Rows of a table in shards, chosen and put in order: the columns go from shard to shard and come to no other place."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from veilboost.data.table import PartyTable
from veilboost.engine.api import Engine
from veilboost.engine.pool import Ref
from veilboost.engine.sharded import ShardedEngine
from veilboost.engine.shards import ShardedArray, Shards
from veilboost.types import AnyArray, Int64Array

Moves = list[tuple[Int64Array, Int64Array]]  # from each old shard these of its rows, to these places of a new one


def taken(engine: Engine, table: PartyTable, positions: Iterable[Int64Array], rows: int) -> PartyTable:
    """The table of these rows, `rows` in all, in this order. Of a table in shards one list of positions is here."""
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

    return replace(
        table,
        ids=move(table.ids),
        columns=tuple(replace(column, values=move(column.values)) for column in table.columns),
        label=None if table.label is None else move(table.label),
        weight=None if table.weight is None else move(table.weight),
    )


def gathered(table: PartyTable) -> PartyTable:
    """The table in memory."""
    return replace(
        table,
        ids=np.asarray(table.ids),
        columns=tuple(replace(column, values=np.asarray(column.values)) for column in table.columns),
        label=None if table.label is None else np.asarray(table.label),
        weight=None if table.weight is None else np.asarray(table.weight),
    )


def moves_of(positions: Int64Array, edges: Sequence[int]) -> Moves:
    """From where the entries of a new shard come, whose rows stand at these positions of the table."""
    shard = np.searchsorted(np.array(edges[1:]), positions, side="right")
    places = [np.flatnonzero(shard == number) for number in range(len(edges) - 1)]
    return [(positions[at] - first, at) for at, first in zip(places, edges, strict=False)]


def received(moves: Moves, *parts: AnyArray) -> AnyArray:
    """The entries of a new shard, in its order, from those of all old ones."""
    whole = np.empty(sum(len(rows) for rows, _ in moves), dtype=np.result_type(*parts))
    for (rows, at), part in zip(moves, parts, strict=True):
        whole[at] = part[rows]
    return whole


def _recut(pieces: Iterable[Int64Array], shards: Shards) -> Iterator[Int64Array]:
    """The same numbers end to end, in pieces as long as the shards."""
    waiting = np.empty(0, dtype=np.int64)
    sizes = (end - begin for begin, end in shards.ranges)
    size = next(sizes)
    for piece in itertools.chain(pieces, [np.empty(0, dtype=np.int64)]):
        waiting = np.concatenate((waiting, piece))
        while len(waiting) >= size > 0:
            yield waiting[:size]
            waiting, size = waiting[size:], next(sizes, 0)
