"""Which rows stand in the leaves that a level closes, for weights from other gradients than the grower's own."""

from __future__ import annotations

import numpy as np

from veilboost.boost.rows import RowGroups
from veilboost.types import Int64Array, UInt8Array


class LeafRows:
    """Follows the rows of a round down its trees."""

    def __init__(self, root: RowGroups) -> None:
        self._here = self._below = root

    def split(self, level: RowGroups, positions: Int64Array, left: UInt8Array) -> None:
        """These nodes of a level split; those that stay are its leaves, if there are any."""
        self._below = level.of(positions).split(left)
        stay = np.delete(np.arange(level.nodes), positions)
        self._here = level.of(stay) if len(stay) else self._below

    def close(self) -> RowGroups:
        """The leaves that close now; called once for every level that has some."""
        leaves, self._here = self._here, self._below
        return leaves
