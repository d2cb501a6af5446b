"""float32 as whole numbers in the same order, for counting and searching among them. Zero has no sign."""

from __future__ import annotations

import numpy as np

from veilboost.types import Float32Array, UInt32Array

_SIGN = np.uint32(0x80000000)


def to_ordered(values: Float32Array) -> UInt32Array:
    """The bits: of positive numbers with the sign set, of negative ones all turned over."""
    bits = (values + np.float32(0)).view(np.uint32)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def from_ordered(ordered: UInt32Array) -> Float32Array:
    """The inverse."""
    return np.where(ordered & _SIGN, ordered ^ _SIGN, ~ordered).astype(np.uint32).view(np.float32)
