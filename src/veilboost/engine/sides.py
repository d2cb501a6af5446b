"""Sides of rows that lie in shards: every shard has the bits of its own rows, node after node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from veilboost.boost.rows import SIDES_AT_ONCE, Sides, SidesHeard
from veilboost.engine import work
from veilboost.engine.pool import Ref
from veilboost.engine.shards import Shards
from veilboost.engine.work import collected, dealt, window_by_shard
from veilboost.errors import MalformedMessage
from veilboost.types import AnyArray, BoolArray, Int64Array, UInt8Array


class ShardedSides:
    """`parts` are the packed bits of every shard; `by_shard` (shards, nodes) counts the rows."""

    dtype = np.dtype(np.uint8)

    def __init__(self, shards: Shards, parts: Sequence[Ref], by_shard: Int64Array) -> None:
        self.shards, self.parts, self.by_shard = shards, parts, by_shard

    def __len__(self) -> int:
        return int(self.by_shard.sum())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        """All of them here, for whoever asks."""
        return self.between(0, len(self))

    def of_nodes(self, chosen: BoolArray) -> Sides:
        """Those of the chosen nodes."""
        if chosen.all():
            return as_sides(self)
        parts = self.shards.each(work.sides_of_nodes, list(self.parts), list(self.by_shard), chosen)
        return as_sides(ShardedSides(self.shards, parts, self.by_shard[:, chosen]))

    @staticmethod
    def laid(shards: Shards, by_shard: Int64Array, pieces: Sequence[tuple[BoolArray, ShardedSides]]) -> Sides:
        """From those of nodes that are chosen once each, the sides of all."""
        if len(pieces) == 1:
            return as_sides(pieces[0][1])
        masks = tuple(chosen for chosen, _ in pieces)
        told = (list(sides.parts) for _, sides in pieces)
        return as_sides(ShardedSides(shards, shards.each(work.sides_laid, list(by_shard), masks, *told), by_shard))

    def between(self, low: int, high: int) -> UInt8Array:
        """Those of the places low .. high, here: a 0 or 1 each."""
        skip, take = window_by_shard(self.by_shard, low, high)
        pool, told = self.shards.pool, list(self.parts)
        having = np.flatnonzero(take.any(axis=1))  # places stand shard after shard, so that few have any of a piece
        if low > 0 or high < len(self):
            for shard in having.tolist():
                told[shard] = pool.call(work.sides_window, told[shard], self.by_shard[shard], skip[shard], take[shard])
        bits = (
            np.unpackbits(pool.get([told[shard]])[0], count=count)
            for shard, count in zip(having.tolist(), take[having].sum(axis=1).tolist(), strict=True)
        )
        return collected(bits, take, having) if len(having) else np.empty(0, dtype=np.uint8)


class ShardedHeard(SidesHeard):
    """Pieces go to their shards as they come."""

    def __init__(
        self, shards: Shards, by_shard: Int64Array, pieces: int = 0, parts: Sequence[tuple[Ref, ...]] | None = None
    ) -> None:
        super().__init__(int(by_shard.sum()), pieces)
        self._shards, self._by_shard = shards, by_shard
        self._parts = parts if parts is not None else [()] * len(shards)

    def plus(self, piece: UInt8Array) -> SidesHeard:
        bits = np.unpackbits(piece, count=self.rows_of(piece))
        low = self.pieces * SIDES_AT_ONCE
        _, take = window_by_shard(self._by_shard, low, low + len(bits))
        parts = [
            (*own, self._shards.pool.put((np.packbits(new), len(new)))) if len(new) else own
            for own, new in zip(self._parts, dealt(bits, take), strict=True)
        ]
        return ShardedHeard(self._shards, self._by_shard, self.pieces + 1, parts)

    def whole(self) -> Sides:
        if not self.complete:
            raise MalformedMessage("the left/right bits of some rows were not told")
        parts = [self._shards.pool.call(work.sides_joined, *own) for own in self._parts]
        return as_sides(ShardedSides(self._shards, parts, self._by_shard))


def in_shards(shards: Shards, by_shard: Int64Array, left: Sides) -> ShardedSides:
    """Sides, dealt out to the shards unless they are there already."""
    if isinstance(left, ShardedSides):
        return left
    parts = [shards.pool.put(np.packbits(own)) for own in dealt(left, by_shard)]
    return ShardedSides(shards, parts, by_shard)


def as_sides(sides: ShardedSides) -> Sides:
    """Sides in shards stand for an array of them."""
    return cast(Sides, sides)
