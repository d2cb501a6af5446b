"""Which rows and columns a round uses. Not secret: the seed is a parameter of the job.

GOSS (gradient-based one-side sampling, LightGBM Alg. 2) keeps the rows with the largest gradients and draws some of
the rest, each of which stands for several.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from veilboost.config import TrainingConfig
from veilboost.types import BoolArray, Int32Array, Int64Array

_NOBODY = np.empty(0, dtype=np.int32)


@dataclass(frozen=True)
class RowSample:
    """A mask over the rows that may be drawn, and those drawn rows that count `amplification` times."""

    drawn: BoolArray
    amplified: Int32Array


def amplification(config: TrainingConfig) -> float:
    """How many rows of the rest a drawn one stands for: at least 1."""
    return (1.0 - config.top_rate) / config.other_rate if config.sampling == "goss" else 1.0


def sample_rows(pool: Int32Array, gradients: Int32Array, round_number: int, config: TrainingConfig) -> RowSample:
    """Draw from the rows `pool`, whose (g, h) on the grid are `gradients[:, pool]`, (trees, rows, 2).

    The draw depends on the order of rows and on their gradients, not on how anything is stored or added up.
    """
    generator = np.random.Generator(np.random.PCG64((config.seed, round_number, 0)))
    if config.sampling == "goss":
        return _one_side(pool, gradients, generator, config)
    if config.subsample >= 1.0:
        return RowSample(np.ones(len(pool), dtype=np.bool_), _NOBODY)
    drawn = generator.random(len(pool)) < config.subsample
    if not drawn.any():
        drawn[int(generator.integers(len(pool)))] = True
    return RowSample(drawn, _NOBODY)


def one_side_counts(rows: int, config: TrainingConfig) -> tuple[int, int]:
    """How many of so many rows goss keeps for their gradients, and how many it draws from the rest."""
    top, others = int(rows * config.top_rate), int(rows * config.other_rate)
    return (top, others) if top or others else (1, 0)


def _one_side(
    pool: Int32Array, gradients: Int32Array, generator: np.random.Generator, config: TrainingConfig
) -> RowSample:
    # One sample for all trees of the round, so a row's size is that of its gradients together.
    size = np.abs(gradients[:, pool, 0], dtype=np.int64).sum(axis=0)
    top, others = one_side_counts(len(pool), config)
    drawn = _largest(size, top)
    rest = (~drawn).nonzero()[0]
    chosen = np.sort(generator.permutation(rest)[:others])
    drawn[chosen] = True
    return RowSample(drawn, pool[chosen])


def _largest(size: Int64Array, count: int) -> BoolArray:
    """A mask of the `count` largest; of equal ones the first."""
    if not count:
        return np.zeros(len(size), dtype=np.bool_)
    least = np.partition(size, len(size) - count)[len(size) - count]
    largest = size > least
    equal = (size == least).nonzero()[0]
    largest[equal[: count - np.count_nonzero(largest)]] = True
    return largest


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
