"""The skeleton of a tree: who splits each node, and what the leaves weigh; what the splits are, owners know."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from veilboost.types import AnyArray, Float32Array, Float64Array, Int32Array, Int64Array

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


class Forest:
    """Trees that grow side by side, noted level by level and put together at the end."""

    def __init__(self, trees: int) -> None:
        self._sizes = np.ones(trees, dtype=np.int64)  # nodes of each tree so far
        self._levels: list[tuple[AnyArray, ...]] = []  # group, left, owner, weight, gain, cover

    def note_level(
        self,
        group: Int32Array,
        cover: Float64Array,
        weight: Float32Array,
        position: Int64Array,
        owner: Int32Array,
        gain: Float64Array,
    ) -> Int32Array:
        """A level of nodes, those at `position` split by `owner` with `gain`; returns the numbers of all children.

        Nodes of a tree stand together and trees in order, so children are numbered tree by tree as they come.
        """
        split_group = group[position]
        first = split_group.searchsorted(split_group)  # where each split's tree begins among the splits
        left = (self._sizes[split_group] + 2 * (np.arange(len(position)) - first)).astype(np.int32)
        np.add.at(self._sizes, split_group, 2)
        lefts = np.full(len(group), LEAF, dtype=np.int32)
        owners = np.full(len(group), LEAF, dtype=np.int32)
        gains = np.zeros(len(group))
        lefts[position], owners[position], gains[position] = left, owner, gain
        self._levels.append((group, lefts, owners, weight, gains, cover))
        children = np.empty(2 * len(left), dtype=np.int32)
        children[0::2], children[1::2] = left, left + 1
        return children

    def trees(self) -> list[Tree]:
        """The trees; their nodes were noted in the order of their numbers."""
        group, *columns = (np.concatenate(parts) for parts in zip(*self._levels, strict=True))
        grown: list[Tree] = []
        for tree in range(len(self._sizes)):
            own = slice(None) if len(self._sizes) == 1 else group == tree
            left, owner, weight, gain, cover = (column[own] for column in columns)
            grown.append(Tree(left, owner, weight, gain, cover))
        return grown
