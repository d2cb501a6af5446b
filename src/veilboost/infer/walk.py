"""Rows on their way down all trees at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from veilboost.boost.tree import LEAF
from veilboost.model.part import Skeleton
from veilboost.types import BoolArray, Float64Array, Int32Array, Int64Array, UInt8Array


@dataclass(frozen=True)
class Pairs:
    """Pairs that wait at nodes of one owner: rows[starts[k]:starts[k+1]] stand at node[k] of tree[k]."""

    index: Int64Array
    tree: Int32Array
    node: Int32Array
    starts: Int32Array
    rows: Int32Array

    @property
    def counts(self) -> Int32Array:
        return np.diff(self.starts)


class Walk:
    """The place of every (tree, row) pair. Nodes are numbered over all trees, tree after tree."""

    def __init__(self, skeleton: Skeleton, rows: int) -> None:
        self._skeleton = skeleton
        self._rows = rows
        sizes = [tree.nodes for tree in skeleton.trees]
        first = np.cumsum(np.array([0, *sizes], dtype=np.int64))
        self._tree_of = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
        self._node_of = (np.arange(int(first[-1]), dtype=np.int64) - np.repeat(first[:-1], sizes)).astype(np.int32)
        self._left = np.concatenate(
            [np.where(t.left == LEAF, LEAF, t.left + at) for t, at in zip(skeleton.trees, first[:-1], strict=True)]
        ).astype(np.int32)
        self._owner = np.concatenate([tree.owner for tree in skeleton.trees])
        self._weight = np.concatenate([tree.weight for tree in skeleton.trees])
        self._at = np.repeat(first[:-1].astype(np.int32), rows)  # pair = tree * rows + row
        self._moving = np.flatnonzero(self._left[self._at] != LEAF)

    def waiting(self) -> Iterator[tuple[int, Pairs]]:
        """For each owner the pairs that stand at its nodes, in order of nodes."""
        nodes = self._at[self._moving]
        owners = self._owner[nodes]
        for owner in np.unique(owners):
            pairs = self._moving[owners == owner]
            at = self._at[pairs]
            order = np.argsort(at, kind="stable")
            pairs, at = pairs[order], at[order]
            starts = np.flatnonzero(np.concatenate(([True], at[1:] != at[:-1])))
            visited = at[starts]
            yield (
                int(owner),
                Pairs(
                    pairs,
                    self._tree_of[visited],
                    self._node_of[visited],
                    np.append(starts, len(pairs)).astype(np.int32),
                    (pairs % self._rows).astype(np.int32),
                ),
            )

    def move(self, pairs: Int64Array, left: BoolArray | UInt8Array) -> None:
        self._at[pairs] = self._left[self._at[pairs]] + (left == 0)

    def settle(self) -> None:
        """Forget pairs that reached a leaf."""
        self._moving = self._moving[self._left[self._at[self._moving]] != LEAF]

    @property
    def moving(self) -> bool:
        return len(self._moving) > 0

    def margins(self) -> Float64Array:
        """Base margin and leaf weights, summed tree after tree: (K, rows)."""
        groups = self._skeleton.trees_per_round
        margin = np.repeat(self._skeleton.base_margin[:, None], self._rows, axis=1)
        weights = self._weight[self._at].reshape(-1, self._rows)
        for tree in range(len(weights)):
            margin[tree % groups] += weights[tree]
        return margin
