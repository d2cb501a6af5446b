"""Rows divided into contiguous shards, and arrays with an entry per row that lie in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from veilboost.boost.rows import RowFiller, RowGroups
from veilboost.engine import shard_ops
from veilboost.engine.pool import Pool, Ref, reduced
from veilboost.types import AnyArray, Int32Array


@dataclass(frozen=True)
class Shards:
    """Shard s holds the rows edges[s] .. edges[s+1]. Edges depend only on the counts, so all arrays are cut alike."""

    pool: Pool
    edges: tuple[int, ...]

    @staticmethod
    def of(pool: Pool, rows: int, count: int) -> Shards:
        count = max(1, min(count, rows))
        return Shards(pool, tuple(rows * k // count for k in range(count + 1)))

    def __len__(self) -> int:
        return len(self.edges) - 1

    @property
    def rows(self) -> int:
        return self.edges[-1]

    @property
    def ranges(self) -> Iterator[tuple[int, int]]:
        return zip(self.edges[:-1], self.edges[1:], strict=True)

    @property
    def firsts(self) -> list[int]:
        return list(self.edges[:-1])

    @property
    def sizes(self) -> list[int]:
        return [end - begin for begin, end in self.ranges]

    def place(self, values: AnyArray, axis: int = 0) -> ShardedArray:
        """Divide an array along its row axis and store each shard's part."""
        if isinstance(values, ShardedArray):
            return values
        before: tuple[slice, ...] = (slice(None),) * axis
        parts = [self.pool.put(np.ascontiguousarray(values[(*before, slice(*ends))])) for ends in self.ranges]
        return ShardedArray(self, parts, values.shape, values.dtype, axis)

    def placed(self, arrays: Iterable[AnyArray]) -> list[ShardedArray]:
        """Arrays in their shards; the row axis is the second of three, or else the first."""
        return [self.place(array, axis=1 if len(array.shape) == 3 else 0) for array in arrays]

    def each(self, function: Callable[..., Any], *arguments: Any) -> list[Ref]:
        """Call once per shard. Of sharded arrays and lists among the arguments, each call gets its shard's part."""
        return [
            self.pool.call(function, *(_own(argument, shard) for argument in arguments)) for shard in range(len(self))
        ]

    def each_for(self, count: int, function: Callable[..., Any], *arguments: Any) -> list[list[Ref]]:
        """The same for a function that returns `count` values. Returns, for each value, those of all shards."""
        made = [
            self.pool.call_for(count, function, *(_own(argument, shard) for argument in arguments))
            for shard in range(len(self))
        ]
        return [list(each) for each in zip(*made, strict=True)]

    def array(self, parts: Sequence[Ref], shape: tuple[int, ...], dtype: Any, axis: int = 0) -> AnyArray:
        """Parts that were computed in shards, typed as an array."""
        return cast(AnyArray, ShardedArray(self, parts, shape, np.dtype(dtype), axis))


def _own(argument: Any, shard: int) -> Any:
    if isinstance(argument, ShardedArray):
        return argument.parts[shard]
    return cast("list[Any]", argument)[shard] if isinstance(argument, list) else argument


class ShardedArray:
    """An array whose parts lie in shards. Converting it to an array gathers all parts."""

    def __init__(self, shards: Shards, parts: Sequence[Ref], shape: tuple[int, ...], dtype: Any, axis: int) -> None:
        self.shards, self.parts, self.shape, self.dtype, self.axis = shards, list(parts), shape, dtype, axis

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        whole = np.concatenate(self.shards.pool.get(self.parts), axis=self.axis)
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def __getitem__(self, key: Any) -> AnyArray:
        return np.asarray(self)[key]

    def copy(self) -> AnyArray:
        """A copy. It costs nothing, because parts are never changed in place."""
        return self.shards.array(self.parts, self.shape, self.dtype, self.axis)

    def chunks(self) -> Iterator[AnyArray]:
        """The content shard by shard, one shard in memory at a time."""
        for part in self.parts:
            yield self.shards.pool.get([part])[0]

    def distinct(self) -> AnyArray:
        """The distinct values, sorted."""
        return reduced(self.shards.pool, shard_ops.distinct, self.shards.each(shard_ops.distinct, self))

    def max(self, initial: int) -> Any:
        return max(initial, reduced(self.shards.pool, max, self.shards.each(shard_ops.largest, self)))

    def min(self, initial: int) -> Any:
        return min(initial, reduced(self.shards.pool, min, self.shards.each(shard_ops.smallest, self)))


