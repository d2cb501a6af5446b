"""Which rows and columns a round uses. Not secret: the seed is a parameter of the job."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from veilboost.config import TrainingConfig
from veilboost.types import BoolArray, Int32Array


def sample_rows(pool: Int32Array, round_number: int, config: TrainingConfig) -> BoolArray:
    """A mask over `pool`; every row is drawn on its own, so the draw does not depend on how rows are stored."""
    if config.subsample >= 1.0:
        return np.ones(len(pool), dtype=np.bool_)
    generator = np.random.Generator(np.random.PCG64((config.seed, round_number, 0)))
    drawn = generator.random(len(pool)) < config.subsample
    if not drawn.any():
        drawn[int(generator.integers(len(pool)))] = True
    return drawn


def sample_columns(features: Sequence[int], round_number: int, config: TrainingConfig) -> list[Int32Array | None]:
    """Columns of each owner, drawn from all owners' columns in the job's order; None: all of them."""
    if config.colsample_bytree >= 1.0:
        return [None] * len(features)
    total = sum(features)
    count = max(1, int(config.colsample_bytree * total))
    generator = np.random.Generator(np.random.PCG64((config.seed, round_number, 1)))
    drawn = np.sort(generator.permutation(total)[:count])
    edges = np.concatenate(([0], np.cumsum(features)))
    return [(drawn[(drawn >= low) & (drawn < high)] - low).astype(np.int32) for low, high in itertools.pairwise(edges)]
