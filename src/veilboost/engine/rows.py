"""Rows grouped by node, where the rows lie in shards. The driver knows how many rows each shard has.

Assignments lie in shards too: every shard has the bits of its own rows, node after node.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np

from veilboost.boost.rows import ASSIGNMENTS_AT_ONCE, Assignments, ReceivedAssignments, Result, RowGroups
from veilboost.engine import shard_ops
from veilboost.engine.pool import Ref, reduced
from veilboost.engine.shard_ops import collected, partition, window_by_shard
from veilboost.engine.shards import ShardedArray, Shards
from veilboost.errors import MalformedMessage
from veilboost.types import AnyArray, BoolArray, Float32Array, Float64Array, Int32Array, Int64Array, UInt8Array

CHUNK_ROWS = 1 << 20  # row numbers in the driver's memory at a time
AHEAD = 4  # tasks that run while an earlier result is used


class ShardedRows(RowGroups):
    """`parts` are the `RowGroups` of every shard, restricted to the nodes `pick` (None: all).

    `begin` and `end` are positions in the list of all rows, node after node, which is built only on request.
    """

    shards: Shards
    parts: Sequence[Ref]
    by_shard: Int64Array
    pick: Int64Array | None

    def __init__(
        self, shards: Shards, parts: Sequence[Ref], by_shard: Int64Array, group: Int32Array, pick: Int64Array | None
    ) -> None:
        counts = by_shard.sum(axis=0)
        self.shards, self.parts, self.by_shard, self.group, self.pick = shards, parts, by_shard, group, pick
        self.end = counts.cumsum()
        self.begin = self.end - counts

    @cached_property
    def rows(self) -> Int32Array:  # pyright: ignore[reportIncompatibleVariableOverride] - built on request
        """All rows, node after node, in the driver's memory."""
        return collected(self.shards.pool.get(self._each(shard_ops.listed, self.shards.firsts)), self.by_shard)

    def _each(self, function: Callable[..., Any], *arguments: Any) -> list[Ref]:
        """Call once per shard with its rows, as `Shards.each`."""
        return self.shards.each(function, self.parts, self.pick, *arguments)

    def _added(self, function: Callable[..., AnyArray], *arguments: Any) -> Any:
        return reduced(self.shards.pool, shard_ops.added, self._each(shard_ops.on_part, function, *arguments))

    def of(self, nodes: Int64Array) -> RowGroups:
        pick = nodes if self.pick is None else self.pick[nodes]
        return ShardedRows(self.shards, self.parts, self.by_shard[:, nodes], self.group[nodes], pick)

    def listed(self) -> Int32Array:
        return self.rows

    def counts_below(self, nodes: Int32Array, bounds: Int64Array) -> Int64Array:
        within = [bounds - first for first in self.shards.firsts]  # a shard numbers rows from its own first row
        return self._added(RowGroups.counts_below, nodes, within)

    def split(self, left: Assignments) -> RowGroups:
        parts, counts = self.shards.each_for(
            2, shard_ops.split, self.parts, self.pick, list(self._assignments(left).parts)
        )
        return ShardedRows(self.shards, parts, np.array(self.shards.pool.get(counts)), self.group.repeat(2), None)

    def split_by(self, part_of: Int32Array, parts: Sequence[Assignments | ReceivedAssignments]) -> RowGroups:
        whole = (part.whole() if isinstance(part, ReceivedAssignments) else part for part in parts)
        return self.split(self.merged([(part_of == number, part) for number, part in enumerate(whole)]))

    def take(self, chosen: BoolArray, whole: Assignments) -> Assignments:
        assignments = self._assignments(whole)
        if chosen.all():
            return as_assignments(assignments)
        parts = self.shards.each(shard_ops.assignments_of_nodes, list(assignments.parts), list(self.by_shard), chosen)
        return as_assignments(ShardedAssignments(self.shards, parts, self.by_shard[:, chosen]))

    def merged(self, parts: Sequence[tuple[BoolArray, Assignments]]) -> Assignments:
        masks = tuple(chosen for chosen, _ in parts if chosen.any())
        placed = [in_shards(self.shards, self.by_shard[:, chosen], part) for chosen, part in parts if chosen.any()]
        if len(placed) == 1:
            return as_assignments(placed[0])
        every = self.shards.each(
            shard_ops.assignments_merged, list(self.by_shard), masks, *(list(part.parts) for part in placed)
        )
        return as_assignments(ShardedAssignments(self.shards, every, self.by_shard))

    def packed_pieces(self, left: Assignments) -> Iterator[UInt8Array]:
        assignments = self._assignments(left)
        for low in range(0, max(self.size, 1), ASSIGNMENTS_AT_ONCE):
            yield np.packbits(assignments.between(low, low + ASSIGNMENTS_AT_ONCE))

    def receiver(self, nodes: Int64Array) -> ReceivedAssignments:
        return ShardedReceived(self.shards, self.by_shard[:, nodes])

    def _assignments(self, left: Assignments) -> ShardedAssignments:
        return in_shards(self.shards, self.by_shard, left)

    def totals(self, gradients: Int32Array) -> Int64Array:
        if not self.size:
            return np.zeros((self.nodes, 2), dtype=np.int64)
        return self._added(RowGroups.totals, self.shards.place(gradients, axis=1))

    def smaller_totals(self, gradients: Int32Array) -> Int64Array:
        return self.of(self.smaller()).totals(gradients)

    def add_to(self, margin: Float64Array, weight: Float32Array) -> None:
        if not isinstance(margin, ShardedArray):
            super().add_to(margin, weight)
        elif self.size:
            margin.parts = self._each(shard_ops.with_leaves, weight, margin)

    def assignments_by(self, function: Callable[..., UInt8Array], *arguments: Any) -> Assignments:
        """The assignments of all rows; `function` returns those of a shard's rows as packed bits."""
        return as_assignments(ShardedAssignments(self.shards, self._each(function, *arguments), self.by_shard))

    def folded(
        self, function: Callable[..., Result], arrays: Sequence[AnyArray], combine: Callable[..., Result]
    ) -> Result:
        return reduced(self.shards.pool, combine, self._each(shard_ops.on_part, function, *self.shards.placed(arrays)))

    def chunks(self) -> Iterator[Int32Array]:
        edges = [*range(0, self.size, CHUNK_ROWS), self.size]
        for low, high in itertools.pairwise(edges):
            skip, take = window_by_shard(self.by_shard, low, high)
            parts = self._each(shard_ops.window, list(skip), list(take), self.shards.firsts)
            yield collected(self.shards.pool.get(parts), take)

    def together(
        self, edges: Sequence[int], arrays: Sequence[AnyArray], piece: Callable[[int], Callable[..., Result]]
    ) -> Iterator[Result]:
        """Every shard sends the entries of its rows, and one worker combines those of a piece."""
        placed, pool = self.shards.placed(arrays), self.shards.pool
        answers: deque[Ref] = deque()
        for number, (low, high) in enumerate(itertools.pairwise(edges)):
            if len(answers) > AHEAD:
                yield pool.get([answers.popleft()])[0]
            skip, take = window_by_shard(self.by_shard, low, high)
            having = np.flatnonzero(take.any(axis=1)).tolist() or [0]
            entries = [
                pool.call(
                    shard_ops.entries_of_window,
                    self.parts[shard],
                    self.pick,
                    skip[shard],
                    take[shard],
                    *(array.parts[shard] for array in placed),
                )
                for shard in having
            ]
            answers.append(pool.call(shard_ops.combined, piece(number), take[having], *entries))
        while answers:
            yield pool.get([answers.popleft()])[0]


