"""Typed GMP integers, units in two halves, and random residues from tables.

An `mpz` behaves like an `int` and is typed as one. Long computations use `powers`, which lets other threads run; single
products are too short to benefit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, cast

import gmpy2  # pyright: ignore[reportMissingTypeStubs]
import numpy as np

from veilboost.crypto.csprng import Csprng
from veilboost.errors import MalformedMessage
from veilboost.types import UInt8Array

_gmp = cast(Any, gmpy2)

big: Callable[[int], int] = _gmp.mpz
power: Callable[[int, int, int], int] = _gmp.powmod  # base, exponent, modulus
_quotient_and_rest: Callable[[int, int], tuple[int, int]] = _gmp.f_divmod
is_perfect_power: Callable[[int], bool] = _gmp.is_power
common_divisor: Callable[[int, int], int] = _gmp.gcd
factorial_of_primes: Callable[[int], int] = _gmp.primorial
_powers_of_list: Callable[[list[int], int, int], list[int]] = _gmp.powmod_base_list


def is_prime(value: int) -> bool:
    """Whether a number is prime; a composite passes with probability below 4^-40, however it was chosen."""
    return bool(_gmp.is_prime(value, 40))


def powers(bases: Sequence[int], exponent: int, modulus: int, threads: int = 1) -> list[int]:
    """Every base to the same exponent."""
    if threads < 2 or len(bases) < 2:
        return _powers_of_list(list(bases), exponent, modulus)

    def work(first: int) -> list[int]:
        return _powers_of_list(list(bases[first::threads]), exponent, modulus)

    results = [big(0)] * len(bases)
    with ThreadPoolExecutor(threads) as pool:
        for first, part in enumerate(pool.map(work, range(threads))):
            results[first::threads] = part
    return results


def inverses(values: Sequence[int], modulus: int) -> list[int]:
    """The inverse of each value, with a single inversion (Montgomery's trick); `ZeroDivisionError` if one has none."""
    prefix = [big(1)]
    for value in values:
        prefix.append(prefix[-1] * value % modulus)
    rest: int = _gmp.invert(prefix[-1], modulus)
    found = [big(0)] * len(values)
    for at in range(len(values) - 1, -1, -1):
        found[at] = rest * prefix[at] % modulus
        rest = rest * values[at] % modulus
    return found


def from_bytes(rows: UInt8Array) -> list[int]:
    """Each row of a (count, width) array as a little-endian number."""
    width = rows.shape[1]
    whole = rows.tobytes()
    read: Callable[[bytes, str], int] = _gmp.mpz.from_bytes
    return [read(whole[at : at + width], "little") for at in range(0, len(whole), width)]


def to_bytes(values: Sequence[int], width: int) -> UInt8Array:
    """Numbers as rows of `width` little-endian bytes."""
    whole = b"".join([value.to_bytes(width, "little") for value in values])
    return np.frombuffer(whole, dtype=np.uint8).reshape(len(values), width)


# --- units in two halves -------------------------------------------------------------------------------------------
#
# Units modulo m^2 in two halves: c = x * (1 + m*t), where x = c mod m and t are half as long as c.
#
# Since (1 + m*s)(1 + m*t) = 1 + m*(s + t) modulo m^2, a product of many units is the product of their x, each half as
# long as the modulus, and a sum of their t. That costs about 60 % of multiplying the units themselves.


@dataclass(frozen=True)
class Halves:
    """Several units: the k-th is x[k] * (1 + root * t[k]) modulo root^2. Neither need be reduced modulo the root."""

    x: Sequence[int]
    t: Sequence[int]


def halve(units: Sequence[int], root: int) -> Halves:
    """Split units into halves; raises `MalformedMessage` for a value that is not a unit."""
    split = [_quotient_and_rest(unit, root) for unit in units]
    x = [low for _, low in split]
    try:
        back = inverses(x, root)
    except ZeroDivisionError:
        raise MalformedMessage("a ciphertext has a factor in common with the modulus") from None
    return Halves(x, [high * inverse % root for (high, _), inverse in zip(split, back, strict=True)])


def join(x: int, t: int, root: int, square: int) -> int:
    """The unit x * (1 + root * t)."""
    return (x + root * (x * t % root)) % square


# --- random residues from tables -----------------------------------------------------------------------------------
#
# Random m-th residues modulo m^2 from tables, at a few microseconds per factor instead of an exponentiation.
#
# The table has a row of powers for each of several bases; a residue is the product of one random entry of each row.
# This is the fixed-base idea of Damgard, Jurik and Nielsen (2010), but exponents are as long as the group's order plus
# `MARGIN` bits, so that residues are uniform and not only assumed to look uniform.


MARGIN = 64
MOST_WINDOW = 10  # a row of 1024 powers: about 90 MB in total for the owner of a 2048-bit key
_TABLE_COST = 8  # cost of a table entry, in multiplications of a draw
_CHUNK = 1024


class ResidueTable:
    """Draws products of powers of the bases; `window` bits of exponent for each."""

    def __init__(self, root: int, bases: Sequence[int], window: int) -> None:
        self._square = root * root
        self._window = window
        self._rows: list[Halves] = []
        for base in bases:
            row = [big(1)]
            for _ in range((1 << window) - 1):
                row.append(row[-1] * base % self._square)
            self._rows.append(halve(row, root))

    def draw(self, count: int, randomness: Csprng) -> Iterator[tuple[int, int]]:
        """`count` independent residues, in two halves (see `Halves`)."""
        for done in range(0, count, _CHUNK):
            yield from self._draw_chunk(min(_CHUNK, count - done), randomness)

    def _draw_chunk(self, count: int, randomness: Csprng) -> Iterator[tuple[int, int]]:
        # Row by row for the whole chunk: a row fits into the processor's cache, the table does not.
        square = self._square
        drawn = np.frombuffer(randomness.bytes(2 * count * len(self._rows)), dtype="<u2")
        digits = (drawn & ((1 << self._window) - 1)).reshape(len(self._rows), count)
        xs, ts = [big(1)] * count, [big(0)] * count
        for row, places in zip(self._rows, digits, strict=True):
            factors, addends = row.x, row.t
            at: list[int] = places.tolist()
            xs = [x * factors[k] % square for x, k in zip(xs, at, strict=True)]
            ts = [t + addends[k] for t, k in zip(ts, at, strict=True)]
        return zip(xs, ts, strict=True)


def window_for(bits: int, draws: int, most: int = MOST_WINDOW) -> int:
    """The window that minimises the total cost of the table and `draws` draws of `bits` bits."""
    return min(range(1, most + 1), key=lambda window: -(-bits // window) * (draws + (_TABLE_COST << window)))


def ladder(base: int, bits: int, window: int, modulus: int) -> list[int]:
    """base^(2^(window * k)): bases whose digits are those of one exponent of at least `bits` bits."""
    bases = [base]
    for _ in range(-(-bits // window) - 1):
        bases.append(power(bases[-1], big(1) << window, modulus))
    return bases
