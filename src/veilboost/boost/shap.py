"""Exact contributions of features to the margins of rows: path-dependent TreeSHAP, as XGBoost's `pred_contribs`.

It needs the shape, covers and leaf weights of the trees, which splits use the same feature, and for every row the
left/right assignment at every split, visited or not. It needs no values of features.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veilboost import _native
from veilboost.boost.grower import LEAF, Tree
from veilboost.types import Float64Array, Int32Array, UInt8Array

ROWS_AT_ONCE = 4096  # limits memory: the assignments of these rows at all splits are in one array
LEAST_COVER = 1e-9  # covers from noised sums may be zero or negative; a share of rows must be positive


class TreeShap:
    """The contributions of features in a forest.

    Parameters
    ----------
    trees
        The trees; tree t belongs to group `t % groups` (class).
    groups
        The number of trees per round.
    feature
        For every split, in the order of trees and nodes: the number of its feature. Splits of one tree with the same
        number use the same feature; numbers of different trees need not agree.
    slot
        For every split: where the contribution of its feature is added. Features may share a slot.
    slots
        The number of slots.
    """

    def __init__(
        self, trees: Sequence[Tree], groups: int, feature: Int32Array, slot: Int32Array, slots: int, threads: int = 1
    ) -> None:
        self._first = np.cumsum([0, *(tree.nodes for tree in trees)], dtype=np.int64)
        self._left = np.concatenate([np.empty(0, dtype=np.int32), *(tree.left for tree in trees)])
        self._cover = np.concatenate([np.empty(0), *(consistent_covers(tree) for tree in trees)])
        self._weight = np.concatenate([np.empty(0), *(tree.weight.astype(np.float64) for tree in trees)])
        self._feature, self._slot = (np.full(len(self._left), LEAF, dtype=np.int32) for _ in range(2))
        self._feature[self._left != LEAF], self._slot[self._left != LEAF] = feature, slot
        self._group = (np.arange(len(trees)) % groups).astype(np.int32)
        self._shape, self._threads = (groups, slots + 1), threads

    def contributions(self, went_left: UInt8Array, rows: int) -> Float64Array:
        """Contributions (rows, groups, slots + 1); the last are the means of the trees over the training rows.

        `went_left` has a row of packed bits for every split: the rows that go left there.
        """
        out = np.zeros((rows, *self._shape))
        nodes = self._left, self._feature, self._slot, self._cover, self._weight
        _native.tree_shap(self._first, *nodes, self._group, np.ascontiguousarray(went_left), out, self._threads)
        return out


def consistent_covers(tree: Tree) -> Float64Array:
    """Positive covers, each the sum of its children's. Without noise, they are those of the tree."""
    cover = np.maximum(tree.cover, LEAST_COVER)
    for node in reversed(np.flatnonzero(tree.left != LEAF).tolist()):  # children come after their parents
        cover[node] = cover[tree.left[node]] + cover[tree.left[node] + 1]
    return cover
