"""The skeleton of a tree: who splits each node, and what the leaves weigh; what the splits are, owners know."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from veilboost.types import Float32Array, Float64Array, Int32Array

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


@dataclass
class TreeBuilder:
    """A tree that grows level by level."""

    left: list[int] = field(default_factory=lambda: [LEAF])
    owner: list[int] = field(default_factory=lambda: [LEAF])
    weight: list[float] = field(default_factory=lambda: [0.0])
    gain: list[float] = field(default_factory=lambda: [0.0])
    cover: list[float] = field(default_factory=lambda: [0.0])

    def split(self, node: int, owner: int, gain: float) -> int:
        """Give `node` two children and return the left one's number."""
        child = len(self.left)
        self.left[node], self.owner[node], self.gain[node] = child, owner, gain
        for column, empty in (
            (self.left, LEAF),
            (self.owner, LEAF),
            (self.weight, 0.0),
            (self.gain, 0.0),
            (self.cover, 0.0),
        ):
            column.extend((empty, empty))  # pyright: ignore[reportArgumentType]
        return child

    def finish(self) -> Tree:
        return Tree(
            np.array(self.left, dtype=np.int32),
            np.array(self.owner, dtype=np.int32),
            np.array(self.weight, dtype=np.float32),
            np.array(self.gain, dtype=np.float64),
            np.array(self.cover, dtype=np.float64),
        )
