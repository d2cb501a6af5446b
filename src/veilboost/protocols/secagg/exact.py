"""Sums of real numbers without any rounding, as one whole number: every float64 is a multiple of 2^-1074."""

from __future__ import annotations

import numpy as np

from veilboost.types import Float64Array

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
