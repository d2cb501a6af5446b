"""What the server and the participants of `secagg` compute alike: the metric, exact sums, the search for cuts.

Cuts are found from counts alone (FederBoost's distributed quantiles): every step asks how many values lie below some
candidates and divides the gaps that hold a quantile. They are exactly the cuts of pooled rows.

Sums of real numbers are made without any rounding, as one whole number: every float64 is a multiple of 2^-1074.
"""

from __future__ import annotations

import numpy as np

from veilboost.boost.metrics import Metric, metric_named
from veilboost.boost.objective import Objective
from veilboost.config import TrainingConfig
from veilboost.types import Float64Array


def metric_of(objective: Objective, config: TrainingConfig) -> Metric:
    """How validation rows are measured: as asked, or by the loss's own metric, if that is a mean."""
    found = metric_named(objective.default_metric if config.eval_metric == "auto" else config.eval_metric)
    return found if found.terms is not None else metric_named("logloss")


WAYS = 15  # in how many parts a step of the search for cuts divides a gap that holds a quantile
# A search for a float32 takes nine steps at most. Quantiles are searched for again when a heavy value gets a bin by
# itself. How much the next share is smaller is divided by the number of bins left each time, so that with 2^40 rows and
# 1024 bins no more than 20 searches follow each other.
MOST_STEPS = 1 + 9 * 21


def most_values(max_bin: int) -> int:
    """Of how many values of a column one step asks at most."""
    return WAYS * max(max_bin - 1, 2)


UNIT_BITS = 1074
SUM_BYTES = 280  # 2^1074 units below one, 2^1024 above, the sign, and room for 2^80 numbers


def exact_sum(values: Float64Array) -> int:
    """The sum, counted in units of 2^-1074."""
    total = 0
    mantissa, exponent = np.frexp(values)
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    shift = exponent.astype(np.int64) - 53 + UNIT_BITS
    for size in np.unique(shift).tolist():
        part = sum(whole[shift == size].tolist())
        total += part << size if size >= 0 else part >> -size  # bits that are shifted out are zero
    return total


def as_float(total: int) -> float:
    """The nearest float64: what `math.fsum` gives."""
    return total / (1 << UNIT_BITS)


def from_residue(residue: int) -> int:
    """A number modulo 2^(8 SUM_BYTES) with its sign back."""
    modulus = 1 << 8 * SUM_BYTES
    residue %= modulus
    return residue - modulus if residue >= modulus // 2 else residue
