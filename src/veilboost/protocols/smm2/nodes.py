"""Which nodes of a level are scored: those whose gradients were masked, and those that follow from them."""

from __future__ import annotations

import numpy as np

from veilboost.config import TrainingConfig
from veilboost.types import Int64Array


def scored_nodes(build: Int64Array, depth: int, config: TrainingConfig) -> Int64Array:
    """Positions in order. A sibling's sums are what its parent's leave, where both count by the same bins."""
    return np.union1d(build, build ^ 1) if depth and config.proposal == "global" else build
