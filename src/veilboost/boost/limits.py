"""Limits of the splits of a round's trees, followed from level to level."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from veilboost.boost.grower import Level
from veilboost.boost.split import SplitLimits
from veilboost.config import TrainingConfig
from veilboost.types import UInt8Array


class RoundLimits:
    """The limits of one round. `levels` are the columns that each owner's splits of a level may use (`level_columns`)."""

    def __init__(self, levels: Sequence[UInt8Array]) -> None:
        self.levels = levels

    def of(self, owner: int, level: Level) -> SplitLimits:
        """The limits of one owner's splits at the open nodes of a level."""
        return SplitLimits(self.levels[owner][level.depth][None].repeat(len(level.open), axis=0))


def round_limits(features: Sequence[int], number: int, config: TrainingConfig) -> RoundLimits | None:
    """The limits of a round in which owners have so many columns; None if there are none."""
    levels = level_columns(features, number, config)
    return None if levels is None else RoundLimits(levels)


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
