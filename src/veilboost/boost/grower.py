"""Grow one round of trees level by level. A `SplitFinder` provides the sums and the row assignments.

A tree here is a skeleton: the owner of each split and the leaf weights. Only the owners know the splits themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

import numpy as np

from veilboost import _native
from veilboost.boost.rows import NO_ROWS, RowGroups
from veilboost.boost.split import LEAST_GAIN, Candidates
from veilboost.config import TrainingConfig
from veilboost.fixedpoint import Scale
from veilboost.types import AnyArray, Float32Array, Float64Array, Int32Array, Int64Array

_NO_POSITIONS = np.empty(0, dtype=np.int64)
_NO_OWNERS = np.empty(0, dtype=np.int32)


LeafRule: TypeAlias = Callable[[RowGroups], Float64Array]


@dataclass(frozen=True)
class Round:
    """The input of a round: K trees grow in parallel on gradients (K, rows, 2).

    Sums are computed over `fit` rows; `routed` rows (not sampled, or held out for validation) are only routed.
    `columns[owner]` are the columns of each owner that take part, None for all. `leaves` computes the weights of leaves
    from their rows; None: the finder computes them from sums of gradients.
    """

    number: int
    gradients: Int32Array
    scale: Scale
    fit: Int32Array
    routed: Int32Array
    columns: Sequence[Int32Array | None]
    leaves: LeafRule | None = None

    @property
    def trees(self) -> int:
        return self.gradients.shape[0]


@dataclass(eq=False)
class Level:
    """The nodes that are decided together. `node` numbers them within their tree, `fit.group` is the tree.

    `open` are the positions that may split. Sums are computed for `build`; those of `derive` are the parent's
    (position `parent[i]` of the level above) minus the sibling's.
    """

    depth: int
    node: Int32Array
    fit: RowGroups
    routed: RowGroups
    totals: Int64Array
    open: Int64Array
    build: Int64Array
    derive: Int64Array
    parent: Int64Array

    def asking(self, open: Int64Array, build: Int64Array) -> Level:
        """The same level, of which others are asked for sums of the nodes `build`, which give those of `open`."""
        known = self.depth, self.node, self.fit, self.routed, self.totals
        return Level(*known, open, build, self.derive, self.parent)


@dataclass(eq=False)
class Choices:
    """The nodes that split: at `position`, by `owner`, with the lowest of the handles that reach the best gain."""

    position: Int64Array
    owner: Int32Array
    gain: Float64Array
    handle: Int32Array
    _by: dict[int, Int64Array] = field(default_factory=dict[int, Int64Array], init=False, repr=False)

    def owners(self) -> list[int]:
        """The owners that split a node, in order."""
        return sorted(set(self.owner.tolist()))

    def by(self, owner: int) -> Int64Array:
        """Which of these nodes this owner splits."""
        if owner not in self._by:
            self._by[owner] = (self.owner == owner).nonzero()[0]
        return self._by[owner]


class LevelSums:
    """One owner's sums of the level above: a sibling's sums are the parent's minus the node's."""

    def __init__(self) -> None:
        self._last = np.empty((0, 0, 2), dtype=np.int64)

    def complete(self, level: Level, built: Int64Array) -> Int64Array:
        """Sums of the level's nodes, shape (nodes, slots, 2), from those of `level.build`; valid for open nodes."""
        every = np.empty((level.fit.nodes, *built.shape[1:]), dtype=np.int64)
        _native.complete_sums(built, level.build, self._last, level.derive, level.parent, every)
        self._last = every
        return every


class SplitFinder(Protocol):
    """The interface between a growing tree and the owners of the columns."""

    threads: int = 1  # for work on rows

    @property
    def derives_siblings(self) -> bool:
        """Whether a sibling's sums can be derived from a node's."""
        ...

    def begin_round(self, start: Round) -> None: ...
    def candidates(self, level: Level) -> Sequence[Candidates]:
        """For each owner, in the job's order, a row per open node."""
        ...

    def select(self, level: Level, offers: Sequence[Candidates]) -> Choices: ...
    def split(self, level: Level, offers: Sequence[Candidates], choices: Choices) -> tuple[RowGroups, RowGroups]:
        """The fit rows and the routed rows of the chosen nodes' children: left and right child of each in turn."""
        ...

    def check_split(self, level: Level, choices: Choices, children: Level) -> None:
        """Check the assignments of the chosen nodes' rows against what is known about the splits; raise on mismatch."""

    def leaf_weights(self, level: Level, leaves: Int64Array, scale: Scale) -> Float64Array:
        """The weights of the leaves at these positions."""
        ...

    def end_round(self) -> None:
        """Called when all trees of the round are grown, before anything that depends on their leaves is sent."""

    def finished(self, tree: Tree) -> Tree:
        """A tree of the round as the model keeps it."""
        return tree