class ShardedFiller(RowFiller):
    """Sends every piece to its shards on arrival."""

    def __init__(self, shards: Shards) -> None:
        super().__init__(shards.rows)
        self._shards = shards
        self._parts: list[list[Ref]] = [[] for _ in range(len(shards))]
        self._trees = 0

    def add(self, values: Int32Array) -> None:
        first, self._trees = self.filled, values.shape[0]
        self.filled += values.shape[1]
        for parts, (begin, end) in zip(self._parts, self._shards.ranges, strict=True):
            if begin < self.filled and end > first:
                own = values[:, max(begin - first, 0) : end - first]
                parts.append(self._shards.pool.put(np.ascontiguousarray(own)))

    def whole(self) -> Int32Array:
        pool = self._shards.pool
        parts = [own[0] if len(own) == 1 else pool.call(shard_ops.joined, *own) for own in self._parts]
        return self._shards.array(parts, (self._trees, self.rows, 2), np.int32, axis=1)


class ShardedNumbers(ShardedArray):
    """Sorted row numbers: the chosen rows of every shard, numbered from its first row."""

    def __init__(self, shards: Shards, parts: Sequence[Ref], counts: Sequence[int]) -> None:
        super().__init__(shards, parts, (sum(counts),), np.dtype(np.int32), 0)
        self.counts = list(counts)

    @staticmethod
    def every(shards: Shards) -> ShardedNumbers:
        return ShardedNumbers(shards, shards.each(shard_ops.count_up, shards.sizes), shards.sizes)

    @staticmethod
    def none(shards: Shards) -> ShardedNumbers:
        empty = shards.pool.put(np.empty(0, dtype=np.int32))
        return ShardedNumbers(shards, [empty] * len(shards), [0] * len(shards))

    @staticmethod
    def where(mask: ShardedArray, wanted: bool = True) -> ShardedNumbers:
        shards = mask.shards
        parts = shards.each(shard_ops.where, mask, wanted)
        return ShardedNumbers(shards, parts, shards.pool.get(shards.each(len, parts)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        parts = self.shards.pool.get(self.parts)
        whole = np.concatenate(
            [part + np.int32(first) for part, (first, _) in zip(parts, self.shards.ranges, strict=True)]
        )
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def __getitem__(self, key: Any) -> AnyArray:
        if isinstance(key, np.ndarray) and self.shape[0] == self.shards.rows:
            mask = cast(AnyArray, key)
            if mask.dtype == np.bool_:
                return cast(AnyArray, ShardedNumbers.where(self.shards.place(mask)))
        if isinstance(key, slice) and key == slice(None, 0):
            return cast(AnyArray, ShardedNumbers.none(self.shards))
        return super().__getitem__(key)

    def at_roots(self, groups: int) -> RowGroups:
        from veilboost.engine.rows import ShardedRows  # it imports this module

        parts = self.shards.each(RowGroups.root, self, groups)
        by_shard = np.repeat(np.array(self.counts, dtype=np.int64)[:, None], groups, axis=1)
        return ShardedRows(self.shards, parts, by_shard, np.arange(groups, dtype=np.int32), None)


def per_row(function: Callable[..., Any], *arrays: AnyArray) -> Any:
    """Apply a row-wise function where the rows are. Raises what the function raises."""
    first = arrays[0]
    if not isinstance(first, ShardedArray):
        return function(*arrays)
    parts = first.shards.each(function, *first.shards.placed(arrays))
    first.shards.pool.get(first.shards.each(shard_ops.done, parts))
    return first.shards.array(parts, first.shape, first.dtype, first.axis)


def summed(function: Callable[..., AnyArray], array: AnyArray) -> AnyArray:
    """Apply a function whose results for pieces add up to the result for the whole, where the rows are."""
    if not isinstance(array, ShardedArray):
        return function(array)
    return reduced(array.shards.pool, shard_ops.added, array.shards.each(function, array))


def pieces_of(values: AnyArray, rows: int) -> Iterator[AnyArray]:
    """Values (trees, rows, 2) in pieces of `rows` rows each; the last piece may be shorter."""
    if not isinstance(values, ShardedArray):
        for first in range(0, max(values.shape[1], 1), rows):
            yield values[:, first : first + rows]
        return
    trees, total, *others = values.shape
    first = filled = 0
    piece = np.empty((trees, min(rows, total), *others), dtype=values.dtype)
    for part in values.chunks():
        taken = 0
        while taken < part.shape[1]:
            count = min(part.shape[1] - taken, piece.shape[1] - filled)
            piece[:, filled : filled + count] = part[:, taken : taken + count]
            taken, filled = taken + count, filled + count
            if filled == piece.shape[1]:
                yield piece
                first, filled = first + filled, 0
                piece = np.empty((trees, min(rows, total - first), *others), dtype=values.dtype)


def seen_values(values: AnyArray) -> AnyArray:
    """An array of the values without regard to rows: for a sharded array, the distinct values, sorted."""
    return values.distinct() if isinstance(values, ShardedArray) else values
