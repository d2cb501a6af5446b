"""Sums of all nodes of a level from those that were made: a sibling is what its parent has left."""

from __future__ import annotations

import numpy as np

from veilboost import _native
from veilboost.boost.grower import Level
from veilboost.types import Int64Array


class LevelSums:
    """Remembers one owner's sums of the level above."""

    def __init__(self) -> None:
        self._last = np.empty((0, 0, 2), dtype=np.int64)

    def complete(self, level: Level, built: Int64Array) -> Int64Array:
        """Sums of the open nodes, shape (open, slots, 2), from those of `level.build`."""
        every = np.empty((level.fit.nodes, *built.shape[1:]), dtype=np.int64)
        _native.complete_sums(built, level.build, self._last, level.derive, level.parent, every)
        self._last = every
        return every if len(level.open) == len(every) else every[level.open]