def best_choices(level: Level, offers: Sequence[Candidates], gamma: float) -> Choices:
    """The best candidate of each open node. Ties go to the first owner, and within an owner to the lowest handle."""
    nodes = len(level.open)
    position, owner = np.empty(nodes, dtype=np.int64), np.empty(nodes, dtype=np.int32)
    gain, handle = np.empty(nodes, dtype=np.float64), np.empty(nodes, dtype=np.int32)
    gains, handles = [offer.best_gain for offer in offers], [offer.best_handle for offer in offers]
    found = _native.best_offers(gains, handles, level.open, LEAST_GAIN, gamma, position, owner, gain, handle)
    return Choices(position[:found], owner[:found], gain[:found], handle[:found])


def grow(finder: SplitFinder, start: Round, config: TrainingConfig, margin: Float64Array) -> list[Tree]:
    """Grow the trees of one round and add their leaves to `margin` (K, rows)."""
    finder.begin_round(start)
    forest = Forest(start.trees)
    level = _first_level(start, config, finder.threads)
    while True:
        choices = None
        rows: tuple[RowGroups, RowGroups] = NO_ROWS, NO_ROWS
        if len(level.open):
            offers = finder.candidates(level)
            choices = finder.select(level, offers)
            if len(choices.position):
                rows = finder.split(level, offers, choices)
        position = _NO_POSITIONS if choices is None else choices.position
        weight = _close(level, position, finder, start, config, margin)
        children = forest.note_level(level, weight, choices)
        if choices is None or not len(position):
            finder.end_round()
            return [finder.finished(tree) for tree in forest.trees(start.scale)]
        parents = level
        level = _next_level(level, position, children, *rows, start, config, finder.derives_siblings)
        finder.check_split(parents, choices, level)


def _first_level(start: Round, config: TrainingConfig, threads: int) -> Level:
    fit = RowGroups.root(start.fit, start.trees, threads)
    routed = RowGroups.root(start.routed, start.trees, threads) if len(start.routed) else NO_ROWS
    totals = fit.totals(start.gradients)
    roots = np.arange(start.trees, dtype=np.int64)
    may_split = fit.counts >= max(2, config.min_node_rows)  # and below as in `plan_level`
    may_split &= totals[:, 1] * start.scale.h_unit >= 2 * config.min_child_weight
    return Level(
        depth=0,
        node=np.zeros(start.trees, dtype=np.int32),
        fit=fit,
        routed=routed,
        totals=totals,
        open=may_split.nonzero()[0],
        build=roots,
        derive=roots[:0],
        parent=roots[:0],
    )


def _next_level(
    level: Level,
    position: Int64Array,
    children: Int32Array,
    fit: RowGroups,
    routed: RowGroups,
    start: Round,
    config: TrainingConfig,
    derives_siblings: bool,
) -> Level:
    # Only the smaller of two siblings is summed; the other's sums are the parent's minus these.
    nodes = fit.nodes
    totals, plan = np.empty((nodes, 2), dtype=np.int64), np.empty((4, nodes), dtype=np.int64)
    summed = fit.smaller_totals(start.gradients)
    least = config.min_child_weight, config.min_node_rows, derives_siblings
    opened, built, derived = _native.plan_level(
        fit.counts, summed, level.totals, position, start.scale.h_unit, *least, totals, plan
    )
    if level.depth + 1 == config.max_depth:
        opened = built = derived = 0
    planned = plan[0, :opened], plan[1, :built], plan[2, :derived], plan[3, :derived]
    return Level(level.depth + 1, children, fit, routed, totals, *planned)


def rows_with_sibling(groups: RowGroups, depth: int) -> Int64Array:
    """The number of rows of each node of a level, or of its sibling if that has fewer. Roots have no sibling.

    A sibling's sums follow from those of the node and the parent, so `min_node_rows` applies to both.
    """
    counts = groups.counts
    return counts if depth == 0 else np.minimum(counts[0::2], counts[1::2]).repeat(2)


