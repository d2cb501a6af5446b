"""Quantiles of a column under noise: found by descending a tree of counts, each count with discrete Gaussian noise.

The tree halves the range of float32 itself, in the order of its bits, and so does not depend on the data. A level of
the tree is one table of counts; one person's value leaves one cell of it and enters another: an L2 distance of sqrt 2.
"""

from __future__ import annotations

import numpy as np

from veilboost.ordered import from_ordered, to_ordered
from veilboost.privacy.discrete import discrete_gaussian
from veilboost.privacy.mechanism import Generator
from veilboost.types import Float32Array, Int64Array

LEVELS = 20  # sign, 8 bits of exponent and 11 of mantissa: cuts are good to one part in 2048
TABLES = LEVELS + 1  # with the count of all values that are not missing


def cell_counts(values: Float32Array) -> Int64Array:
    """How many values that are not missing lie in each cell of the last level; for pieces of a column they add up."""
    cells = to_ordered(values[~np.isnan(values)]) >> np.uint32(32 - LEVELS)
    return np.bincount(cells, minlength=1 << LEVELS)


def noisy_cuts(generator: Generator, counts: Int64Array, bins: int, sigma: float) -> Float32Array:
    """Cuts near the quantiles k / bins of a column, from its `cell_counts`; `sigma` is the noise of every count.

    Where several quantiles fall between the same two cuts, or nowhere, there are fewer.
    """
    below = np.concatenate(([0], counts.cumsum()))  # how many values lie in cells before each
    total = int(below[-1]) + int(discrete_gaussian(generator, sigma, 1)[0])
    rank = np.arange(1, bins) * (max(total, 1) / bins)
    start, before = np.zeros(bins - 1, dtype=np.int64), np.zeros(bins - 1)
    for level in range(1, LEVELS + 1):
        half = 1 << (LEVELS - level)
        nodes, which = np.unique(start, return_inverse=True)
        left: Int64Array = below[nodes + half] - below[nodes]
        noisy = np.maximum(left + discrete_gaussian(generator, sigma, len(nodes)), 0)[which]
        right = rank >= before + noisy
        before += np.where(right, noisy, 0)
        start += np.where(right, half, 0)
    cuts = from_ordered((np.unique(start) << (32 - LEVELS)).astype(np.uint32))
    return cuts[np.isfinite(cuts)]
