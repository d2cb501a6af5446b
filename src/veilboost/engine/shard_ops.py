"""Operations on one shard: pure functions, which a pool calls wherever the shard is."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from veilboost.boost.columns import ColumnBlock, Splits
from veilboost.boost.objective import Objective
from veilboost.boost.rows import RowGroups
from veilboost.config import TrainingConfig
from veilboost.fixedpoint import Scale, to_fixed
from veilboost.types import (
    AnyArray,
    BoolArray,
    ColumnKind,
    Float32Array,
    Float64Array,
    Int32Array,
    Int64Array,
    UInt8Array,
)

Pick = Int64Array | None

# --- numbers ------------------------------------------------------------------------------------------------


def added(*parts: AnyArray) -> AnyArray:
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total


def joined(*parts: Int32Array) -> Int32Array:
    """Concatenate pieces of values (trees, rows, 2) along the rows."""
    return np.concatenate(parts, axis=1)


def largest(values: AnyArray) -> Any:
    return values.max(initial=0).item()


def smallest(values: AnyArray) -> Any:
    return values.min(initial=0).item()


def count_up(count: int) -> Int32Array:
    return np.arange(count, dtype=np.int32)


def where(mask: BoolArray, wanted: bool) -> Int32Array:
    return np.flatnonzero(mask == wanted).astype(np.int32)


def recoded(codes: Int32Array, known: Int32Array) -> Int32Array:
    """Map a shard's category codes to those of all shards; the last entry of `known` maps the missing code -1."""
    return known[codes]


def distinct(*parts: AnyArray) -> AnyArray:
    return np.unique(np.concatenate(parts))


# --- rows in nodes ------------------------------------------------------------------------------------------


def picked(groups: RowGroups, pick: Pick) -> RowGroups:
    return groups if pick is None else groups.of(pick)


def listed(groups: RowGroups, pick: Pick, first: int) -> Int32Array:
    return picked(groups, pick).listed() + np.int32(first)


def window(groups: RowGroups, pick: Pick, skip: Int64Array, take: Int64Array, first: int) -> Int32Array:
    """`take` rows of every node after the first `skip`, numbered as in the driver."""
    own = picked(groups, pick)
    begin = own.begin + skip
    return RowGroups(own.rows, begin, begin + take, own.group).listed() + np.int32(first)


def on_part(groups: RowGroups, pick: Pick, function: Callable[..., Any], *arrays: Any) -> Any:
    """Apply a function to a shard's rows and to arrays; a shard's columns are passed as their bins."""
    return function(picked(groups, pick), *bins_of_blocks(arrays))


def bins_of_blocks(arrays: Iterable[AnyArray | ColumnBlock]) -> list[AnyArray]:
    return [array.shared_bins.bins[0] if isinstance(array, ColumnBlock) else array for array in arrays]


def done(*_: Any) -> None:
    """Do nothing. Waiting for the result waits for the arguments."""


def entries_of_window(
    groups: RowGroups, pick: Pick, skip: Int64Array, take: Int64Array, *arrays: AnyArray | ColumnBlock
) -> list[AnyArray]:
    """The entries of a window's rows in arrays, along the row axis: the second of three, or else the first."""
    rows = window(groups, pick, skip, take, 0)
    return [array[:, rows] if array.ndim == 3 else array[rows] for array in bins_of_blocks(arrays)]


def combined(piece: Callable[..., Any], counts: Int64Array, *entries: list[AnyArray]) -> Any:
    """Call `piece` with the entries of several shards, shard after shard; `counts` is (shards, nodes)."""
    edges = [0, *counts.sum(axis=1).cumsum().tolist()]
    rows = collected([np.arange(low, high, dtype=np.int32) for low, high in itertools.pairwise(edges)], counts)
    arrays = (np.concatenate(each, axis=1 if each[0].ndim == 3 else 0) for each in zip(*entries, strict=True))
    return piece(rows, *arrays)


def split(groups: RowGroups, pick: Pick, left: UInt8Array) -> tuple[RowGroups, Int64Array]:
    own = picked(groups, pick)
    children = own.split(np.unpackbits(left, count=own.size))
    return children, children.counts


def assignments_of_nodes(left: UInt8Array, counts: Int64Array, chosen: BoolArray) -> UInt8Array:
    """Select the packed bits of the chosen nodes; `counts` are the rows of each node."""
    return np.packbits(np.unpackbits(left, count=int(counts.sum()))[chosen.repeat(counts)])


def assignments_merged(counts: Int64Array, masks: tuple[BoolArray, ...], *parts: UInt8Array) -> UInt8Array:
    """The inverse: the packed bits of all nodes, from parts that choose every node once."""
    whole = np.empty(int(counts.sum()), dtype=np.uint8)
    for chosen, part in zip(masks, parts, strict=True):
        whole[chosen.repeat(counts)] = np.unpackbits(part, count=int(counts[chosen].sum()))
    return np.packbits(whole)


def assignments_window(left: UInt8Array, counts: Int64Array, skip: Int64Array, take: Int64Array) -> UInt8Array:
    """`take` of every node's packed bits after the first `skip`."""
    place = np.arange(int(counts.sum())) - (counts.cumsum() - counts).repeat(counts)
    chosen = (place >= skip.repeat(counts)) & (place < (skip + take).repeat(counts))
    return np.packbits(np.unpackbits(left, count=len(place))[chosen])


