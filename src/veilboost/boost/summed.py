"""Trees from sums alone: whoever grows them knows the sums of nodes per bin, and no row's gradient."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from veilboost.boost.columns import ColumnBlock, Rule, Splits, in_all_columns
from veilboost.boost.grower import Choices, Level, LevelSums, Round, SplitFinder, best_choices
from veilboost.boost.rows import RowGroups
from veilboost.boost.sides import Sides
from veilboost.boost.split import Candidates, candidates_from_sums, leaf_weights, left_sums
from veilboost.config import TrainingConfig
from veilboost.fixedpoint import Scale
from veilboost.types import AnyArray, Float32Array, Float64Array, Int32Array, Int64Array

_NO_ROWS = np.empty(0, dtype=np.int32)
_NO_BITS = np.empty(0, dtype=np.uint8)


@dataclass(frozen=True)
class SummedNodes(RowGroups):
    """Nodes without rows. How many rows a node has is not known: its hessians stand for them, two at least."""

    sums: Int64Array

    @staticmethod
    def make(group: Int32Array, sums: Int64Array, counts: Int64Array) -> SummedNodes:
        return SummedNodes(_NO_ROWS, np.zeros(len(group), dtype=np.int64), counts, group, sums)

    def of(self, nodes: Int64Array) -> SummedNodes:
        return SummedNodes.make(self.group[nodes], self.sums[nodes], self.end[nodes])

    def split(self, left: Sides) -> SummedNodes:
        """The children; `left` are the sums of the left ones, as `SumsFinder.split` gives them."""
        sums = np.empty((2 * self.nodes, 2), dtype=np.int64)
        sums[0::2], sums[1::2] = left, self.sums - left
        return SummedNodes.make(self.group.repeat(2), sums, np.maximum(sums[:, 1], 2))

    def totals(self, gradients: Int32Array) -> Int64Array:
        return self.sums

    def add_to(self, margin: Float64Array, weight: Float32Array) -> None:
        """Nothing: the rows are elsewhere, and `SumsFinder.closed` tells them."""


class SumsFinder(SplitFinder):
    """Finds splits of pooled columns from sums. `block` has the cuts of the columns that take part in the round."""

    def __init__(self, block: ColumnBlock, trees_per_round: int, config: TrainingConfig, threads: int) -> None:
        self._all, self.block, self._trees = block, block, trees_per_round
        self._config, self._threads = config, threads
        self.rules: dict[tuple[int, int], Rule] = {}

    @property
    def derives_siblings(self) -> bool:
        return True

    # --- what is known elsewhere --------------------------------------------------------------------------

    @abstractmethod
    def node_sums(self, start: Round, depth: int, build: Int64Array) -> Int64Array:
        """Sums of (g, h) of these nodes of a level: (nodes, slots, 2)."""

    @abstractmethod
    def chosen(self, choices: Choices, sets: Sequence[Int32Array], splits: Splits) -> None:
        """These nodes of the level split."""

    @abstractmethod
    def closed(self, level: Level, leaves: Int64Array, weights: Float32Array) -> None:
        """These nodes are leaves and weigh so much."""

    # --- the round ----------------------------------------------------------------------------------------

    def round(self, number: int, scale: Scale, columns: Int32Array | None) -> Round:
        """What `grow` starts from: no rows, and roots whose sums `begin_round` finds."""
        nothing = np.empty((self._trees, 0, 2), dtype=np.int32)
        return Round(number, nothing, scale, cast(Int32Array, self), _NO_ROWS, [columns])

    def begin_round(self, start: Round) -> None:
        self._start, (columns,) = start, start.columns
        self.block = self._all if columns is None else self._all.subset(columns)
        self._sums = LevelSums()
        self._built = self.node_sums(start, 0, np.arange(self._trees, dtype=np.int64))

    def at_roots(self, groups: int) -> SummedNodes:
        totals = self._built[:, : self.block.layout.offsets[1]].sum(axis=1)  # every row is in one bin of a column
        rows = np.full(groups, self.block.rows or 2, dtype=np.int64)
        return SummedNodes.make(np.arange(groups, dtype=np.int32), totals, rows)

    def candidates(self, level: Level) -> Sequence[Candidates]:
        if level.depth:
            self._built = self.node_sums(self._start, level.depth, level.build)
        self._known = self._sums.complete(level, self._built)
        totals, scale = level.totals[level.open], self._start.scale
        return [candidates_from_sums(self._known, self.block.layout, totals, scale, self._config, self._threads)]

    def select(self, level: Level, offers: Sequence[Candidates]) -> Choices:
        return best_choices(level, offers, self._config.gamma)

    def split(self, level: Level, offers: Sequence[Candidates], choices: Choices) -> tuple[Sides, Sides]:
        position, handles, layout = choices.position, choices.handle, self.block.layout
        at = level.open.searchsorted(position)
        sets = offers[0].left_sets(at, handles) if layout.has_sets else []
        splits = self.block.splits_of(handles, sets)
        rules = self.block.rules_of(splits, self.block.shared_bins, position)
        trees = self._start.number * self._trees + level.fit.group[position]
        for key, rule in zip(zip(trees.tolist(), level.node[position].tolist(), strict=True), rules, strict=True):
            self.rules[key] = in_all_columns(rule, self._start.columns[0])
        self.chosen(choices, sets, splits)
        left: AnyArray = left_sums(self._known, layout, at, handles, sets)[0]
        return left, _NO_BITS

    def leaf_weights(self, level: Level, leaves: Int64Array, scale: Scale) -> Float64Array:
        weights = leaf_weights(level.totals[leaves], scale, self._config)
        self.closed(level, leaves, (self._config.learning_rate * weights).astype(np.float32))
        return weights
