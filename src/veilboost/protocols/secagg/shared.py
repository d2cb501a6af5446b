"""What the server and the participants of `secagg` compute alike: the metric, exact sums, the search for cuts.

A cut is found by its rank (FederBoost's distributed quantiles, sixteen ways at a time): the smallest value that at
least so many are not above. Every step asks how many values lie below fifteen candidates and keeps a sixteenth of the
interval, so that eight steps find a float32 exactly.

Sums of real numbers are made without any rounding, as one whole number: every float64 is a multiple of 2^-1074.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from veilboost.boost.bins import between, equal_width
from veilboost.boost.metrics import Metric, metric_named
from veilboost.boost.objective import Objective
from veilboost.config import TrainingConfig
from veilboost.fixedpoint import from_ordered
from veilboost.types import Float32Array, Float64Array, Int64Array, UInt32Array


def metric_of(objective: Objective, config: TrainingConfig) -> Metric:
    """How validation rows are measured: as asked, or by the loss's own metric, if that is a mean."""
    found = metric_named(objective.default_metric if config.eval_metric == "auto" else config.eval_metric)
    return found if found.terms is not None else metric_named("logloss")


BITS_AT_ONCE = 4
MOST_STEPS = 2 + 2 * 32 // BITS_AT_ONCE  # the present values, then two searches with a count between them
_LAST = np.uint32(0xFFFFFFFF)

Count = Callable[[UInt32Array], Int64Array]  # (columns, values) -> how many of each column are not above each


def most_values(max_bin: int) -> int:
    """Of how many values of a column one step asks at most: of every rank's candidates, where equal widths have two."""
    return ((1 << BITS_AT_ONCE) - 1) * max(max_bin - 1, 2)


def values_at(ranks: Int64Array, count: Count) -> UInt32Array:
    """For every column and rank, (columns, ranks), the smallest value that at least `rank` values are not above."""
    low = np.zeros(ranks.shape, dtype=np.uint64)
    for shift in range(32 - BITS_AT_ONCE, -1, -BITS_AT_ONCE):
        steps = np.arange(1, 1 << BITS_AT_ONCE, dtype=np.uint64) << np.uint64(shift)
        tried = low[..., None] + steps - np.uint64(1)  # the last value of each of the first fifteen parts
        counts = count(tried.reshape(len(ranks), -1).astype(np.uint32)).reshape(tried.shape)
        low += (counts < ranks[..., None]).sum(axis=2).astype(np.uint64) << np.uint64(shift)
    return low.astype(np.uint32)


def find_cuts(columns: int, max_bin: int, binning: str, count: Count) -> list[Float32Array]:
    """The cuts of every numeric column, as `plain` would find them on pooled rows.

    Equal widths are the same cuts. Quantiles are the same where no value is so frequent that it fills a bin by itself
    (`plain` gives such a value a bin of its own and shares the others anew; here its bin swallows its neighbours').
    """
    if not columns:
        return []
    present = count(np.full((columns, 1), _LAST))[:, 0]
    if binning == "width":
        ends = from_ordered(values_at(np.stack((np.ones_like(present), present), axis=1), count))
        return [
            equal_width(float(low), float(high), max_bin) if there else np.empty(0, dtype=np.float32)
            for (low, high), there in zip(ends, present > 0, strict=True)
        ]
    share = np.arange(1, max_bin)
    ranks = np.maximum(-(-present[:, None] * share // max_bin), 1)  # a bin ends with the value of this rank
    below = values_at(ranks, count)
    reached = count(below)
    above = values_at(np.minimum(reached + 1, np.maximum(present, 1)[:, None]), count)
    found: list[Float32Array] = []
    for column in range(columns):
        inside = np.unique(reached[column][reached[column] < present[column]], return_index=True)[1]
        low, high = (from_ordered(side[column][reached[column] < present[column]][inside]) for side in (below, above))
        found.append(between(low, high))
    return found


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