def assignments_joined(*pieces: tuple[UInt8Array, int]) -> UInt8Array:
    """Concatenate packed bits; every piece comes with its number of rows. There may be no pieces."""
    if len(pieces) == 1:
        return pieces[0][0]
    bits = [np.unpackbits(packed, count=rows) for packed, rows in pieces]
    return np.packbits(np.concatenate([np.empty(0, dtype=np.uint8), *bits]))


def with_leaves(groups: RowGroups, pick: Pick, weight: Float32Array, margin: Float64Array) -> Float64Array:
    after = margin.copy()
    picked(groups, pick).add_to(after, weight)
    return after


# --- columns ------------------------------------------------------------------------------------------------


def binned(
    config: TrainingConfig,
    kinds: tuple[ColumnKind, ...],
    categories: tuple[int, ...],
    cuts: tuple[Float32Array, ...],
    missing: tuple[bool, ...],
    rows: int,
    threads: int,
    *values: Float32Array,
) -> ColumnBlock:
    """Bin a shard's columns. The values are dropped: only the bins are needed from here on."""
    return ColumnBlock.with_cuts(values, rows, kinds, categories, cuts, missing, config, threads).without_values()


def matrix(block: ColumnBlock) -> AnyArray:
    return block.shared_bins.bins[0]


def histogram(block: ColumnBlock, groups: RowGroups, pick: Pick, gradients: Int32Array) -> Int64Array:
    return block.histogram(block.shared_bins, gradients, picked(groups, pick))


def route(groups: RowGroups, pick: Pick, block: ColumnBlock, splits: Splits) -> UInt8Array:
    return np.packbits(block.route(block.shared_bins, picked(groups, pick), splits))


# --- labels -------------------------------------------------------------------------------------------------


def first_margin(base: Float64Array, rows: int) -> Float64Array:
    return np.repeat(base[:, None], rows, axis=1)


def gradients(
    objective: Objective, margin: Float64Array, y: Float64Array, validation: BoolArray | None
) -> tuple[tuple[Float64Array, Float64Array], tuple[float, float]]:
    """g and h, and their bounds."""
    g, h = objective.gradients(margin, y, None)
    if validation is not None:
        g, h = np.where(validation, 0.0, g), np.where(validation, 0.0, h)
    return (g, h), objective.bounds(1.0, g, h)


def on_grid(derivatives: tuple[Float64Array, Float64Array], scale: Scale, weight: Float64Array | None) -> Int32Array:
    return to_fixed(*derivatives, scale, weight)


def largest_weight(weight: Float64Array, validation: BoolArray | None) -> float:
    return float((weight if validation is None else weight[~validation]).max(initial=0.0))


def tally(y: Float64Array, validation: BoolArray | None, most: int) -> tuple[Float64Array, Int64Array] | None:
    """The labels of training rows and how many rows have each, if they are few integers; None otherwise."""
    labels, counts = np.unique(y if validation is None else y[~validation], return_counts=True)
    whole = len(labels) <= most and bool((np.isfinite(labels) & (labels == np.floor(labels))).all())
    return (labels, counts) if whole and float(np.abs(labels).max(initial=0.0)) < most else None


def taken(values: Float64Array, rows: Int32Array) -> Float64Array:
    return values[..., rows]


# --- order of values: rows are ordered by node, and within a node by shard -----------------------------------------


def partition(values: AnyArray, by_shard: Int64Array) -> Iterator[AnyArray]:
    """Partition values, one per row in node order, by shard; `by_shard` (shards, nodes) counts the rows."""
    for begins, counts in zip(_begins(by_shard), by_shard, strict=True):
        yield np.concatenate([values[:0], *(values[b : b + c] for b, c in zip(begins, counts, strict=True))])


def collected(parts: Iterable[AnyArray], by_shard: Int64Array, having: Int64Array | None = None) -> AnyArray:
    """The inverse: merge the values of shards into node order. Only one part at a time is in memory.

    If `having` is given, only these shards have values, and the others have no rows.
    """
    whole: AnyArray | None = None
    chosen = slice(None) if having is None else having
    for part, begins, counts in zip(parts, _begins(by_shard)[chosen], by_shard[chosen], strict=True):
        if whole is None:
            whole = np.empty(int(by_shard.sum()), dtype=part.dtype)
        taken = 0
        for begin, count in zip(begins, counts, strict=True):
            whole[begin : begin + count] = part[taken : taken + count]
            taken += count
    return np.empty(0) if whole is None else whole


def window_by_shard(by_shard: Int64Array, low: int, high: int) -> tuple[Int64Array, Int64Array]:
    """For positions low .. high of the list of all rows: how many rows of each node every shard skips and takes."""
    before = _begins(by_shard)
    first, last = (np.clip(edge - before, 0, by_shard) for edge in (low, high))
    return first, last - first


def _begins(by_shard: Int64Array) -> Int64Array:
    """The position in the list of all rows at which a shard's rows of a node begin: (shards, nodes)."""
    counts = by_shard.sum(axis=0)
    return by_shard.cumsum(axis=0) - by_shard + counts.cumsum() - counts
