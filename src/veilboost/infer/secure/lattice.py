"""Secure inference under lattice encryption: a node is a secret shift, so the CSP does not learn its attribute either.

A user's row is one polynomial u(X) = sum of u_i X^i, a node of attribute v is X^-v: the constant coefficient of their
product is u_v, and nothing else of the product is sent. So there are no decoys, and one ciphertext holds all M slots.
Ciphertexts of polynomials are (c0, c1) with c0 + c1 s = scale * message + error; products have a third part, for s^2.

Sizes. With errors below 2^12 (twelve sigma) and values below 2^31, a product of a node scaled by D0 and a row scaled by
D1 errs by less than D0 D1 2^-FLOOD where D0 = 2^(FLOOD + 43) M and D1 = 2^(FLOOD + 12). The difference, times n1, is
covered by a uniform number below D0 D1 n1, which hides the error up to about 2^-FLOOD. What is left of q is n1's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veilboost.crypto.csprng import Csprng
from veilboost.errors import MalformedMessage, UnsupportedCombination
from veilboost.infer.secure import ring
from veilboost.infer.secure.ring import DEGREE, PRIMES_COUNT
from veilboost.types import BoolArray, Int64Array, UInt8Array, UInt64Array

FLOOD = 24
_DIFFERENCE_BITS = 33  # of a threshold less a value, with 1 for what is added below n1
_LEAST_FACTOR_BITS = 33  # n1 is above every difference: else common divisors of several answers could be found
_POLYNOMIAL = PRIMES_COUNT * DEGREE
_NODE, _ROW, _KEY = 4 * _POLYNOMIAL, 2 * _POLYNOMIAL, 2 * _POLYNOMIAL  # entries of 32 bits
_BLINDED = 2 * _POLYNOMIAL + PRIMES_COUNT


def generate_pair(randomness: Csprng) -> tuple[bytes, bytes]:
    secret = ring.ternary(randomness, 1)[0]
    p = ring.columns()
    a, s, e = ring.uniform(randomness), ring.forward(secret), ring.forward(ring.errors(randomness, 1)[0])
    b = (e + (p - a) * s) % p
    return secret.astype(np.int8).tobytes(), ring.pack(np.stack((b, a))).tobytes()


def _scales(size: int) -> tuple[int, int]:
    """D0 of nodes and D1 of rows."""
    return 1 << (FLOOD + 43 + size.bit_length()), 1 << (FLOOD + 12)


def most_factor_bits(size: int) -> int:
    """The longest n1: sign, difference and n1 over the scales must fit q."""
    d0, d1 = _scales(size)
    return ring.modulus().bit_length() - 2 - (d0 * d1).bit_length() - _DIFFERENCE_BITS


class LatticePublic:
    """Encrypts nodes and rows under the public key (b, a), and blinds their differences."""

    def __init__(self, key: bytes, size: int) -> None:
        if len(key) != 4 * _KEY:
            raise MalformedMessage("a public service key has another size")
        self._b, self._a = _read(np.frombuffer(key, dtype=np.uint8)[None], 2)[0]
        if size >= DEGREE or most_factor_bits(size) < _LEAST_FACTOR_BITS + 24:
            raise UnsupportedCombination(f"{size} serial numbers are too many for one ciphertext", "use paillier")
        self._size = size
        self._d0, self._d1 = _scales(size)
        self._random = Csprng()
        self._zeros: list[tuple[UInt64Array, UInt64Array, UInt64Array]] = []

    def encrypt_nodes(self, nodes: Sequence[tuple[int, int]]) -> UInt8Array:
        """X^-v at scale D0, and the threshold at the scale of products."""
        rows = [
            _bytes(
                (
                    *self._encrypt(self._monomial(-serial), self._d0),
                    *self._encrypt(self._monomial(0), self._d0 * self._d1 * threshold),
                )
            )
            for serial, threshold in nodes
        ]
        return np.concatenate(rows) if rows else np.empty((0, 4 * _NODE), dtype=np.uint8)

    def encrypt_rows(self, values: Int64Array) -> UInt8Array:
        """Value of serial number i at X^i."""
        rows: list[UInt8Array] = []
        for row in values:
            polynomial = np.zeros(DEGREE, dtype=np.int64)
            polynomial[1 : self._size + 1] = row
            rows.append(_bytes(self._encrypt(polynomial, self._d1)))
        return np.concatenate(rows) if rows else np.empty((0, 4 * _ROW), dtype=np.uint8)

    def check_nodes(self, rows: UInt8Array) -> None:
        _read(rows, 4)

    def check_rows(self, rows: UInt8Array) -> None:
        _read(rows, 2)

    def prepare(self, pairs: int) -> None:
        """Encryptions of zero for so many pairs: the part of blinding that needs no query and may be done before."""
        while len(self._zeros) < pairs:
            # Of degree two: (z0', z1' + z0, z1) where z0 + z1 s and z0' + z1' s are small. Of z0' the constant is used.
            drawn = ring.errors(self._random, 4)
            r, r_, middle, last = ring.forward(
                np.stack((*ring.ternary(self._random, 2), drawn[0] + drawn[1], drawn[2]))
            )
            first = ring.constant(self._b * r_) + ring.scaled(int(drawn[3, 0]))[:, 0]
            for k, prime in enumerate(ring.primes()):
                middle[k] = ring.reduced(self._a[k] * r_[k] + self._b[k] * r[k] + middle[k], prime)
                last[k] = ring.reduced(self._a[k] * r[k] + last[k], prime)
            self._zeros.append((first, middle, last))

    def blind(
        self, nodes: UInt8Array, rows: UInt8Array, at_nodes: Int64Array, of_rows: Int64Array
    ) -> tuple[UInt8Array, BoolArray]:
        count, p = len(at_nodes), ring.columns()
        turned = np.frombuffer(self._random.bytes(count), dtype=np.uint8) >= 128  # Alg. 5, line 3: s
        self.prepare(count)
        # They were checked when they came in; each is read once, however many pairs it is in.
        node_values = {at: _values(nodes[at : at + 1], 4)[0] for at in set(at_nodes.tolist())}
        row_values = {at: _values(rows[at : at + 1], 2)[0] for at in set(of_rows.tolist())}
        out = np.empty((count, _BLINDED), dtype="<u4")
        parts = out[:, PRIMES_COUNT:].reshape(count, 2, PRIMES_COUNT, DEGREE)
        for pair, (at, of) in enumerate(zip(at_nodes.tolist(), of_rows.tolist(), strict=True)):
            shift0, shift1, limit0, limit1 = node_values[at]
            factor = self._factor()
            # n2 keeps as far from both ends as errors reach: equality is decided right, always.
            unit = self._d0 * self._d1 * factor
            margin = unit >> FLOOD
            noise = margin + 1 + self._below(unit - 2 * margin - 1)
            sign = -1 if turned[pair] else 1
            n1, minus = ring.scaled(sign * factor), ring.scaled(-sign * factor)
            zero0, zero1, zero2 = self._zeros.pop()
            sums = np.empty((2, PRIMES_COUNT), dtype=np.uint64)
            # sign * (n1 * (limit - shift * row) + n2), all three parts at once, prime by prime.
            for k, prime in enumerate(ring.primes()):
                row0, row1 = ring.reduced(row_values[of][:, k] * minus[k], prime)
                sums[:, k] = ring.halves(limit0[k] * n1[k] + shift0[k] * row0)
                part1 = limit1[k] * n1[k] + shift0[k] * row1 + shift1[k] * row0 + zero1[k]
                parts[pair, 0, k] = ring.reduced(part1, prime)
                parts[pair, 1, k] = ring.reduced(shift1[k] * row1 + zero2[k], prime)
            out[pair, :PRIMES_COUNT] = (ring.from_halves(sums) + zero0 + ring.scaled(sign * noise)[:, 0]) % p[:, 0]
        return out.view(np.uint8), turned

    def _encrypt(self, polynomial: Int64Array, scale: int) -> tuple[UInt64Array, UInt64Array]:
        p = ring.columns()
        drawn = (*ring.ternary(self._random, 1), *ring.errors(self._random, 2))
        message, mask, e0, e1 = ring.forward(np.stack((polynomial, *drawn)))
        first = self._b * mask + message * ring.scaled(scale) + e0
        return first % p, (self._a * mask + e1) % p

    def _monomial(self, exponent: int) -> Int64Array:
        """X^exponent; X^-v is -X^(N - v)."""
        polynomial = np.zeros(DEGREE, dtype=np.int64)
        polynomial[exponent % DEGREE] = -1 if exponent < 0 else 1
        return polynomial

    def _factor(self) -> int:
        """n1 of uniform length, as with Paillier, but of far fewer lengths."""
        bits = _LEAST_FACTOR_BITS + self._below(most_factor_bits(self._size) - _LEAST_FACTOR_BITS + 1)
        return (1 << (bits - 1)) + self._below(1 << (bits - 1))

    def _below(self, bound: int) -> int:
        return int.from_bytes(self._random.bytes(bound.bit_length() // 8 + 17), "little") % bound


class LatticeSecret:
    """Decrypts the constant coefficient, which is all there is."""

    def __init__(self, key: bytes) -> None:
        secret = np.frombuffer(key, dtype=np.int8)
        if secret.shape != (DEGREE,) or np.abs(secret.astype(np.int64)).max() > 1:
            raise MalformedMessage("a secret service key has another size")
        self._s = ring.forward(secret.astype(np.int64))
        self._square = self._s * self._s % ring.columns()

    def directions(self, blinded: UInt8Array) -> BoolArray:
        p = ring.columns()
        if blinded.ndim != 2 or blinded.shape[1] != 4 * _BLINDED:
            raise MalformedMessage("there are ciphertexts of another key")
        positive = np.empty(len(blinded), dtype=np.bool_)
        for pair, row in enumerate(np.ascontiguousarray(blinded).view("<u4")):
            constant = row[:PRIMES_COUNT].astype(np.uint64)
            part1, part2 = row[PRIMES_COUNT:].astype(np.uint64).reshape(2, PRIMES_COUNT, DEGREE)
            if (constant >= p[:, 0]).any() or (part1 >= p).any() or (part2 >= p).any():
                raise MalformedMessage("a ciphertext is out of range")
            sums = [ring.halves(part1[k] * self._s[k] + part2[k] * self._square[k]) for k in range(PRIMES_COUNT)]
            rest = ring.from_halves(np.stack(sums, axis=-1))
            positive[pair] = ring.joined((constant + rest) % p[:, 0]) > 0
        return positive


def _bytes(polynomials: Sequence[UInt64Array]) -> UInt8Array:
    return ring.pack(np.concatenate([each.ravel() for each in polynomials])).view(np.uint8)[None]


def _read(rows: UInt8Array, polynomials: int) -> UInt64Array:
    """Rows of so many polynomials: (rows, polynomials, primes, N)."""
    if rows.ndim != 2 or rows.shape[1] != 4 * polynomials * _POLYNOMIAL:
        raise MalformedMessage("there are ciphertexts of another key, or of another number of attributes")
    values = _values(rows, polynomials)
    if (values >= ring.columns()).any():
        raise MalformedMessage("a ciphertext is out of range")
    return values


def _values(rows: UInt8Array, polynomials: int) -> UInt64Array:
    values = np.ascontiguousarray(rows).view("<u4").astype(np.uint64)
    return values.reshape(len(rows), polynomials, PRIMES_COUNT, DEGREE)
