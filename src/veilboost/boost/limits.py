"""Limits of the splits of a round: columns sampled by level, monotone constraints and interaction constraints.

`RoundLimits` follows the nodes of the round's trees from level to level. Semantics are XGBoost's:

- Monotone: a split by a constrained column is a candidate only if the weights of its children have the right order, or
  if it divides present from missing values. Children get the midpoint of their weights as a bound in that direction,
  and every weight stays within the bounds that its node inherits.
- Interaction: a node may split by the columns on its path, and by those of every set that contains the whole path.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from veilboost.boost.grower import Choices, Level
from veilboost.boost.split import NO_LIMITS, SplitLimits, leaf_weights
from veilboost.config import TrainingConfig
from veilboost.fixedpoint import Scale
from veilboost.types import BoolArray, Float64Array, Int8Array, Int32Array, Int64Array, UInt8Array


@dataclass(frozen=True)
class ColumnConstraints:
    """Constraints of one owner's columns.

    `direction` is 1, -1 or 0 for each column. `sets` are columns that may interact, in increasing order, by the name
    of the set; None: the owner declares no sets.
    """

    direction: Int8Array
    sets: Mapping[str, Int32Array] | None = None

    @staticmethod
    def none(features: int) -> ColumnConstraints:
        return ColumnConstraints(np.zeros(features, dtype=np.int8))

    @property
    def is_free(self) -> bool:
        """Whether there are no constraints."""
        return self.sets is None and not self.direction.any()

    def membership(self, names: Sequence[str]) -> BoolArray:
        """Whether a set (row) contains a column."""
        member = np.zeros((len(names), len(self.direction)), dtype=np.bool_)
        for row, name in zip(member, names, strict=True):
            row[(self.sets or {}).get(name, [])] = True
        return member

    def subset(self, columns: Int32Array | None) -> ColumnConstraints:
        """The constraints of these columns, numbered anew; None: all of them."""
        if columns is None:
            return self
        sets = None
        if self.sets is not None:
            sets = {name: np.flatnonzero(np.isin(columns, own)).astype(np.int32) for name, own in self.sets.items()}
        return ColumnConstraints(self.direction[columns], sets)


class RoundLimits:
    """The limits of one round, with the columns of the round numbered anew.

    `levels` are the columns that each owner's splits of a level may use (`level_columns`); None: all of them.
    """

    def __init__(
        self,
        levels: Sequence[UInt8Array] | None,
        constraints: Sequence[ColumnConstraints],
        trees: int,
        scale: Scale,
        config: TrainingConfig,
    ) -> None:
        self.levels, self._scale, self._config = levels, scale, config
        self._direction = [each.direction for each in constraints]
        self.is_monotone = any(each.any() for each in self._direction)
        self.is_interacting = any(each.sets is not None for each in constraints)
        self._member = _memberships(constraints) if self.is_interacting else []
        # Of the nodes of a level: bounds of weights, the sets that contain the path, and the columns of the path.
        self._depth: int = 0
        self._bounds = np.tile([-np.inf, np.inf], (trees, 1))
        self._alive = np.ones((trees, len(self._member[0]) if self._member else 0), dtype=np.bool_)
        self._path = [np.zeros((trees, member.shape[1]), dtype=np.bool_) for member in self._member]
        self._split: tuple[Choices, Int32Array] | None = None

    @property
    def follows_paths(self) -> bool:
        """Whether limits depend on the columns by which the nodes above were split."""
        return self.is_monotone or self.is_interacting

    def split(self, choices: Choices, feature: Int32Array) -> None:
        """The nodes of the level split, each by this column of its owner."""
        self._split = choices, feature

    def of(self, owner: int, level: Level) -> SplitLimits:
        """The limits of one owner's splits at the open nodes of a level."""
        self._enter(level)
        allowed = NO_LIMITS.allowed
        if self.is_interacting and level.depth:  # the root may use all columns
            together = self._alive[level.open] @ self._member[owner]
            allowed = (together | self._path[owner][level.open]).astype(np.uint8)
        if self.levels is not None:
            drawn = self.levels[owner][level.depth]
            allowed = allowed & drawn if allowed.size else drawn[None].repeat(len(level.open), axis=0)
        if not self.is_monotone:
            return SplitLimits(allowed)
        return SplitLimits(allowed, self._direction[owner], self._bounds[level.open])

    def bounded(self, level: Level, nodes: Int64Array, weights: Float64Array) -> Float64Array:
        """These weights of nodes of a level, within the bounds of the nodes."""
        if not self.is_monotone:
            return weights
        self._enter(level)
        return weights.clip(*self._bounds[nodes].T)

    def _enter(self, level: Level) -> None:
        """Go on to a level, whose nodes are the left and right children of those that were split."""
        if level.depth == self._depth or self._split is None:
            return
        choices, feature = self._split
        self._split = None
        self._depth = level.depth
        parents: Int64Array = choices.position.repeat(2)
        if self.is_monotone:
            bounds = self._bounds[parents]
            weights = leaf_weights(level.totals, self._scale, self._config).clip(*bounds.T)
            way = np.array([self._direction[k][f] for k, f in zip(choices.owner, feature, strict=True)], dtype=np.int8)
            # A split between present and missing values has the weights of its children in any order.
            left, right = weights[0::2], weights[1::2]
            rising = (way != 0) & ((left < right) | ((left == right) & (way > 0)))
            falling = (way != 0) & ~rising
            middle = (left + right) / 2
            bounds[0::2, 1][rising] = bounds[1::2, 0][rising] = middle[rising]
            bounds[0::2, 0][falling] = bounds[1::2, 1][falling] = middle[falling]
            self._bounds = bounds
        if self.is_interacting:
            self._alive, self._path = self._alive[parents], [path[parents] for path in self._path]
            for at, (owner, column) in enumerate(zip(choices.owner.tolist(), feature.tolist(), strict=True)):
                children = slice(2 * at, 2 * at + 2)
                self._alive[children] &= self._member[owner][:, column]
                self._path[owner][children, column] = True


