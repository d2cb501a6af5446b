"""Code that the server and the participants of `secagg` share: the metric, exact sums, limits of the cut search.

Cut points are found from counts alone (FederBoost's distributed quantiles): every step counts the values below some
candidates and divides the gaps that contain a quantile. The results are exactly the cut points of pooled rows.

Real numbers are summed without rounding, as one integer: every float64 is a multiple of 2^-1074.
"""

from __future__ import annotations

import numpy as np

from veilboost.boost.metrics import Metric, metric_named
from veilboost.boost.objective import Objective
from veilboost.config import TrainingConfig
from veilboost.types import Float64Array


def metric_of(objective: Objective, config: TrainingConfig) -> Metric:
    """Return the metric of validation rows: eval_metric, or the default of the loss if that is a mean, else logloss."""
    found = metric_named(objective.default_metric if config.eval_metric == "auto" else config.eval_metric)
    return found if found.terms is not None else metric_named("logloss")


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
