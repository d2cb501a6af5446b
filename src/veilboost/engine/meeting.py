"""Tables in shards whose rows find each other by id: ids are dealt out by hash, and no process sees all of them."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from veilboost.data.table import PartyTable, id_order
from veilboost.engine.pool import Ref
from veilboost.engine.shards import ShardedArray, Shards
from veilboost.errors import DuplicateIds, EmptyIntersection, UnsupportedCombination
from veilboost.types import AnyArray, Int64Array, PartyName

_MIXER = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Lot:
    """The ids of one shard that have one hash, and where in the shard they stand."""

    ids: AnyArray
    rows: Int64Array


def meet_in_place(tables: Mapping[PartyName, PartyTable]) -> dict[PartyName, PartyTable]:
    """The rows of people whom all tables know, in the same order in all: by lot, and by id within a lot.

    Ids are dealt out to as many lots as there are shards; a lot of all parties meets in one worker. Then every shard
    sends the entries of its rows to their lots, column by column, and lots are the new shards.
    """
    ids = {name: _in_shards(table.ids) for name, table in tables.items()}
    pool = next(iter(ids.values())).shards.pool
    count = max(len(each.shards) for each in ids.values())
    numbers = all(each.dtype.kind == "i" for each in ids.values())
    lots = {
        name: [pool.call_for(count, dealt_by_hash, part, count, numbers) for part in each.parts]
        for name, each in ids.items()
    }
    met = [
        pool.call_for(
            len(tables) + 1,
            meet,
            [len(lots[name]) for name in tables],
            *(shard[lot] for name in tables for shard in lots[name]),
        )
        for lot in range(count)
    ]
    sizes = np.array(pool.get([places[-1] for places in met]), dtype=np.int64)
    if not sizes.sum():
        raise EmptyIntersection("no person is known to all parties")
    shards = Shards(pool, (0, *sizes.cumsum().tolist()))
    return {
        name: _moved(table, shards, [places[at] for places in met], len(lots[name]))
        for at, (name, table) in enumerate(tables.items())
    }


def dealt_by_hash(ids: AnyArray, count: int, numbers: bool) -> list[Lot]:
    """A shard's ids in lots: equal ids are in the same lot at every party."""
    if numbers:
        mixed = (ids.astype(np.uint64) + _MIXER) * _MIXER
        lot = (mixed >> np.uint64(33)) % np.uint64(count)
    else:
        texts = ids.astype(np.str_)
        hashes = [hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts.tolist()]
        lot = np.frombuffer(b"".join(hashes), dtype="<u8") % np.uint64(count)
        ids = texts
    found = [np.flatnonzero(lot == number) for number in range(count)]
    return [Lot(ids[rows], rows) for rows in found]


def meet(shards: Sequence[int], *lots: Lot) -> list[Any]:
    """For each party and shard which of its rows are known to all, and their places in the lot; then how many."""
    parties = [lots[low:high] for low, high in itertools.pairwise([0, *itertools.accumulate(shards)])]
    ids = [np.concatenate([lot.ids for lot in party]) for party in parties]
    for each in ids:
        if len(np.unique(each)) != len(each):
            raise DuplicateIds("two rows of a table have the same id")
    common = ids[0]
    for each in ids[1:]:
        common = np.intersect1d(common, each, assume_unique=True)
    common = common[id_order(common)]
    place = np.argsort(common, kind="stable")  # search goes by value, places by the canonical order
    told: list[Any] = []
    for party in parties:
        moves: list[tuple[Int64Array, Int64Array]] = []
        for lot in party:
            at = common[place].searchsorted(lot.ids)
            known = np.zeros(len(lot.ids), dtype=np.bool_)
            inside = at < len(common)
            known[inside] = common[place][at[inside]] == lot.ids[inside]
            moves.append((lot.rows[known], place[at[known]]))
        told.append(moves)
    return [*told, len(common)]


def sent(values: AnyArray, shard: int, *places: list[tuple[Int64Array, Int64Array]]) -> list[AnyArray]:
    """A shard's entries for every lot."""
    return [values[moves[shard][0]] for moves in places]


def received(moves: list[tuple[Int64Array, Int64Array]], *parts: AnyArray) -> AnyArray:
    """A lot's entries, in its order, from those of all shards."""
    whole = np.empty(sum(len(rows) for rows, _ in moves), dtype=np.result_type(*parts))
    for (_, at), part in zip(moves, parts, strict=True):
        whole[at] = part
    return whole


def _moved(table: PartyTable, shards: Shards, places: Sequence[Ref], count: int) -> PartyTable:
    pool = shards.pool

    def move(values: AnyArray) -> AnyArray:
        old = _in_shards(values)
        pieces = [pool.call_for(len(shards), sent, part, shard, *places) for shard, part in enumerate(old.parts)]
        parts = [
            pool.call(received, places[lot], *(pieces[shard][lot] for shard in range(count)))
            for lot in range(len(shards))
        ]
        return shards.array(parts, (shards.rows,), old.dtype)

    return replace(
        table,
        ids=move(table.ids),
        columns=tuple(replace(column, values=move(column.values)) for column in table.columns),
        label=None if table.label is None else move(table.label),
        weight=None if table.weight is None else move(table.weight),
    )


def _in_shards(values: AnyArray) -> ShardedArray:
    if not isinstance(values, ShardedArray):
        raise UnsupportedCombination("a table that is not in shards", "read it with table_in_place")
    return cast(ShardedArray, values)