class ShardedAssignments:
    """`parts` are the packed bits of every shard; `by_shard` (shards, nodes) counts the rows."""

    dtype = np.dtype(np.uint8)

    def __init__(self, shards: Shards, parts: Sequence[Ref], by_shard: Int64Array) -> None:
        self.shards, self.parts, self.by_shard = shards, parts, by_shard

    def __len__(self) -> int:
        return int(self.by_shard.sum())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        """All assignments, in the driver's memory."""
        return self.between(0, len(self))

    def between(self, low: int, high: int) -> UInt8Array:
        """The assignments at positions low .. high, in the driver's memory: 0 or 1 each."""
        skip, take = window_by_shard(self.by_shard, low, high)
        pool, parts = self.shards.pool, list(self.parts)
        having = np.flatnonzero(take.any(axis=1))  # positions are ordered by shard, so few shards have any of a piece
        if low > 0 or high < len(self):
            for shard in having.tolist():
                parts[shard] = pool.call(
                    shard_ops.assignments_window, parts[shard], self.by_shard[shard], skip[shard], take[shard]
                )
        bits = (
            np.unpackbits(pool.get([parts[shard]])[0], count=count)
            for shard, count in zip(having.tolist(), take[having].sum(axis=1).tolist(), strict=True)
        )
        return collected(bits, take, having) if len(having) else np.empty(0, dtype=np.uint8)


class ShardedReceived(ReceivedAssignments):
    """Sends every piece to its shards on arrival."""

    def __init__(
        self, shards: Shards, by_shard: Int64Array, pieces: int = 0, parts: Sequence[tuple[Ref, ...]] | None = None
    ) -> None:
        super().__init__(int(by_shard.sum()), pieces)
        self._shards, self._by_shard = shards, by_shard
        self._parts = parts if parts is not None else [()] * len(shards)

    def plus(self, piece: UInt8Array) -> ReceivedAssignments:
        bits = np.unpackbits(piece, count=self.rows_of(piece))
        low = self.pieces * ASSIGNMENTS_AT_ONCE
        _, take = window_by_shard(self._by_shard, low, low + len(bits))
        parts = [
            (*own, self._shards.pool.put((np.packbits(new), len(new)))) if len(new) else own
            for own, new in zip(self._parts, partition(bits, take), strict=True)
        ]
        return ShardedReceived(self._shards, self._by_shard, self.pieces + 1, parts)

    def whole(self) -> Assignments:
        if not self.complete:
            raise MalformedMessage("the left/right assignments of some rows are missing")
        parts = [self._shards.pool.call(shard_ops.assignments_joined, *own) for own in self._parts]
        return as_assignments(ShardedAssignments(self._shards, parts, self._by_shard))


def in_shards(shards: Shards, by_shard: Int64Array, left: Assignments) -> ShardedAssignments:
    """Assignments, partitioned to the shards unless they are there already."""
    if isinstance(left, ShardedAssignments):
        return left
    parts = [shards.pool.put(np.packbits(own)) for own in partition(left, by_shard)]
    return ShardedAssignments(shards, parts, by_shard)


def as_assignments(sharded: ShardedAssignments) -> Assignments:
    """Sharded assignments, typed as the array that they represent."""
    return cast(Assignments, sharded)
