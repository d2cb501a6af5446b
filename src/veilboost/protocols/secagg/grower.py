"""Trees grown level by level from sums alone: the same trees that `plain` grows from rows."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from veilboost.boost.columns import ColumnBlock, Rule, in_all_columns
from veilboost.boost.grower import Choices, Level, LevelSums, best_choices
from veilboost.boost.objective import Objective
from veilboost.boost.rows import RowGroups
from veilboost.boost.split import Candidates, candidates_from_sums, leaf_weights
from veilboost.boost.stumps import bins_of
from veilboost.boost.tree import Forest, Tree
from veilboost.config import TrainingConfig
from veilboost.fixedpoint import Scale
from veilboost.types import Float32Array, Int32Array, Int64Array

_NO_INTS = np.empty(0, dtype=np.int32)
_NO_WEIGHTS = np.empty(0, dtype=np.float32)


class Told(NamedTuple):
    """What participants are told of a level, in the order of a request's fields."""

    leaves: Int32Array
    weights: Float32Array
    position: Int32Array
    handles: Int32Array
    set_starts: Int32Array
    set_bins: Int32Array
    ends: Float32Array

    @staticmethod
    def nothing() -> Told:
        return Told(_NO_INTS, _NO_WEIGHTS, _NO_INTS, _NO_INTS, np.zeros(1, dtype=np.int32), _NO_INTS, _NO_WEIGHTS)


