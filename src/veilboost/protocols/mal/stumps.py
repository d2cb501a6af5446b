"""Boosted trees of depth 1 from rows' bins and sums of their labels: single labels are never needed.

The gradients of the losses here are an increasing function of the margin less the label, and their hessians do not
depend on the label. So a bin's sum of gradients is the sum of what its rows' margins give, less the sum of its rows'
labels, and the latter is the same in every round.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from veilboost import _native
from veilboost.boost.booster import RoundResult, Watcher
from veilboost.boost.columns import ColumnBlock, Rule, Splits
from veilboost.boost.grower import Choices, Level, Round, grow
from veilboost.boost.objective import Objective
from veilboost.boost.rows import RowGroups
from veilboost.boost.sampling import sample_columns
from veilboost.boost.summed import SumsFinder
from veilboost.boost.tree import Tree
from veilboost.config import TrainingConfig
from veilboost.fixedpoint import MAX_BITS, Scale, choose_scale, to_fixed
from veilboost.types import AnyArray, Float32Array, Float64Array, Int32Array, Int64Array

LOSSES = ("binary", "multiclass", "regression")
MOST_CELLS = 1 << 10  # of a couple: all couples' words together should stay in the first cache
MOST_BITS = 22  # of gradients: with more, words overflow after so few rows that nothing is won


@dataclass(frozen=True)
class Stumps:
    """Trees of one split each (or none), their rules by (tree, node 0), and how training went."""

    trees: Sequence[Tree]
    rules: dict[tuple[int, int], Rule]
    history: Sequence[RoundResult]


def train_stumps(
    block: ColumnBlock,
    label_sums: Float64Array,
    base: Float64Array,
    objective: Objective,
    config: TrainingConfig,
    threads: int = 1,
    watcher: Watcher | None = None,
) -> Stumps:
    """Boost `config.n_estimators` rounds.

    Parameters
    ----------
    block
        The rows' bins; values are not looked at.
    label_sums
        Sum of the labels in every slot of the block's layout, (K, slots); for several classes, how many rows of the
        slot are of each.
    base
        The margin before the first tree, (K,).
    """
    finder = StumpFinder(block, label_sums, base, objective, config, threads)
    trees: list[Tree] = []
    history: list[RoundResult] = []
    for number in range(config.n_estimators):
        began = time.perf_counter()
        columns = sample_columns([block.layout.features], number, config)[0]
        start = finder.round(number, finder.update_gradients(), columns)
        trees += grow(finder, start, config, np.empty((len(base), 0)))
        history.append(RoundResult(number, time.perf_counter() - began, None))
        if watcher is not None:
            watcher(history[-1])
    return Stumps(trees, finder.rules, history)


class StumpFinder(SumsFinder):
    """The rows, their margins and the sums of their labels: MAL Alg. 3, lines 3 to 12, for every class."""

    def __init__(
        self,
        block: ColumnBlock,
        label_sums: Float64Array,
        base: Float64Array,
        objective: Objective,
        config: TrainingConfig,
        threads: int,
    ) -> None:
        super().__init__(block, len(base), config, threads)
        self._offsets, self._label_sums, self._objective = block.layout.offsets, label_sums, objective
        counts = np.concatenate([np.bincount(column, minlength=width) for column, width in _columns(block)])
        self._label_size = float((np.abs(label_sums) / np.maximum(counts, 1)).max(initial=0.0))
        self._margin = np.repeat(base[:, None], block.rows, axis=1)
        self._gradients = np.empty((*self._margin.shape, 2), dtype=np.int32)
        self._roots = RowGroups.root(np.arange(block.rows, dtype=np.int32), len(base))
        # A label that is no class, and for numbers is zero: what is left of g is what the margin alone gives.
        self._unlabelled = np.full(block.rows, -1.0 if objective.name == "multiclass" else 0.0)
        # What is left of g is then a probability: never negative.
        quick = objective.name in ("binary", "multiclass") and config.gradient_bits <= MOST_BITS
        quick = quick and config.colsample_bytree == 1.0
        self._couples = Couples(block, block.shared_bins.bins[0]) if quick else None

    def node_sums(self, start: Round, depth: int, build: Int64Array) -> Int64Array:
        if self._couples is not None:
            sums = self._couples.sums(self._gradients, self._config.gradient_bits, self._threads)
        else:
            sums = self.block.histogram(self.block.shared_bins, self._gradients, self._roots)
        labels = self._label_sums
        if start.columns[0] is not None:
            spans = [slice(self._offsets[f], self._offsets[f + 1]) for f in start.columns[0].tolist()]
            labels = np.concatenate([labels[:, span] for span in spans], axis=1)
        sums[..., 0] -= np.rint(labels / start.scale.g_unit).astype(np.int64)
        return sums

    def chosen(self, choices: Choices, sets: Sequence[Int32Array], splits: Splits) -> None:
        self._splits = choices.position.tolist(), splits

    def closed(self, level: Level, leaves: Int64Array, weights: Float32Array) -> None:
        """Move the margins of the rows: of whole trees, or left and right of their split."""
        if level.depth == 0:
            for tree, weight in zip(leaves.tolist(), weights, strict=True):
                self._margin[tree] += weight
            return
        (trees, splits), bins = self._splits, self.block.shared_bins.bins[0]
        kernel = _native.add_by_bin_u8 if bins.dtype == np.uint8 else _native.add_by_bin_u16
        for at, tree in enumerate(trees):
            feature = int(splits.feature[at])
            left = splits.left[at, : int(self.block.layout.widths[feature])].astype(np.int64)
            step = weights[2 * at : 2 * at + 2].astype(np.float64)[1 - left]
            kernel(bins, feature, step, self._margin[tree], self._threads)  # pyright: ignore[reportArgumentType, reportCallIssue]

    def update_gradients(self) -> Scale:
        """What the margins alone give of g, and h, on the grid."""
        objective = self._objective
        if objective.name == "binary" and objective.order == "second":
            scale = choose_scale(1.0, 0.25, 1.0, self._config.gradient_bits)
            _native.logistic_pairs(
                self._margin[0], self._gradients[0], 1.0 / scale.g_unit, 1.0 / scale.h_unit, self._threads
            )
            return scale
        g, h = objective.gradients(self._margin, self._unlabelled, None)
        g_bound, h_bound = objective.bounds(1.0, g, h)
        bits = self._config.gradient_bits
        if objective.name == "regression":  # margins alone say little about the size of labels
            g_bound, bits = max(g_bound, self._label_size), MAX_BITS
        scale = choose_scale(g_bound, h_bound, 1.0, bits)
        self._gradients = to_fixed(g, h, scale)
        return scale


class Couples:
    """Columns taken two at a time, where every round sums all rows: half the additions, to the same sums."""

    def __init__(self, block: ColumnBlock, bins: AnyArray) -> None:
        widths: list[int] = block.layout.widths.tolist()
        self._slots = block.layout.slots
        found: list[tuple[int, int]] = []
        cells: list[AnyArray] = []
        at = 0
        while at < len(widths):
            together = at + 1 < len(widths) and widths[at] * widths[at + 1] <= MOST_CELLS
            own = bins[:, at].astype(np.uint16)
            if (own >= widths[at]).any() or (together and (bins[:, at + 1] >= widths[at + 1]).any()):
                raise IndexError("a row lies in a bin that its column has not")
            cells.append(own * np.uint16(widths[at + 1]) + bins[:, at + 1] if together else own)
            found.append((widths[at], widths[at + 1] if together else 0))
            at += 2 if together else 1
        self._cells = np.stack(cells, axis=1).astype(np.uint16)
        self._widths = np.array(found, dtype=np.int32)

    def sums(self, gradients: Int32Array, bits: int, threads: int) -> Int64Array:
        """Sums of (g, h) per tree and slot, (trees, slots, 2), of values that are not negative and fit these bits."""
        out = np.empty((len(gradients), self._slots, 2), dtype=np.int64)
        for tree, pairs in enumerate(gradients):
            _native.couple_sums(self._cells, self._widths, pairs, bits, out[tree], threads)
        return out


def _columns(block: ColumnBlock) -> Iterator[tuple[AnyArray, int]]:
    """Every column's bins, and how many there are."""
    return zip(block.shared_bins.bins[0].T, block.layout.widths.tolist(), strict=True)


def sums_by_slot(block: ColumnBlock, values: Float64Array) -> Float64Array:
    """Sums of (K, rows) values over the rows of every slot: (K, slots)."""
    sums = np.empty((len(values), block.layout.slots))
    for at, row in enumerate(values):
        sums[at] = np.concatenate([np.bincount(column, row, width) for column, width in _columns(block)])
    return sums
