"""Polynomials modulo X^N + 1 over eight primes, in NumPy: what lattice encryption of nodes and rows is made of.

N = 8192 and log2 q = 216 with ternary secrets: at most 218 bits are allowed for 128 bits of security (Homomorphic
Encryption Standard, 2018). Polynomials are kept as values at the roots (after `forward`), where products are entry by
entry; the constant coefficient is the mean of these values, in whatever order they stand.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from veilboost.crypto.csprng import Csprng
from veilboost.crypto.paillier.integers import is_prime, power
from veilboost.types import AnyArray, Int64Array, UInt64Array

DEGREE = 8192
PRIMES_COUNT = 8
_PRIME_BITS = 27  # a sum of three products fits 64 bits with room to spare
_LOW, _HALF = np.uint64((1 << 30) - 1), np.uint64(30)
_BINOMIAL = 21  # errors are differences of two counts of 21 coins: sigma = 3.24


@cache
def primes() -> tuple[int, ...]:
    """The largest below 2^27 that have roots of order 2N."""
    found: list[int] = []
    candidate = (1 << _PRIME_BITS) + 1
    while len(found) < PRIMES_COUNT:
        candidate -= 2 * DEGREE
        if is_prime(candidate):
            found.append(candidate)
    return tuple(found)


@cache
def modulus() -> int:
    product = 1
    for prime in primes():
        product *= prime
    return product


@cache
def columns() -> UInt64Array:
    """The primes, to be set against arrays (..., primes, N)."""
    return np.array(primes(), dtype=np.uint64)[:, None]


@cache
def _stages(prime: int) -> list[tuple[UInt64Array, UInt64Array]]:
    """For each round of butterflies the root that every pair is multiplied by, and 2^32 times it over the prime."""
    base = 2
    while power(root := int(power(base, (prime - 1) // (2 * DEGREE), prime)), DEGREE, prime) != prime - 1:
        base += 1
    powers = [1]
    for _ in range(DEGREE - 1):
        powers.append(powers[-1] * root % prime)
    bits = DEGREE.bit_length() - 1
    ordered = np.array([powers[int(f"{k:0{bits}b}"[::-1], 2)] for k in range(DEGREE)], dtype=np.uint64)
    quotients = np.array([(int(value) << 32) // prime for value in ordered], dtype=np.uint64)
    groups = [1 << k for k in range(bits)]
    return [
        (np.tile(ordered[m : 2 * m], DEGREE // 2 // m), np.tile(quotients[m : 2 * m], DEGREE // 2 // m)) for m in groups
    ]


def forward(coefficients: Int64Array) -> UInt64Array:
    """Values at the roots of small polynomials (..., N): (..., primes, N)."""
    out = np.empty((*coefficients.shape[:-1], PRIMES_COUNT, DEGREE), dtype=np.uint64)
    # One polynomial and one prime at a time: arrays that stay in the cache and need no new memory.
    for polynomial, values in zip(coefficients.reshape(-1, DEGREE), out.reshape(-1, PRIMES_COUNT, DEGREE), strict=True):
        for k, prime in enumerate(primes()):
            residues = polynomial - polynomial // prime * prime
            values[k] = reduced(_transform(residues.astype(np.uint64), prime), prime)
    return out


def reduced(values: UInt64Array, prime: int) -> UInt64Array:
    """Values modulo the prime, in place: dividing by one number for all is what NumPy does quickly."""
    p = np.uint64(prime)
    values -= values // p * p
    return values


def _transform(values: UInt64Array, prime: int) -> UInt64Array:
    """Butterflies (Cooley and Tukey), the halves of all groups always end to end, so that NumPy runs along them.

    Products are reduced to below twice the prime (Shoup); sums are not, and after 13 rounds are below 2^32.
    """
    p, twice, half = np.uint64(prime), np.uint64(2 * prime), DEGREE // 2
    for roots, quotients in _stages(prime):
        low, high = values[..., :half], values[..., half:]
        high = high * roots - ((high * quotients) >> np.uint64(32)) * p
        values = np.empty_like(values)
        np.add(low, high, out=values[..., 0::2])
        np.add(low, twice - high, out=values[..., 1::2])
    return values


def scaled(number: int) -> UInt64Array:
    """A whole number modulo every prime, to be set against (..., primes, N)."""
    return np.array([number % prime for prime in primes()], dtype=np.uint64)[:, None]


def constant(values: UInt64Array) -> UInt64Array:
    """The constant coefficient of (primes, N), modulo every prime: (primes,). Values need not be reduced."""
    return from_halves(np.stack([halves(values[k]) for k in range(PRIMES_COUNT)], axis=-1))


def halves(values: UInt64Array) -> UInt64Array:
    """Sums of the low and of the high halves of (N,): they fit 64 bits, and are quicker than reducing N numbers."""
    return np.array(((values & _LOW).sum(), (values >> _HALF).sum()), dtype=np.uint64)


def from_halves(sums: UInt64Array) -> UInt64Array:
    """The constant coefficient from these sums, (2, primes)."""
    p = columns()[:, 0]
    return (sums[1] % p * (np.uint64(1 << 30) % p) + sums[0]) % p * _degree_inverses() % p


@cache
def _degree_inverses() -> UInt64Array:
    return np.array([int(power(DEGREE, -1, prime)) for prime in primes()], dtype=np.uint64)


def joined(residues: UInt64Array) -> int:
    """The number in (-q/2, q/2) with these residues (primes,)."""
    q, total = modulus(), 0
    for residue, prime in zip(residues.tolist(), primes(), strict=True):
        rest = q // prime
        total += residue * rest * int(power(rest, -1, prime))
    total %= q
    return total - q if 2 * total > q else total


# --- what is drawn ------------------------------------------------------------------------------------------------


def uniform(randomness: Csprng) -> UInt64Array:
    """Values at the roots of a uniform polynomial (primes, N), but for 2^-37 of each."""
    words = np.frombuffer(randomness.bytes(8 * PRIMES_COUNT * DEGREE), dtype=np.uint64)
    return words.reshape(PRIMES_COUNT, DEGREE) % columns()


def ternary(randomness: Csprng, count: int) -> Int64Array:
    """Polynomials (count, N) of -1, 0 and 1, all alike."""
    wanted = count * DEGREE
    bytes_ = np.frombuffer(randomness.bytes(wanted + wanted // 8 + 256), dtype=np.uint8)
    kept = bytes_[bytes_ < 255][:wanted]
    return (kept.astype(np.int64) % 3 - 1).reshape(count, DEGREE)


def errors(randomness: Csprng, count: int) -> Int64Array:
    """Polynomials (count, N) of small errors."""
    drawn = np.frombuffer(randomness.bytes(8 * count * DEGREE), dtype=np.uint64)
    masks = np.uint64((1 << _BINOMIAL) - 1)
    heads, tails = _ones(drawn & masks), _ones((drawn >> np.uint64(_BINOMIAL)) & masks)
    return (heads - tails).reshape(count, DEGREE)


def _ones(words: UInt64Array) -> Int64Array:
    return np.bitwise_count(words).astype(np.int64)


def pack(values: UInt64Array) -> AnyArray:
    """As they travel: 32 bits each."""
    return values.astype("<u4")
