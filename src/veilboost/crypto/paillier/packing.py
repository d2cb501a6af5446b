"""Two signed numbers in one plaintext, and many such plaintexts in one.

A pair (a, b) is a * 2^low + b, a signed integer. Sums of pairs stay pairs of sums as long as each sum fits its field,
so nothing has to be known about how many were added: signs are restored by adding half a field to each field after
decryption. (SecureBoost+ adds an offset to every g instead, and then needs the number of rows in every bin.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from veilboost.errors import MalformedMessage
from veilboost.types import Int32Array, Int64Array

MOST_BITS = 64  # sums are int64


@dataclass(frozen=True)
class PairPacking:
    """Fields of `high` and `low` bits, signs included."""

    high: int
    low: int

    @staticmethod
    def for_sums(pairs: Int32Array, most: int) -> PairPacking:
        """Fields that hold the sum of any `most` of these pairs (..., 2)."""
        flat = pairs.reshape(-1, 2).astype(np.int64)
        bounds = np.abs(flat).max(axis=0, initial=0) if flat.size else np.zeros(2, dtype=np.int64)
        high, low = (int(bound) * most for bound in bounds.tolist())
        return PairPacking(high.bit_length() + 1, low.bit_length() + 1)

    @property
    def width(self) -> int:
        return self.high + self.low

    def fits(self, key_bits: int) -> bool:
        return 1 <= self.high <= MOST_BITS and 1 <= self.low <= MOST_BITS and self.capacity(key_bits) >= 1

    def capacity(self, key_bits: int) -> int:
        """Pairs per plaintext: all fields together stay below 2^(bits - 1), and so below n."""
        return (key_bits - 1) // self.width

    def pack(self, pairs: Int32Array) -> list[int]:
        """One plaintext per pair (count, 2)."""
        return [(a << self.low) + b for a, b in pairs.tolist()]

    def unpack(self, plaintexts: Sequence[int], count: int, n: int) -> Int64Array:
        """The `count` pairs (count, 2) in plaintexts modulo n, each with as many pairs as fit."""
        capacity = self.capacity(n.bit_length())
        half = (1 << (self.low - 1)) + (1 << (self.width - 1))
        field, low = (1 << self.width) - 1, (1 << self.low) - 1
        low_half, high_half = 1 << (self.low - 1), 1 << (self.high - 1)
        pairs: list[tuple[int, int]] = []
        for plaintext in plaintexts:
            members = min(capacity, count - len(pairs))
            ones = ((1 << (self.width * members)) - 1) // field
            rest = int((plaintext + half * ones) % n)
            if rest >> (self.width * members):
                raise MalformedMessage("a plaintext holds more than it should")
            for _ in range(members):
                part = rest & field
                pairs.append(((part >> self.low) - high_half, (part & low) - low_half))
                rest >>= self.width
        return np.array(pairs, dtype=np.int64).reshape(count, 2)
