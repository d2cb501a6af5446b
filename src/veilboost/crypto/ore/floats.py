"""Real numbers as whole numbers in the same order."""

from __future__ import annotations

import struct

from veilboost.errors import InfiniteValues

_SIGN = 1 << 63
_ALL = (1 << 64) - 1


def to_ordered(value: float) -> int:
    """A float64 as 64 bits without a sign: x < y exactly where to_ordered(x) < to_ordered(y). Zero has no sign.

    Raises
    ------
    InfiniteValues
        The value is not a number, or infinite: such have no place among extremes.
    """
    if not abs(value) < float("inf"):
        raise InfiniteValues("an extreme is infinite or not a number")
    (bits,) = struct.unpack("<Q", struct.pack("<d", value + 0.0))  # -0.0 + 0.0 is 0.0
    # Positive numbers rise with their bits, negative ones fall: turn those around and put the others above them.
    return bits ^ _ALL if bits & _SIGN else bits | _SIGN


def from_ordered(ordered: int) -> float:
    """The inverse of `to_ordered`."""
    bits = ordered ^ _SIGN if ordered & _SIGN else ordered ^ _ALL
    return float(struct.unpack("<d", struct.pack("<Q", bits))[0])