def _memberships(constraints: Sequence[ColumnConstraints]) -> list[BoolArray]:
    """For each owner, whether a set (row) contains a column. Columns of owners without sets form one more set."""
    names = sorted({name for each in constraints for name in each.sets or ()})
    member: list[BoolArray] = []
    for each in constraints:
        rest = np.full((1, len(each.direction)), each.sets is None, dtype=np.bool_)
        member.append(np.concatenate((each.membership(names), rest)))
    return member


def round_limits(
    constraints: Sequence[ColumnConstraints], number: int, trees: int, scale: Scale, config: TrainingConfig
) -> RoundLimits | None:
    """The limits of a round with these columns of each owner; None if there are none."""
    if config.colsample_bylevel >= 1.0 and all(each.is_free for each in constraints):
        return None
    levels = level_columns([len(each.direction) for each in constraints], number, config)
    return RoundLimits(levels, constraints, trees, scale, config)


def level_columns(features: Sequence[int], number: int, config: TrainingConfig) -> list[UInt8Array] | None:
    """For each owner, 1 where a level (row) may split by a column of the round; None: every level may use all.

    The columns of a level are drawn from those of all owners in the job's order, for all nodes and trees of the round.
    """
    if config.colsample_bylevel >= 1.0:
        return None
    total = sum(features)
    count = max(1, int(config.colsample_bylevel * total))
    generator = np.random.Generator(np.random.PCG64((config.random_state, number, 2)))
    drawn = np.zeros((config.max_depth, total), dtype=np.uint8)
    for level in drawn:
        level[generator.permutation(total)[:count]] = 1
    edges = np.concatenate(([0], np.cumsum(features)))
    return [np.ascontiguousarray(drawn[:, low:high]) for low, high in itertools.pairwise(edges)]
