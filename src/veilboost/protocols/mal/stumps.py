"""Boosted trees of depth 1 from the bins of rows and sums of labels, without individual labels.

The gradients of these losses are an increasing function of the margin minus the label, and their hessians do not
depend on the label. So the sum of gradients of a bin is a sum over the margins of its rows minus the sum of their
labels, which is the same in every round. One split per tree needs no level loop: `boost/grower.py` would take twice as
long for a thousand rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from veilboost import _native
from veilboost.boost.booster import RoundResult, Watcher, sample_columns
from veilboost.boost.columns import ColumnBlock, Rule
from veilboost.boost.grower import LEAF, Tree
from veilboost.boost.objective import Objective
from veilboost.boost.rows import RowGroups
from veilboost.boost.split import LEAST_GAIN, candidates_from_sums, leaf_weights
from veilboost.config import TrainingConfig
from veilboost.fixedpoint import MAX_BITS, Scale, choose_scale, to_fixed
from veilboost.types import AnyArray, BoolArray, Float32Array, Float64Array, Int32Array, Int64Array

LOSSES = ("binary", "multiclass", "regression")
MOST_CELLS = 1 << 10  # of a pair, so that the words of all pairs stay in the first-level cache
MOST_BITS = 22  # of gradients; with more, words overflow after too few rows to gain anything


class Stumps:
    """Trees of one split each (or none), their rules by (tree, node 0), and the training history.

    They are boosted from the bins of `block` and the margin `base` (K,) before the first tree. `label_sums` (K, slots)
    holds the sum of labels of every slot, or the number of its rows in each class; rows count by `weight`, if any.
    """

    def __init__(
        self,
        block: ColumnBlock,
        label_sums: Float64Array,
        base: Float64Array,
        objective: Objective,
        config: TrainingConfig,
        threads: int = 1,
        weight: Float64Array | None = None,
    ) -> None:
        self.trees: list[Tree] = []
        self.rules: dict[tuple[int, int], Rule] = {}
        self.history: list[RoundResult] = []
        self._block, self._label_sums, self._margin = block, label_sums, np.repeat(base[:, None], block.rows, axis=1)
        self._objective, self._config, self._threads = objective, config, threads
        self._weight, self._weight_bound = weight, 1.0 if weight is None else float(weight.max(initial=0.0))
        counts = sums_by_slot(block, np.ones((1, block.rows)) if weight is None else weight[None, :])
        sizes = np.divide(np.abs(label_sums), counts, out=np.zeros_like(label_sums), where=counts > 0)
        self._label_size = float(sizes.max(initial=0.0))
        self._gradients = np.empty((*self._margin.shape, 2), dtype=np.int32)
        self._roots = RowGroups.root(np.arange(block.rows, dtype=np.int32), len(base))
        # With a label of no class, or zero for numbers, g depends on the margin alone.
        self._unlabelled = np.full(block.rows, -1.0 if objective.name == "multiclass" else 0.0)
        # This g is a probability, so it is never negative.
        quick = objective.name in ("binary", "multiclass") and config.gradient_bits <= MOST_BITS and weight is None
        self._pairs = (
            ColumnPairs(block, block.shared_bins.bins[0]) if quick and config.colsample_bytree == 1.0 else None
        )

    def train(self, watcher: Watcher | None = None) -> None:
        """Boost `config.n_estimators` rounds."""
        for number in range(self._config.n_estimators):
            started = time.perf_counter()
            self._grow(sample_columns([self._block.layout.features], number, self._config)[0])
            self.history.append(RoundResult(number, time.perf_counter() - started, None))
            if watcher is not None and watcher(self.history[-1]):
                break

    def _grow(self, columns: Int32Array | None) -> None:
        """Grow one round: MAL Alg. 3, lines 3 to 12, for every class."""
        config, scale = self._config, self._update_gradients()
        block, label_sums, trees = self._block, self._label_sums, self.trees
        if columns is not None:
            label_sums, block = _chosen(block, columns, label_sums), block.subset(columns)
        bins = block.shared_bins
        if self._pairs is not None:
            sums = self._pairs.sums(self._gradients, config.gradient_bits, self._threads)
        else:
            sums = block.histogram(bins, self._gradients, self._roots)
        sums[..., 0] -= np.rint(label_sums / scale.g_unit).astype(np.int64)
        whole = sums[:, : block.layout.offsets[1]].sum(axis=1)  # every row is in one slot of the first column
        offer = candidates_from_sums(sums, block.layout, whole, scale, config, self._threads)
        for tree in range(len(whole)):
            cover, gain = float(whole[tree, 1] * scale.h_unit), float(offer.best_gain[tree])
            if (
                block.rows < max(2, config.min_node_rows)
                or cover < 2 * config.min_child_weight
                or gain <= LEAST_GAIN
                or gain < config.gamma
            ):
                weight = self._weights(whole[tree : tree + 1], scale)
                trees.append(_leaf(weight, cover))
                self._margin[tree] += weight[0]
                continue
            handle = offer.best_handle[tree : tree + 1]
            split = block.splits_of(handle, offer.left_sets(np.array([tree]), handle))
            feature = int(split.feature[0])
            begin, width = int(block.layout.offsets[feature]), int(block.layout.widths[feature])
            left = split.left[0, :width] == 1
            at_left = sums[tree, begin : begin + width][left].sum(axis=0)
            children = np.stack((at_left, whole[tree] - at_left))
            weight = self._weights(children, scale)
            rule = block.rules_of(split, bins, np.zeros(1, dtype=np.int64)).in_all_columns(columns)
            self.rules[len(trees), 0] = rule.listed()[0]
            trees.append(_stump(weight, gain, cover, children[:, 1] * scale.h_unit))
            self._move(bins.bins[0], feature, left, weight, tree)

    def _weights(self, totals: Int64Array, scale: Scale) -> Float32Array:
        return (self._config.learning_rate * leaf_weights(totals, scale, self._config)).astype(np.float32)

    def _move(self, bins: AnyArray, feature: int, left: BoolArray, weight: Float32Array, tree: int) -> None:
        step = weight.astype(np.float64)[1 - left.astype(np.int64)]
        kernel: Any = _native.add_by_bin_u8 if bins.dtype == np.uint8 else _native.add_by_bin_u16
        kernel(bins, feature, step, self._margin[tree], self._threads)

    def _update_gradients(self) -> Scale:
        """Update h and the part of g that depends on the margins alone, on the grid."""
        objective = self._objective
        if objective.name == "binary" and objective.order == "second" and self._weight is None:
            scale = choose_scale(1.0, 0.25, 1.0, self._config.gradient_bits)
            _native.logistic_pairs(
                self._margin[0], self._gradients[0], 1.0 / scale.g_unit, 1.0 / scale.h_unit, self._threads
            )
            return scale
        g, h = objective.gradients(self._margin, self._unlabelled, None)
        g_bound, h_bound = objective.bounds(1.0, g, h)
        bits = self._config.gradient_bits
        if objective.name == "regression":  # margins alone do not bound the labels
            g_bound, bits = max(g_bound, self._label_size), MAX_BITS
        scale = choose_scale(g_bound, h_bound, self._weight_bound, bits)
        self._gradients = to_fixed(g, h, scale, self._weight)
        return scale


class ColumnPairs:
    """Pairs of columns, for rounds that sum all rows: half as many additions for the same sums."""

    def __init__(self, block: ColumnBlock, bins: AnyArray) -> None:
        widths: list[int] = block.layout.widths.tolist()
        self._slots = block.layout.slots
        found: list[tuple[int, int]] = []
        cells: list[AnyArray] = []
        at = 0
        while at < len(widths):
            paired = at + 1 < len(widths) and widths[at] * widths[at + 1] <= MOST_CELLS
            own = bins[:, at].astype(np.uint16)
            if (own >= widths[at]).any() or (paired and (bins[:, at + 1] >= widths[at + 1]).any()):
                raise IndexError("a row is in a bin that its column does not have")
            cells.append(own * np.uint16(widths[at + 1]) + bins[:, at + 1] if paired else own)
            found.append((widths[at], widths[at + 1] if paired else 0))
            at += 2 if paired else 1
        self._cells = np.stack(cells, axis=1).astype(np.uint16)
        self._widths = np.array(found, dtype=np.int32)

    def sums(self, gradients: Int32Array, bits: int, threads: int) -> Int64Array:
        """Sums of (g, h) per tree and slot, (trees, slots, 2), of values that are not negative and fit these bits."""
        out = np.empty((len(gradients), self._slots, 2), dtype=np.int64)
        for tree, pairs in enumerate(gradients):
            _native.pair_sums(self._cells, self._widths, pairs, bits, out[tree], threads)
        return out


def _columns(block: ColumnBlock) -> Iterator[tuple[AnyArray, int]]:
    """The bins of every column, and their number."""
    return zip(block.shared_bins.bins[0].T, block.layout.widths.tolist(), strict=True)


def sums_by_slot(block: ColumnBlock, values: Float64Array) -> Float64Array:
    """Return the sums (K, slots) of values (K, rows) over the rows of every slot."""
    sums = np.empty((len(values), block.layout.slots))
    for at, row in enumerate(values):
        sums[at] = np.concatenate([np.bincount(column, row, width) for column, width in _columns(block)])
    return sums


def _chosen(block: ColumnBlock, columns: Int32Array, label_sums: Float64Array) -> Float64Array:
    """The label sums of these columns' slots."""
    offsets = block.layout.offsets
    return np.concatenate([label_sums[:, offsets[f] : offsets[f + 1]] for f in columns.tolist()], axis=1)


def _leaf(weight: Float32Array, cover: float) -> Tree:
    none = np.array([LEAF], dtype=np.int32)
    return Tree(none, none.copy(), weight, np.zeros(1), np.array([cover]))


def _stump(weight: Float32Array, gain: float, cover: float, covers: Float64Array) -> Tree:
    return Tree(
        left=np.array([1, LEAF, LEAF], dtype=np.int32),
        owner=np.array([0, LEAF, LEAF], dtype=np.int32),
        weight=np.concatenate((np.zeros(1, dtype=np.float32), weight)),
        gain=np.array([gain, 0.0, 0.0]),
        cover=np.array([cover, covers[0], covers[1]]),
    )
