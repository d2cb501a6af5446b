"""GMP's integers behind types: a `mpz` has the manners of an `int` and is typed as one.

Everything long is done by `powers`, which lets other threads run; single products are too short for that to pay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import gmpy2  # pyright: ignore[reportMissingTypeStubs]
import numpy as np

from veilboost.types import UInt8Array

_gmp = cast(Any, gmpy2)

big: Callable[[int], int] = _gmp.mpz
_one_power: Callable[[int, int, int], int] = _gmp.powmod
_quotient_and_rest: Callable[[int, int], tuple[int, int]] = _gmp.f_divmod
is_perfect_power: Callable[[int], bool] = _gmp.is_power
common_divisor: Callable[[int, int], int] = _gmp.gcd
factorial_of_primes: Callable[[int], int] = _gmp.primorial
_powers_of_list: Callable[[list[int], int, int], list[int]] = _gmp.powmod_base_list


def is_prime(value: int) -> bool:
    """But for a chance below 4^-40 in a composite, for any choice of it."""
    return bool(_gmp.is_prime(value, 40))


def power(base: int, exponent: int, modulus: int) -> int:
    return _one_power(base, exponent, modulus)


def split_by(value: int, divisor: int) -> tuple[int, int]:
    """Quotient and rest."""
    return _quotient_and_rest(value, divisor)


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
    """The inverse of each, by a single inversion (Montgomery's trick); ZeroDivisionError where one has none."""
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
