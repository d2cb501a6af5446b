"""Alignment of tables of one owner by ids in the clear: in memory, or in shards.

It reveals every id to the process that runs it. Use it for simulations, never between organisations.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from veilboost.align.ids import Batch, members, partition_ids
from veilboost.data.table import PartyTable, id_order
from veilboost.engine.shards import ShardedArray, Shards
from veilboost.engine.tables import Moves, moved
from veilboost.errors import DuplicateIds, EmptyIntersection, UnsupportedCombination
from veilboost.types import PartyName


def align_by_id(tables: Mapping[PartyName, PartyTable]) -> dict[PartyName, PartyTable]:
    """Every party's rows whose ids all parties have, in the order of their ids."""
    shared = None
    for name, table in tables.items():
        ids = np.sort(table.ids)
        if shared is not None and (shared.dtype.kind == "i") != (ids.dtype.kind == "i"):
            raise EmptyIntersection(f"{name} has ids of another type than the parties before it")
        shared = ids if shared is None else np.intersect1d(shared, ids, assume_unique=True)
    if shared is None or not len(shared):
        raise EmptyIntersection(f"the {len(tables)} parties have no row in common")
    shared = shared[id_order(shared)]
    aligned: dict[PartyName, PartyTable] = {}
    for name, table in tables.items():
        order = np.argsort(table.ids)
        aligned[name] = table.take(order[np.searchsorted(table.ids, shared, sorter=order)])
    return aligned


# --- tables in shards: ids are partitioned by hash, and no process sees all of them --------------------------------


def meet_in_place(tables: Mapping[PartyName, PartyTable]) -> dict[PartyName, PartyTable]:
    """The rows whose ids all tables have, in the same order in all: by batch, and by id within a batch.

    Ids are partitioned into as many batches as there are shards; one worker intersects a batch of all parties. Then the
    entries of every shard's rows move to their batches, column by column, and the batches become the new shards.
    """
    ids: dict[PartyName, ShardedArray] = {}
    for name, table in tables.items():
        if not isinstance(table.ids, ShardedArray):
            raise UnsupportedCombination("a table that is not in shards", "read it with table_in_place")
        ids[name] = table.ids
    pool = next(iter(ids.values())).shards.pool
    count = max(len(each.shards) for each in ids.values())
    numbers = all(each.dtype.kind == "i" for each in ids.values())
    indices = {name: each.shards.each(partition_ids, each, count, b"") for name, each in ids.items()}
    met = [
        pool.call_for(
            len(tables) + 1,
            meet,
            [len(each.shards) for each in ids.values()],
            numbers,
            *(ref for name, each in ids.items() for ref in each.shards.each(members, each, indices[name], batch)),
        )
        for batch in range(count)
    ]
    sizes = np.array(pool.get([places[-1] for places in met]), dtype=np.int64)
    if not sizes.sum():
        raise EmptyIntersection("the parties have no row in common")
    shards = Shards(pool, (0, *sizes.cumsum().tolist()))
    return {
        name: moved(table, shards, [places[at] for places in met]) for at, (name, table) in enumerate(tables.items())
    }


def meet(shards: Sequence[int], numbers: bool, *batches: Batch) -> list[Any]:
    """For each party and shard, its common rows and their positions in the batch; then the number of common rows."""
    parties = [batches[low:high] for low, high in itertools.pairwise([0, *itertools.accumulate(shards)])]
    known = [[batch.ids if numbers else batch.ids.astype(np.str_) for batch in party] for party in parties]
    for each in map(np.concatenate, known):
        if len(np.unique(each)) != len(each):
            raise DuplicateIds("two rows of a table have the same id")
    common = np.concatenate(known[0])
    for each in known[1:]:
        common = np.intersect1d(common, np.concatenate(each), assume_unique=True)
    common = common[id_order(common)]
    place = np.argsort(common, kind="stable")  # search is by value, positions are in canonical order
    result: list[Any] = []
    for party, ids in zip(parties, known, strict=True):
        moves: Moves = []
        for batch, own in zip(party, ids, strict=True):
            at = common[place].searchsorted(own)
            inside = np.flatnonzero(at < len(common))
            found = inside[common[place][at[inside]] == own[inside]]
            moves.append((batch.rows[found], place[at[found]]))
        result.append(moves)
    return [*result, len(common)]
