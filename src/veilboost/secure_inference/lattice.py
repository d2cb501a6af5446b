"""Secure inference with lattice encryption: a node is a secret shift, so the CSP does not learn its attribute either.

A user's row is one polynomial u(X) = sum of u_i X^i, a node of attribute v is X^-v: the constant coefficient of their
product is u_v, and no other coefficient is sent. So there are no decoys, and one ciphertext holds all M slots.
Ciphertexts of polynomials are (c0, c1) with c0 + c1 s = scale * message + error; products have a third part, for s^2.

Sizes. With errors below 2^12 (twelve sigma) and values below 2^31, a product of a node scaled by D0 and a row scaled by
D1 has an error below D0 D1 2^-FLOOD, where D0 = 2^(FLOOD + 43) M and D1 = 2^(FLOOD + 12). The difference, times n1, is
covered by a uniform number below D0 D1 n1, which hides the error up to about 2^-FLOOD. The rest of q is left for n1.

The ring. Polynomials modulo X^8192 + 1, four primes of 43 bits and one of 42, are the native core's. log2 q = 214 is
the most for 128 bits of classical security with ternary secrets (Bossuat and others, "Security Guidelines for
Implementing Homomorphic Encryption", 2024).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

from veilboost._native import ServicePublic, ServiceSecret, service_primes
from veilboost.crypto.csprng import Csprng
from veilboost.errors import MalformedMessage, UnsupportedCombination
from veilboost.types import AnyArray, BoolArray, Int32Array, Int64Array, UInt8Array, UInt64Array

DEGREE = 8192
PRIMES = tuple(service_primes())
MODULUS = math.prod(PRIMES)
POLYNOMIAL_BYTES = len(PRIMES) * DEGREE * 43 // 8
SEED_BYTES = 32
FLOOD = 24
_DIFFERENCE_BITS = 33  # of a threshold minus a value, plus 1 bit for the number below n1 that is added
_LEAST_FACTOR_BITS = 33  # n1 exceeds every difference; otherwise common divisors of several answers could be found
NODE_BYTES, ROW_BYTES = 4 * POLYNOMIAL_BYTES, 2 * POLYNOMIAL_BYTES
BLINDED_BYTES = 8 * len(PRIMES) + 2 * POLYNOMIAL_BYTES


def residues(numbers: Sequence[int]) -> UInt64Array:
    """Integers modulo every prime: (numbers, primes)."""
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
    """A polynomial with uniform coefficients -1, 0 and 1."""
    drawn = np.frombuffer(randomness.bytes(2 * DEGREE), dtype=np.uint8)
    return (drawn[drawn < 255][:DEGREE] % 3).astype(np.int8) - np.int8(1)


def generate_pair(randomness: Csprng, engine: str = "auto") -> tuple[bytes, bytes]:
    secret, seed = ternary(randomness), randomness.bytes(SEED_BYTES)
    packed = np.empty(POLYNOMIAL_BYTES, dtype=np.uint8)
    ServiceSecret(secret, engine).public_key(seed, randomness.bytes(SEED_BYTES), packed)
    return secret.tobytes(), seed + packed.tobytes()


def _scales(size: int) -> tuple[int, int]:
    """The scales D0 of nodes and D1 of rows."""
    return 1 << (FLOOD + 43 + size.bit_length()), 1 << (FLOOD + 12)


def most_factor_bits(size: int) -> int:
    """The longest n1: sign, difference and n1 over the scales must fit q."""
    d0, d1 = _scales(size)
    return MODULUS.bit_length() - 2 - (d0 * d1).bit_length() - _DIFFERENCE_BITS


class LatticePublic:
    """Encrypts nodes and rows under the public key (b, a), a drawn from a seed, and blinds their differences."""

    def __init__(self, key: bytes, size: int, threads: int = 1, engine: str = "auto") -> None:
        if size >= DEGREE or most_factor_bits(size) < _LEAST_FACTOR_BITS + 24:
            raise UnsupportedCombination(f"{size} serial numbers are too many for one ciphertext", "use paillier")
        packed = np.frombuffer(key, dtype=np.uint8)[SEED_BYTES:]
        try:
            self._key = ServicePublic(key[:SEED_BYTES], packed, engine)
        except ValueError:
            raise MalformedMessage("a public service key has the wrong size or is out of range") from None
        self._size, self._threads = size, threads
        self._d0, self._d1 = _scales(size)
        self._random = Csprng()

    def encrypt_nodes(self, nodes: Sequence[tuple[int, int]]) -> UInt8Array:
        """X^-v, which is -X^(N - v), at scale D0, and the threshold at the scale of products."""
        serials, thresholds = (np.array([node[k] for node in nodes], dtype=np.int64)[:, None] for k in (0, 1))
        shifts = self._encrypt(np.full_like(serials, -1), (DEGREE - serials).astype(np.int32), self._d0)
        limits = self._encrypt(thresholds, np.zeros_like(serials, dtype=np.int32), self._d0 * self._d1)
        return np.concatenate((shifts, limits), axis=1)

    def encrypt_rows(self, values: Int64Array) -> UInt8Array:
        """The value of serial number i is the coefficient of X^i."""
        place = np.tile(np.arange(1, self._size + 1, dtype=np.int32), (len(values), 1))
        return self._encrypt(np.ascontiguousarray(values), place, self._d1)

    def check_nodes(self, rows: UInt8Array) -> None:
        self._check(rows, NODE_BYTES)

    def check_rows(self, rows: UInt8Array) -> None:
        self._check(rows, ROW_BYTES)

    def blind(
        self, nodes: UInt8Array, rows: UInt8Array, at_nodes: Int64Array, of_rows: Int64Array
    ) -> tuple[UInt8Array, BoolArray]:
        count = len(at_nodes)
        flipped = np.frombuffer(self._random.bytes(count), dtype=np.uint8) >= 128  # Alg. 5, line 3: s
        factors: list[int] = []
        offsets: list[int] = []
        for flip in flipped.tolist():
            factor, sign = self._factor(), -1 if flip else 1
            # n2 stays away from both ends by more than the error, so that equality is always decided correctly.
            unit = self._d0 * self._d1 * factor
            margin = unit >> FLOOD
            factors.append(sign * factor)
            offsets.append(sign * (margin + 1 + self._below(unit - 2 * margin - 1)))
        out = np.empty((count, BLINDED_BYTES), dtype=np.uint8)
        # sign * (n1 * (limit - shift * row) + n2), re-randomised.
        self._key.blind(
            np.ascontiguousarray(nodes),
            np.ascontiguousarray(rows),
            at_nodes,
            of_rows,
            residues(factors),
            residues(offsets),
            self._random.bytes(SEED_BYTES),
            out,
            self._threads,
        )
        return out, flipped

    def _encrypt(self, values: Int64Array, place: Int32Array, scale: int) -> UInt8Array:
        out = np.empty((len(values), 2 * POLYNOMIAL_BYTES), dtype=np.uint8)
        noise = self._random.bytes(SEED_BYTES)
        self._key.encrypt(values, place, residues([scale])[0], noise, out, self._threads)
        return out

    def _check(self, rows: UInt8Array, width: int) -> None:
        if rows.ndim != 2 or rows.shape[1] != width:
            raise MalformedMessage("the ciphertexts have another key or the wrong number of attributes")
        if not self._key.fits(np.ascontiguousarray(rows), self._threads):
            raise MalformedMessage("a ciphertext is out of range")

    def _factor(self) -> int:
        """n1 of uniform length, as with Paillier, but with far fewer lengths."""
        bits = _LEAST_FACTOR_BITS + self._below(most_factor_bits(self._size) - _LEAST_FACTOR_BITS + 1)
        return (1 << (bits - 1)) + self._below(1 << (bits - 1))

    def _below(self, bound: int) -> int:
        return int.from_bytes(self._random.bytes(bound.bit_length() // 8 + 17), "little") % bound


class LatticeSecret:
    """Decrypts the constant coefficient, the only one that is sent."""

    def __init__(self, key: bytes, threads: int = 1, engine: str = "auto") -> None:
        secret = np.frombuffer(key, dtype=np.int8)
        if secret.shape != (DEGREE,) or secret.min() < -1 or secret.max() > 1:
            raise MalformedMessage("a secret service key has the wrong size")
        self._key = ServiceSecret(secret, engine)
        self._threads = threads

    def directions(self, blinded: UInt8Array) -> BoolArray:
        if blinded.ndim != 2 or blinded.shape[1] != BLINDED_BYTES:
            raise MalformedMessage("the ciphertexts have another key")
        constants = np.empty((len(blinded), len(PRIMES)), dtype=np.uint64)
        if not self._key.decrypt(np.ascontiguousarray(blinded), constants, self._threads):
            raise MalformedMessage("a ciphertext is out of range")
        return np.array([value > 0 for value in joined(constants)], dtype=np.bool_)
