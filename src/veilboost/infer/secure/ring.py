"""The ring of lattice encryption as Python sees it: sizes, whole numbers to residues and back, small secrets.

Its polynomials, modulo X^8192 + 1, four primes of 43 bits and one of 42, are the native core's. log2 q = 214, which is
the most for 128 bits of classical security with ternary secrets (Bossuat and others, "Security Guidelines for
Implementing Homomorphic Encryption", 2024).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

from veilboost._native import service_primes
from veilboost.crypto.csprng import Csprng
from veilboost.types import AnyArray, UInt64Array

DEGREE = 8192
PRIMES = tuple(service_primes())
MODULUS = math.prod(PRIMES)
POLYNOMIAL_BYTES = len(PRIMES) * DEGREE * 43 // 8
SEED_BYTES = 32


def residues(numbers: Sequence[int]) -> UInt64Array:
    """Whole numbers modulo every prime: (numbers, primes)."""
    return np.array([[number % prime for prime in PRIMES] for number in numbers], dtype=np.uint64).reshape(
        -1, len(PRIMES)
    )


@cache
def _weights() -> tuple[int, ...]:
    return tuple((MODULUS // prime) * pow(MODULUS // prime, -1, prime) for prime in PRIMES)


def joined(found: UInt64Array) -> list[int]:
    """The numbers in (-q/2, q/2) with residues (numbers, primes)."""
    sums = [sum(map(int.__mul__, row, _weights())) % MODULUS for row in found.tolist()]
    return [total - MODULUS if 2 * total > MODULUS else total for total in sums]


def ternary(randomness: Csprng) -> AnyArray:
    """A polynomial of -1, 0 and 1, all alike."""
    drawn = np.frombuffer(randomness.bytes(2 * DEGREE), dtype=np.uint8)
    return (drawn[drawn < 255][:DEGREE] % 3).astype(np.int8) - np.int8(1)
