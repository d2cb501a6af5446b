"""The ring of the lattice scheme in NumPy: residues, the transform, packing and samplers, each from its definition.

Written without regard to the C++ kernel's methods, so that agreement between the two says something.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from veilboost.crypto.lattice.keys import DEGREE, ERROR_COINS, PRIMES, RESIDUE_BITS, ROOTS, SEED_BYTES
from veilboost.types import Int64Array, UInt8Array, UInt64Array


def wire_order(degree: int) -> Int64Array:
    """On the wire place i of a transformed polynomial holds its value at root^(2k + 1), k = i in reversed bits."""
    bits = degree.bit_length() - 1
    return np.array(sum((np.arange(degree) >> bit & 1) << (bits - 1 - bit) for bit in range(bits)))


class Ring:
    """Polynomials modulo X^N + 1 and one prime p; the last axis of an array is the polynomial's."""

    def __init__(self, p: int, root: int, degree: int = DEGREE) -> None:
        self.p, self.degree, self._order = p, degree, wire_order(degree)
        # Step m of the transform needs the odd powers of a root of order 2m: root^(N / m).
        steps = [1 << bit for bit in range(1, degree.bit_length())]
        self._powers = [self._odd_powers(pow(root, degree // m, p), m // 2) for m in steps]
        self._inverse_powers = [self._odd_powers(pow(root, -(degree // m), p), m // 2) for m in steps]

    def _odd_powers(self, root: int, count: int) -> UInt64Array:
        return np.array([pow(root, 2 * k + 1, self.p) for k in range(count)], dtype=np.uint64)[:, None, None]

    def residues(self, values: Int64Array) -> UInt64Array:
        return (values % self.p).astype(np.uint64)

    def add(self, a: UInt64Array, b: UInt64Array) -> UInt64Array:
        total = a + b
        return np.minimum(total, total - self.p)  # below p the difference wraps around and is the larger

    def subtract(self, a: UInt64Array, b: UInt64Array) -> UInt64Array:
        return self.add(a, self.p - b)

    def multiply(self, a: UInt64Array, b: UInt64Array) -> UInt64Array:
        """Both sides of a b - quotient p overflow, but their difference is right: it is small, and so is the quotient's
        error. In floating point it is less than 2^50 * 2 * 2^-53, so the rounded quotient is off by one at most."""
        quotient = (a.astype(np.float64) * b.astype(np.float64) / self.p).astype(np.uint64)
        rest = a * b - quotient * np.uint64(self.p) + self.p  # below 3p
        rest = np.minimum(rest, rest - 2 * self.p)
        return np.minimum(rest, rest - self.p)

    def scale(self, a: UInt64Array, factor: int) -> UInt64Array:
        return self.multiply(a, np.array(factor % self.p, dtype=np.uint64))

    def forward(self, coefficients: UInt64Array) -> UInt64Array:
        """Values at the odd powers of the root, in wire order.

        P(X) = E(X^2) + X O(X^2), and the odd powers of a root of order 2m are the square roots of those of order m:
        twice N/m polynomials of m/2 values become N/m of m values. Axes: value, polynomial, batch.
        """
        values = np.ascontiguousarray(coefficients.reshape(-1, self.degree).T)[None]
        for powers in self._powers:
            even, odd = np.split(values, 2, axis=1)
            odd = self.multiply(odd, powers)
            values = np.concatenate((self.add(even, odd), self.subtract(even, odd)))
        return np.ascontiguousarray(values[self._order, 0].T).reshape(coefficients.shape)

    def inverse(self, transformed: UInt64Array) -> UInt64Array:
        """The coefficients: `forward` step by step backwards, the halves left for the end."""
        values = np.empty((self.degree, 1, transformed.size // self.degree), dtype=np.uint64)
        values[self._order, 0] = transformed.reshape(-1, self.degree).T
        for powers in reversed(self._inverse_powers):
            first, second = np.split(values, 2)
            odd = self.multiply(self.subtract(first, second), powers)
            values = np.concatenate((self.add(first, second), odd), axis=1)
        coefficients = self.scale(values[0], pow(self.degree, -1, self.p))
        return np.ascontiguousarray(coefficients.T).reshape(transformed.shape)

    def uniform(self, seed: bytes, stream: int) -> UInt64Array:
        """A uniform polynomial: the low bits of the stream's words, those that are no residue left out."""
        source = KeyStream(seed, stream)
        found = np.empty(0, dtype=np.uint64)
        while len(found) < self.degree:
            words = source.words(self.degree) & np.uint64((1 << RESIDUE_BITS) - 1)
            found = np.concatenate((found, words[words < self.p]))
        return found[: self.degree]


@cache
def rings() -> tuple[Ring, ...]:
    return tuple(Ring(p, root) for p, root in zip(PRIMES, ROOTS, strict=True))


def to_first_prime(first: UInt64Array, second: UInt64Array) -> UInt64Array:
    """Modulus switch: the nearest to z / p1, modulo p0, for the z that is `first` modulo p0 and `second` modulo p1.

    z = k p1 + second with k = (first - second) / p1 modulo p0; `second` is below p1 and so below p0.
    """
    ring, p1 = rings()[0], PRIMES[1]
    k = ring.scale(ring.subtract(first, second), pow(p1, -1, PRIMES[0]))
    return ring.add(k, (second > p1 // 2).astype(np.uint64))


# --- bytes ----------------------------------------------------------------------------------------------------------


def pack(residues: UInt64Array) -> UInt8Array:
    """Fifty bits each, lowest first, end to end; the last axis becomes bytes."""
    bits = np.unpackbits(residues.astype("<u8")[..., None].view(np.uint8), axis=-1, bitorder="little")
    used = bits[..., :RESIDUE_BITS]
    return np.packbits(used.reshape(*residues.shape[:-1], -1), axis=-1, bitorder="little")


def unpack(packed: UInt8Array) -> UInt64Array:
    bits = np.unpackbits(packed, axis=-1, bitorder="little").reshape(*packed.shape[:-1], -1, RESIDUE_BITS)
    padded = np.pad(bits, [(0, 0)] * (bits.ndim - 1) + [(0, 64 - RESIDUE_BITS)])
    return np.packbits(padded, axis=-1, bitorder="little").view("<u8")[..., 0].astype(np.uint64)


# --- randomness -----------------------------------------------------------------------------------------------------


class KeyStream:
    """ChaCha20 (RFC 8439) as 64-bit words: block counter from 0, nonce the stream's number and four zero bytes."""

    def __init__(self, key: bytes, stream: int) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

        if len(key) != SEED_BYTES:
            raise ValueError(f"a seed has {SEED_BYTES} bytes")
        nonce = bytes(4) + stream.to_bytes(8, "little") + bytes(4)
        self._stream = Cipher(algorithms.ChaCha20(key, nonce), mode=None).encryptor()

    def words(self, count: int) -> UInt64Array:
        return np.frombuffer(self._stream.update(bytes(8 * count)), dtype="<u8").astype(np.uint64)


def errors(source: KeyStream, degree: int = DEGREE) -> Int64Array:
    """Centred binomial: of every word, the first coins less the next ones."""
    bits = np.unpackbits(source.words(degree).astype("<u8")[:, None].view(np.uint8), axis=1, bitorder="little")
    coins = bits[:, : 2 * ERROR_COINS].reshape(degree, 2, ERROR_COINS).sum(axis=2, dtype=np.int64)
    return coins[:, 0] - coins[:, 1]


def ternary(source: KeyStream, degree: int = DEGREE) -> Int64Array:
    """-1, 0 or 1: the five digits to base 3 of every byte below 3^5, lowest first, other bytes left out.

    What is left of the last word is not used again.
    """
    found: list[int] = []
    while len(found) < degree:
        for byte in source.words(1).astype("<u8").tobytes():
            if byte < 3**5:
                found += [byte // 3**place % 3 - 1 for place in range(5)]
    return np.array(found[:degree], dtype=np.int64)


def flood(source: KeyStream, count: int, log_flood: int) -> Int64Array:
    """Uniform in [-2^log_flood, 2^log_flood)."""
    return (source.words(count) >> (63 - log_flood)).astype(np.int64) - (1 << log_flood)
