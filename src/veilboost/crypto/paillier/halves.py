"""Units modulo m^2 in two halves: c = x * (1 + m*t), where x = c mod m and t are half as long as c.

Since (1 + m*s)(1 + m*t) = 1 + m*(s + t) modulo m^2, a product of many units is the product of their x, each half as
long as the modulus, and a sum of their t. That costs about six tenths of multiplying the units themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from veilboost.crypto.paillier.integers import inverses, split_by
from veilboost.errors import MalformedMessage


@dataclass(frozen=True)
class Halves:
    """Several units: the k-th is x[k] * (1 + root * t[k]) modulo root^2. Neither need be reduced modulo the root."""

    x: Sequence[int]
    t: Sequence[int]


def halve(units: Sequence[int], root: int) -> Halves:
    """Take units apart; refuses what is not a unit."""
    split = [split_by(unit, root) for unit in units]
    x = [low for _, low in split]
    try:
        back = inverses(x, root)
    except ZeroDivisionError:
        raise MalformedMessage("a ciphertext has a factor in common with the modulus") from None
    return Halves(x, [high * inverse % root for (high, _), inverse in zip(split, back, strict=True)])


def join(x: int, t: int, root: int, square: int) -> int:
    """The unit x * (1 + root * t)."""
    return (x + root * (x * t % root)) % square