def _close(
    level: Level, split: Int64Array, finder: SplitFinder, start: Round, config: TrainingConfig, margin: Float64Array
) -> Float32Array:
    """Compute the weights of the leaves and add them to the margins of their rows.

    Weights are float32, as in exported models. Returns one for every node of the level, 0 for nodes that split.
    """
    weight = np.zeros(level.fit.nodes, dtype=np.float32)
    if len(split) < len(weight):
        splits = np.zeros(len(weight), dtype=np.bool_)
        splits[split] = True
        leaves = (~splits).nonzero()[0]
        rows = level.fit.of(leaves)
        given = finder.leaf_weights(level, leaves, start.scale) if start.leaves is None else start.leaves(rows)
        own = (config.learning_rate * given).astype(np.float32)
        weight[leaves] = own
        for groups in (rows, level.routed.of(leaves)):
            groups.add_to(margin, own)
    return weight


LEAF = -1


@dataclass(frozen=True)
class Tree:
    """Nodes in order of creation, the root first. `left` and `owner` are LEAF at leaves; right = left + 1."""

    left: Int32Array
    owner: Int32Array
    weight: Float32Array
    gain: Float64Array
    cover: Float64Array

    @property
    def nodes(self) -> int:
        return len(self.left)

    @property
    def depth(self) -> int:
        depth = np.zeros(self.nodes, dtype=np.int32)
        for node in np.flatnonzero(self.left != LEAF):
            depth[self.left[node] : self.left[node] + 2] = depth[node] + 1
        return int(depth.max())

    def with_gains_of_leaves(self, config: TrainingConfig) -> Tree:
        """With gains that follow from the covers and the leaf weights: gradient sums of leaves, added up."""
        gain, hessians = np.zeros(self.nodes), np.maximum(self.cover + config.reg_lambda, np.finfo(np.float64).tiny)
        sums = -self.weight.astype(np.float64) / config.learning_rate * hessians
        for node in reversed(np.flatnonzero(self.left != LEAF).tolist()):  # children come after their parents
            left = int(self.left[node])
            sums[node] = sums[left] + sums[left + 1]
            among = [node, left, left + 1]
            whole, *parts = sums[among] ** 2 / hessians[among]
            gain[node] = max(sum(parts) - whole, 0.0)
        return replace(self, gain=gain)


class Forest:
    """Trees that grow in parallel, recorded level by level and assembled at the end."""

    def __init__(self, trees: int) -> None:
        self._sizes = np.ones(trees, dtype=np.int32)  # nodes of each tree so far
        self._nodes = 0  # nodes of all levels so far
        self._levels: list[tuple[AnyArray, ...]] = []  # group, weight and totals of every node
        # The place among all nodes, left child, owner and gain of every split.
        self._splits: list[tuple[AnyArray, ...]] = []

    def note_level(self, level: Level, weight: Float32Array, choices: Choices | None) -> Int32Array:
        """Record a level: the weights of all its nodes, and those that split. Returns the children's numbers.

        Nodes of a tree are contiguous and trees are in order, so children are numbered tree by tree.
        """
        self._levels.append((level.fit.group, weight, level.totals))
        before, self._nodes = self._nodes, self._nodes + len(weight)
        if choices is None:
            return _NO_OWNERS
        children = np.empty(2 * len(choices.position), dtype=np.int32)
        _native.number_children(level.fit.group, choices.position, self._sizes, children)
        self._splits.append((choices.position + before, children[0::2], choices.owner, choices.gain))
        return children

    def trees(self, scale: Scale) -> list[Tree]:
        """The trees; their nodes were recorded in the order of their numbers."""
        group, weight, totals = (np.concatenate(parts) for parts in zip(*self._levels, strict=True))
        left, owner = np.full(len(group), LEAF, dtype=np.int32), np.full(len(group), LEAF, dtype=np.int32)
        gain, cover = np.zeros(len(group)), totals[:, 1] * scale.h_unit
        if self._splits:
            place, *known = (np.concatenate(parts) for parts in zip(*self._splits, strict=True))
            left[place], owner[place], gain[place] = known
        if len(self._sizes) == 1:
            return [Tree(left, owner, weight, gain, cover)]
        each = (group == tree for tree in range(len(self._sizes)))
        return [Tree(left[own], owner[own], weight[own], gain[own], cover[own]) for own in each]