class Grower:
    """The trees so far, and the level that is being decided. The block knows cuts and no rows."""

    def __init__(self, block: ColumnBlock, objective: Objective, config: TrainingConfig, threads: int) -> None:
        self._all, self.block = block, block
        self._trees_per_round = objective.trees_per_round
        self._config, self._threads = config, threads
        # As in `plain`: what Poisson limits its leaves to belongs to the loss.
        self._limited = replace(config, max_delta_step=objective.max_delta_step)
        self.trees: list[Tree] = []
        self.rules: dict[tuple[int, int], Rule] = {}

    def keep(self, rounds: int) -> None:
        """Let go of all trees after so many rounds."""
        trees = rounds * self._trees_per_round
        self.trees = self.trees[:trees]
        self.rules = {key: rule for key, rule in self.rules.items() if key[0] < trees}

    def begin(self, columns: Int32Array | None, scale: Scale) -> Int64Array:
        """Start a round; returns the nodes to sum: its roots."""
        self._columns, self._scale = columns, scale
        self.block = self._all if columns is None else self._all.subset(columns)
        self._forest, self._sums = Forest(self._trees_per_round), LevelSums()
        roots = np.arange(self._trees_per_round, dtype=np.int64)
        totals = np.zeros((len(roots), 2), dtype=np.int64)  # known with the first sums
        self._level = _level(0, roots.astype(np.int32) * 0, roots.astype(np.int32), totals, roots, roots)
        return roots

    def level(self, depth: int, built: Int64Array) -> tuple[Told, Int64Array | None]:
        """Decide a level from the sums of the nodes asked for; returns what to tell and which nodes to sum next."""
        level = self._level
        if depth == 0:  # every row lies in one bin of the first column
            totals = built[:, : self.block.layout.offsets[1]].sum(axis=1)
            level = _level(0, level.node, level.fit.group, totals, level.build[self._may_split(totals)], level.build)
        sums = self._sums.complete(level, built)
        offer = candidates_from_sums(
            sums, self.block.layout, level.totals[level.open], self._scale, self._limited, self._threads
        )
        choices = best_choices(level, [offer], self._config.gamma)
        weights = self._weights(level.totals)
        weights[choices.position] = 0.0
        told, left_totals = self._split(level, offer, choices, sums, weights)
        children = self._note(level, weights, choices)
        if not len(choices.position):
            return told, self._end()
        totals = np.empty((2 * len(left_totals), 2), dtype=np.int64)
        totals[0::2], totals[1::2] = left_totals, level.totals[choices.position] - left_totals
        return self._next(level, choices, children, totals, told)

    def _next(
        self, level: Level, choices: Choices, children: Int32Array, totals: Int64Array, told: Told
    ) -> tuple[Told, Int64Array | None]:
        group = level.fit.group[choices.position].repeat(2)
        may_split = np.zeros(len(totals), dtype=np.bool_)
        if level.depth + 1 < self._config.max_depth:
            may_split = self._may_split(totals)
        # Of two siblings one is summed; the other is what the parent has left.
        smaller = np.arange(0, len(totals), 2) + (totals[1::2, 1] < totals[0::2, 1])
        larger = smaller ^ 1
        build = smaller[may_split[smaller] | may_split[larger]]
        derive = larger[may_split[larger]]
        parent = choices.position[derive // 2]
        every = np.flatnonzero(may_split)
        self._level = _level(level.depth + 1, children, group, totals, every, build, derive, parent)
        if len(every):
            return told, build
        ends = self._weights(totals)
        none = np.empty(0, dtype=np.int64)
        self._note(self._level, ends, Choices(none, none.astype(np.int32), np.empty(0), none.astype(np.int32)))
        return told._replace(ends=ends), self._end()

    def _end(self) -> None:
        self.trees.extend(self._forest.trees())

    def _note(self, level: Level, weights: Float32Array, choices: Choices) -> Int32Array:
        cover = level.totals[:, 1].astype(np.float64) * self._scale.h_unit
        return self._forest.note_level(level.fit.group, cover, weights, choices.position, choices.owner, choices.gain)

    def _split(
        self, level: Level, offer: Candidates, choices: Choices, sums: Int64Array, weights: Float32Array
    ) -> tuple[Told, Int64Array]:
        """What to tell of the chosen splits, whose rules are kept, and the sums of their left children."""
        position, handles, layout = choices.position, choices.handle, self.block.layout
        at = level.open.searchsorted(position)
        sets = offer.left_sets(at, handles) if layout.has_sets else [_NO_INTS] * len(handles)
        splits = self.block.splits_of(handles, sets)
        rules = self.block.rules_of(splits, bins_of(self.block), position)
        trees = len(self.trees) + level.fit.group[position]
        for key, rule in zip(zip(trees.tolist(), level.node[position].tolist(), strict=True), rules, strict=True):
            self.rules[key] = in_all_columns(rule, self._columns)
        left = np.zeros((len(position), 2), dtype=np.int64)
        for k, feature in enumerate(splits.feature.tolist()):
            begin, end = int(layout.offsets[feature]), int(layout.offsets[feature + 1])
            left[k] = sums[at[k], begin:end][splits.left[k, : end - begin] == 1].sum(axis=0)
        leaves = np.setdiff1d(np.arange(level.fit.nodes), position)
        starts = np.concatenate(([0], np.cumsum([len(each) for each in sets]))).astype(np.int32)
        told = Told(
            leaves=leaves.astype(np.int32),
            weights=weights[leaves],
            position=position.astype(np.int32),
            handles=handles,
            set_starts=starts,
            set_bins=np.concatenate([_NO_INTS, *sets]).astype(np.int32),
            ends=_NO_WEIGHTS,
        )
        return told, left

    def _weights(self, totals: Int64Array) -> Float32Array:
        return (self._config.learning_rate * leaf_weights(totals, self._scale, self._limited)).astype(np.float32)

    def _may_split(self, totals: Int64Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Twice the least hessian; that two children need two rows follows, for a child without rows has none."""
        return totals[:, 1] * self._scale.h_unit >= 2 * self._config.min_child_weight


def _level(
    depth: int,
    node: Int32Array,
    group: Int32Array,
    totals: Int64Array,
    may_split: Int64Array,
    build: Int64Array,
    derive: Int64Array | None = None,
    parent: Int64Array | None = None,
) -> Level:
    """A level without rows."""
    nowhere = np.zeros(len(group), dtype=np.int64)
    rows = RowGroups(_NO_INTS, nowhere, nowhere, group)
    none = nowhere[:0]
    return Level(
        depth, node, rows, rows, totals, may_split, build, none if derive is None else derive,
        none if parent is None else parent,
    )  # fmt: skip
