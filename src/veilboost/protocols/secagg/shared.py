"""Code that the server and the participants of `secagg` share: metrics, exact sums, limits of the cut search.

Cut points are found from counts alone (FederBoost's distributed quantiles): every step counts the values below some
candidates and divides the gaps that contain a quantile. The results are exactly the cut points of pooled rows.

Real numbers are summed without rounding, as one integer: every float64 is a multiple of 2^-1074.
"""

from __future__ import annotations

import math

import numpy as np

from veilboost.boost.metrics import Metric
from veilboost.types import Float64Array, Int64Array, UInt64Array

# Metrics that rank rows are computed from the weights of both classes in equal intervals of the score (log-odds). Rows
# in the same interval count as tied; so do all rows beyond the ends.
SCORE_BINS = 4096
_SCORE_RANGE = 16.0  # log-odds of 1.1e-7 and of 1 - 1.1e-7
_WEIGHT_UNIT = 2.0**-30  # of a weight, relative to the bound on all weights


def score_histogram(
    margin: Float64Array, label: Float64Array, weight: Float64Array, weight_bound: float
) -> UInt64Array:
    """Return the weights of rows by class and interval of the score, (2, SCORE_BINS), on a grid."""
    step = 2 * _SCORE_RANGE / SCORE_BINS
    place = np.clip(np.floor((margin + _SCORE_RANGE) / step), 0, SCORE_BINS - 1).astype(np.int64)
    units = np.rint(weight / (weight_bound * _WEIGHT_UNIT)).astype(np.int64)
    found = np.zeros((2, SCORE_BINS), dtype=np.int64)
    np.add.at(found, (label.astype(np.int64), place), units)
    return found.view(np.uint64)


def ranking_metric(metric: Metric, histogram: Int64Array, weight_bound: float) -> float:
    """Return a metric that ranks rows, from the sum of all histograms."""
    classes, places = np.nonzero(histogram)
    weights = histogram[classes, places].astype(np.float64) * (weight_bound * _WEIGHT_UNIT)
    return metric.function(classes.astype(np.float64), places.astype(np.float64), weights) if len(places) else math.nan


PARTS = 15  # into which a step of the search divides a gap that contains a quantile
# A search for a float32 takes at most nine steps. Quantiles are searched again when a frequent value gets a bin of its
# own. Each time the decrease of the next share is divided by the number of bins left, so with 2^40 rows and 1024 bins
# at most 20 searches follow.
MOST_STEPS = 1 + 9 * 21


def most_values(max_bin: int) -> int:
    """The most values of a column in one step."""
    return PARTS * max(max_bin - 1, 2)


UNIT_BITS = 1074
SUM_BYTES = 280  # 2^1074 units below one, 2^1024 above, the sign, and room for 2^80 numbers


def exact_sum(values: Float64Array) -> int:
    """Return the sum in units of 2^-1074."""
    total = 0
    mantissa, exponent = np.frexp(values)
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    shift = exponent.astype(np.int64) - 53 + UNIT_BITS
    for size in np.unique(shift).tolist():
        part = sum(whole[shift == size].tolist())
        total += part << size if size >= 0 else part >> -size  # bits that are shifted out are zero
    return total


def as_float(total: int) -> float:
    """Return the nearest float64, as `math.fsum` does."""
    return total / (1 << UNIT_BITS)


def from_residue(residue: int) -> int:
    """Restore the sign of a number modulo 2^(8 SUM_BYTES)."""
    modulus = 1 << 8 * SUM_BYTES
    residue %= modulus
    return residue - modulus if residue >= modulus // 2 else residue
