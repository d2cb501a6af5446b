"""Sums of nodes and leaves from other gradients than the grower's own."""

from __future__ import annotations

import numpy as np

from veilboost.boost.rows import RowGroups
from veilboost.boost.sides import Sides
from veilboost.types import Int32Array, Int64Array


def node_totals(gradients: Int32Array, groups: RowGroups) -> Int64Array:
    """Sums of (g, h) over the rows of each node: (nodes, 2)."""
    return groups.totals(gradients)


class LeafRows:
    """Follows the rows of a round down its trees: which stand in the leaves that a level closes."""

    def __init__(self, root: RowGroups) -> None:
        self._here = self._below = root

    def split(self, level: RowGroups, positions: Int64Array, left: Sides) -> None:
        """These nodes of a level split; those that stay are its leaves, if there are any."""
        self._below = level.of(positions).split(left)
        stay = np.delete(np.arange(level.nodes), positions)
        self._here = level.of(stay) if len(stay) else self._below

    def close(self) -> RowGroups:
        """The leaves that close now; called once for every level that has some."""
        leaves, self._here = self._here, self._below
        return leaves
