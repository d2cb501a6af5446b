"""Floats as integers in the same order, so that comparing encrypted integers is exactly comparing the floats."""

from __future__ import annotations

import numpy as np

from veilboost.types import Float32Array, Int64Array

MISSING = 1 << 31  # beyond every value; with a minus sign, below
ONE = 1 << 30  # a category that is not the asked one, as large as an ordinary float's integer


def ordered(values: Float32Array) -> Int64Array:
    """x < y exactly where ordered(x) < ordered(y); both zeros are the same. Not for missing values.

    The bits of a float32 are in order among positive numbers, and backwards among negative ones.
    """
    bits = (values + np.float32(0.0)).view(np.int32).astype(np.int64)  # adding 0 makes -0.0 the other zero
    return np.where(bits >= 0, bits, -(bits & 0x7FFFFFFF))


def at_most(threshold: np.float32) -> int:
    """The largest integer of a value that goes left by x < threshold (the paper compares u <= tau)."""
    return int(ordered(np.array([threshold], dtype=np.float32))[0]) - 1
