"""Gains of candidate splits and weights of leaves. Formulas as in XGBoost: the loss reduction has no factor 1/2."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from veilboost import _native
from veilboost.boost.bins import NO_SETS, BinLayout, Sets
from veilboost.config import TrainingConfig
from veilboost.fixedpoint import Scale
from veilboost.types import Float64Array, Int8Array, Int32Array, Int64Array, UInt8Array

LEAST_GAIN = 1e-6  # XGBoost's kRtEps: below it a split is rounding noise


@dataclass(frozen=True)
class SplitLimits:
    """Limits of one owner's splits at the nodes that are scored.

    `allowed` (nodes, features) is 0 where a node may not use a feature; empty: it may use all. With monotone
    constraints, `bounds` (nodes, 2) are the least and the largest weight of a node's children, and `direction` is 1 for
    a feature by whose splits weights may not fall from left to right, -1 if they may not rise, else 0.
    """

    allowed: UInt8Array
    direction: Int8Array = field(default_factory=lambda: _NO_DIRECTION)
    bounds: Float64Array = field(default_factory=lambda: _NO_BOUNDS)


_NO_DIRECTION, _NO_BOUNDS = np.empty(0, dtype=np.int8), np.empty((0, 2))
NO_LIMITS = SplitLimits(np.empty((0, 0), dtype=np.uint8))


@dataclass(eq=False)
class Candidates:
    """One owner's candidate splits for the nodes of a level.

    Candidates are identified by handles; `best_handle` and `best_gain` are the first best of each node. For features
    split by sets, `order[node, slot]` lists a feature's bins by weight: handle c means its first c + 1 bins. `gain`, if
    a protocol needs it, has a row per node and a column per handle, and is minus infinity where there is no candidate.
    `shuffled`: the handles are not in the owner's own order of columns and cuts.
    """

    best_handle: Int32Array
    best_gain: Float64Array
    order: Int32Array | None = None
    layout: BinLayout | None = None
    gain: Float64Array | None = None
    shuffled: bool = False

    @staticmethod
    def none(nodes: int) -> Candidates:
        """No candidates for any of `nodes` nodes."""
        return Candidates(np.zeros(nodes, dtype=np.int32), np.full(nodes, -np.inf))

    def tied_with(self, node: int, handle: int) -> Int32Array:
        """All handles of a node with the same gain as this one, in order; needs `gain`."""
        if self.gain is None:
            return np.array([handle], dtype=np.int32)
        row = self.gain[node]
        return np.flatnonzero(row == row[handle]).astype(np.int32)

    def left_sets(self, nodes: Int64Array, handles: Int32Array) -> Sets:
        """The bins that go left at each (node, handle)."""
        if self.order is None or self.layout is None or not self.layout.has_sets:
            return NO_SETS
        layout, starts = self.layout, np.empty(len(handles) + 1, dtype=np.int32)
        bins = np.empty(len(handles) * layout.widest, dtype=np.int32)
        parts = layout.offsets, layout.missing, layout.kind
        return Sets(starts, bins[: _native.left_sets(self.order, nodes, handles, *parts, starts, bins)])


def candidates_from_sums(
    sums: Int64Array,
    layout: BinLayout,
    totals: Int64Array,
    scale: Scale,
    config: TrainingConfig,
    threads: int = 1,
    keep_gains: bool = False,
    open: Int64Array | None = None,
    limits: SplitLimits = NO_LIMITS,
) -> Candidates:
    """Score every candidate of every node from exact bin sums (nodes, slots, 2) and node totals (nodes, 2).

    With `open`, only of these nodes, in this order; `limits` are those of these nodes.
    """
    open = np.arange(len(sums)) if open is None else open
    nodes, slots = len(open), layout.slots
    gain = np.empty((nodes if keep_gains else 0, slots, 2), dtype=np.float64)
    order = np.empty((nodes, slots), dtype=np.int32)
    best_handle, best_gain = np.empty(nodes, dtype=np.int32), np.empty(nodes, dtype=np.float64)
    _native.split_gains(
        sums,
        layout.offsets,
        layout.missing,
        layout.kind,
        totals,
        open,
        scale.g_unit,
        scale.h_unit,
        config.reg_lambda,
        config.reg_alpha,
        config.min_child_weight,
        config.max_delta_step,
        limits.allowed,
        limits.direction,
        limits.bounds,
        config.max_cat_threshold,
        gain,
        order,
        best_handle,
        best_gain,
        threads,
    )
    every = gain.reshape(nodes, 2 * slots) if keep_gains else None
    return Candidates(best_handle, best_gain, order, layout, every)


def left_sums(
    sums: Int64Array, layout: BinLayout, nodes: Int64Array, handles: Int32Array, sets: Sets = NO_SETS
) -> tuple[Int64Array, Int64Array]:
    """Sums of a candidate's left child, (handles, 2), from bin sums (nodes, slots, 2), and how many bins they are."""
    left, bins = np.empty((len(handles), 2), dtype=np.int64), np.empty(len(handles), dtype=np.int64)
    _native.left_sums(sums, layout.offsets, layout.missing, layout.kind, nodes, handles, *sets, left, bins)
    return left, bins


def leaf_weights(totals: Int64Array, scale: Scale, config: TrainingConfig) -> Float64Array:
    """w = -T(G) / (H + lambda) with T the soft threshold by alpha, limited to max_delta_step."""
    weights = np.empty(len(totals), dtype=np.float64)
    penalties = config.reg_lambda, config.reg_alpha, config.max_delta_step
    _native.leaf_weights(totals, scale.g_unit, scale.h_unit, *penalties, weights)
    return weights
