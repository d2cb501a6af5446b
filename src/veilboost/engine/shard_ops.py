"""The pieces of work: pure functions of one shard, which a pool calls wherever the shard is."""

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
    """Pieces of values (trees, rows, 2), one after the other."""
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
    """Categories of a shard as those of all shards; the last entry serves the missing code -1."""
    return known[codes]


def distinct(*parts: AnyArray) -> AnyArray:
    return np.unique(np.concatenate(parts))


# --- rows in nodes ------------------------------------------------------------------------------------------


def picked(groups: RowGroups, pick: Pick) -> RowGroups:
    return groups if pick is None else groups.of(pick)


def listed(groups: RowGroups, pick: Pick, first: int) -> Int32Array:
    return picked(groups, pick).listed() + np.int32(first)


def window(groups: RowGroups, pick: Pick, skip: Int64Array, take: Int64Array, first: int) -> Int32Array:
    """Of every node `take` rows after the first `skip`, as the driver numbers them."""
    own = picked(groups, pick)
    begin = own.begin + skip
    return RowGroups(own.rows, begin, begin + take, own.group).listed() + np.int32(first)


def on_part(groups: RowGroups, pick: Pick, function: Callable[..., Any], *arrays: Any) -> Any:
    """A function of a shard's rows and of arrays; a shard's columns count as their bins."""
    return function(picked(groups, pick), *bins_of_blocks(arrays))


def bins_of_blocks(arrays: Iterable[AnyArray | ColumnBlock]) -> list[AnyArray]:
    return [array.shared_bins.bins[0] if isinstance(array, ColumnBlock) else array for array in arrays]


def done(*_: Any) -> None:
    """Nothing; but whoever waits for it has waited for the arguments."""


def handed_out(
    groups: RowGroups, pick: Pick, skip: Int64Array, take: Int64Array, *arrays: AnyArray | ColumnBlock
) -> list[AnyArray]:
    """The entries that the rows of a window have in arrays, along the axis of rows: of three the second."""
    rows = window(groups, pick, skip, take, 0)
    return [array[:, rows] if array.ndim == 3 else array[rows] for array in bins_of_blocks(arrays)]


def put_together(piece: Callable[..., Any], counts: Int64Array, *told: list[AnyArray]) -> Any:
    """Call a piece of work with what shards have handed out, shard after shard; `counts` is (shards, nodes)."""
    edges = [0, *counts.sum(axis=1).cumsum().tolist()]
    rows = collected([np.arange(low, high, dtype=np.int32) for low, high in itertools.pairwise(edges)], counts)
    return piece(rows, *(np.concatenate(each, axis=1 if each[0].ndim == 3 else 0) for each in zip(*told, strict=True)))


def split(groups: RowGroups, pick: Pick, left: UInt8Array) -> tuple[RowGroups, Int64Array]:
    own = picked(groups, pick)
    children = own.split(np.unpackbits(left, count=own.size))
    return children, children.counts


def assignments_of_nodes(left: UInt8Array, counts: Int64Array, chosen: BoolArray) -> UInt8Array:
    """Packed bits of nodes that have so many rows: those of the chosen nodes."""
    return np.packbits(np.unpackbits(left, count=int(counts.sum()))[chosen.repeat(counts)])


def assignments_laid(counts: Int64Array, masks: tuple[BoolArray, ...], *parts: UInt8Array) -> UInt8Array:
    """The inverse: the packed bits of all nodes, from those of nodes that are chosen once each."""
    whole = np.empty(int(counts.sum()), dtype=np.uint8)
    for chosen, part in zip(masks, parts, strict=True):
        whole[chosen.repeat(counts)] = np.unpackbits(part, count=int(counts[chosen].sum()))
    return np.packbits(whole)


def assignments_window(left: UInt8Array, counts: Int64Array, skip: Int64Array, take: Int64Array) -> UInt8Array:
    """Of every node's packed bits `take` after the first `skip`."""
    place = np.arange(int(counts.sum())) - (counts.cumsum() - counts).repeat(counts)
    chosen = (place >= skip.repeat(counts)) & (place < (skip + take).repeat(counts))
    return np.packbits(np.unpackbits(left, count=len(place))[chosen])


def assignments_joined(*pieces: tuple[UInt8Array, int]) -> UInt8Array:
    """Packed bits, from pieces of so many rows each, if any."""
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
    """A shard's columns. Values are let go: from here on bins are all that is needed."""
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
    """g and h, and the bounds that they ask for."""
    g, h = objective.gradients(margin, y, None)
    if validation is not None:
        g, h = np.where(validation, 0.0, g), np.where(validation, 0.0, h)
    return (g, h), objective.bounds(1.0, g, h)


def on_grid(derivatives: tuple[Float64Array, Float64Array], scale: Scale, weight: Float64Array | None) -> Int32Array:
    return to_fixed(*derivatives, scale, weight)


def largest_weight(weight: Float64Array, validation: BoolArray | None) -> float:
    return float((weight if validation is None else weight[~validation]).max(initial=0.0))


def tally(y: Float64Array, validation: BoolArray | None, most: int) -> tuple[Float64Array, Int64Array] | None:
    """The labels of rows that are fit on, if they are few whole numbers, and how many rows have each; else None."""
    labels, counts = np.unique(y if validation is None else y[~validation], return_counts=True)
    whole = len(labels) <= most and bool((np.isfinite(labels) & (labels == np.floor(labels))).all())
    return (labels, counts) if whole and float(np.abs(labels).max(initial=0.0)) < most else None


def taken(values: Float64Array, rows: Int32Array) -> Float64Array:
    return values[..., rows]


# --- which value is whose: rows stand node after node, and within a node shard after shard -------------------------


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


def window_by_shard(by_shard: Int64Array, low: int, high: int) -> tuple[Int64Array, Int64Array]:
    """The places low .. high of the list of all rows: how many of a node's each shard skips and takes."""
    before = _begins(by_shard)
    first, last = (np.clip(edge - before, 0, by_shard) for edge in (low, high))
    return first, last - first


def _begins(by_shard: Int64Array) -> Int64Array:
    """Where in the list of all rows those begin that a shard has of a node: (shards, nodes)."""
    counts = by_shard.sum(axis=0)
    return by_shard.cumsum(axis=0) - by_shard + counts.cumsum() - counts
