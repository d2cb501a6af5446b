"""Which value is whose: rows stand node after node, and within a node shard after shard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from veilboost.types import AnyArray, Int64Array


def dealt(values: AnyArray, by_shard: Int64Array) -> Iterator[AnyArray]:
    """One value per row, node after node, dealt out to the shards; `by_shard` (shards, nodes) counts their rows."""
    for begins, counts in zip(_begins(by_shard), by_shard, strict=True):
        yield np.concatenate([values[:0], *(values[b : b + c] for b, c in zip(begins, counts, strict=True))])


def collected(parts: Iterable[AnyArray], by_shard: Int64Array, having: Int64Array | None = None) -> AnyArray:
    """The inverse: what shards tell of their rows, node after node. One part at a time need be here.

    Where only the shards `having` tell something, the others have no rows.
    """
    whole: AnyArray | None = None
    told = slice(None) if having is None else having
    for part, begins, counts in zip(parts, _begins(by_shard)[told], by_shard[told], strict=True):
        if whole is None:
            whole = np.empty(int(by_shard.sum()), dtype=part.dtype)
        taken = 0
        for begin, count in zip(begins, counts, strict=True):
            whole[begin : begin + count] = part[taken : taken + count]
            taken += count
    return np.empty(0) if whole is None else whole


def window(by_shard: Int64Array, low: int, high: int) -> tuple[Int64Array, Int64Array]:
    """The places low .. high of the list of all rows: how many of a node's each shard skips and takes."""
    before = _begins(by_shard)
    first, last = (np.clip(edge - before, 0, by_shard) for edge in (low, high))
    return first, last - first


def _begins(by_shard: Int64Array) -> Int64Array:
    """Where in the list of all rows those begin that a shard has of a node: (shards, nodes)."""
    counts = by_shard.sum(axis=0)
    return by_shard.cumsum(axis=0) - by_shard + counts.cumsum() - counts
