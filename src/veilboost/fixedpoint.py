"""Numbers as integers: gradients on a fixed-point grid, and float32 values in the order of their bits.

Gradients are integers, so sums are exact and do not depend on order, threads, shards or machines.

A gradient g becomes round(g * 2^e). The exponent is chosen per round from a bound on |g|, so that the largest
magnitude fits into `bits` bits; g and h have separate exponents. With the default of 12 bits and |g| <= 1
(binary logistic loss) the scale is 2^12 for all data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from veilboost import _native
from veilboost.errors import GradientRange
from veilboost.types import Float32Array, Float64Array, Int32Array, UInt32Array

MAX_BITS = 30  # the integers are sent as int32
_NO_WEIGHTS = np.empty(0)


@dataclass(frozen=True)
class Scale:
    """Powers of two that scale g and h to integers: integer = round(value * 2^exponent)."""

    g_exponent: int
    h_exponent: int

    @cached_property
    def g_unit(self) -> float:
        """The value of one step of g on the grid."""
        return math.ldexp(1.0, -self.g_exponent)

    @cached_property
    def h_unit(self) -> float:
        """The value of one step of h on the grid."""
        return math.ldexp(1.0, -self.h_exponent)


def exponent_for(bound: float, bits: int) -> int:
    """The largest exponent at which magnitudes up to `bound` fit into `bits` bits."""
    if not math.isfinite(bound):
        raise GradientRange("a gradient is NaN or infinite")
    if bound <= 0.0:
        return bits
    mantissa, exponent = math.frexp(bound)  # bound = mantissa * 2^exponent, mantissa in [0.5, 1)
    ceil_log2 = exponent - 1 if mantissa == 0.5 else exponent
    return bits - ceil_log2


def weight_bits(weight_bound: float) -> int:
    """The exponent of the power of two that no sample weight exceeds; weights below 1 count as 1."""
    return max(0, math.ceil(math.log2(weight_bound))) if weight_bound > 0 else 0


def choose_scale(g_bound: float, h_bound: float, weight_bound: float, bits: int) -> Scale:
    """The grid for gradients of unit weight; coarser if weighted gradients would not fit into 30 bits."""
    bits = min(bits, MAX_BITS - weight_bits(weight_bound))
    if bits < 1:
        raise GradientRange("the sample weights are so large that no bits are left for gradients")
    return Scale(exponent_for(g_bound, bits), exponent_for(h_bound, bits))


def to_fixed(
    g: Float64Array, h: Float64Array, scale: Scale, weight: Float64Array | None = None, threads: int = 1
) -> Int32Array:
    """Interleave g and h as int32 pairs, shape (..., 2), each row times its weight.

    Gradients are rounded first and then weighted, so that a row of weight 2 counts exactly like two rows.
    Raises `GradientRange` for values that are not finite or do not fit.
    """
    pairs = np.empty((*np.atleast_2d(g).shape, 2), dtype=np.int32)
    weights = _NO_WEIGHTS if weight is None else weight
    scales = math.ldexp(1.0, scale.g_exponent), math.ldexp(1.0, scale.h_exponent)
    if not _native.fixed_pairs(np.atleast_2d(g), np.atleast_2d(h), weights, *scales, 2.0**MAX_BITS, pairs, threads):
        raise GradientRange(f"a gradient is not finite or needs more than {MAX_BITS} bits")
    return pairs.reshape(*g.shape, 2)


_SIGN = np.uint32(0x80000000)


def to_ordered(values: Float32Array) -> UInt32Array:
    """Unsigned integers in the order of the values: sign bit set for positive values, all bits flipped for negative."""
    bits = (values + np.float32(0)).view(np.uint32)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def from_ordered(ordered: UInt32Array) -> Float32Array:
    """The inverse of `to_ordered`."""
    return np.where(ordered & _SIGN, ordered ^ _SIGN, ~ordered).astype(np.uint32).view(np.float32)
