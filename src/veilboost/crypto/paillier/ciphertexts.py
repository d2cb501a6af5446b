"""What anyone can do with ciphertexts who has the public key: add, subtract, shift, pack, and make them anew."""

from __future__ import annotations

from collections.abc import Sequence

from veilboost.crypto.csprng import Csprng
from veilboost.crypto.paillier.halves import join
from veilboost.crypto.paillier.integers import big, inverses, power, powers
from veilboost.crypto.paillier.keys import PublicKey
from veilboost.crypto.paillier.residues import MARGIN, ResidueTable, ladder, window_for

_INDEPENDENT = 32
_MOST_WINDOW = 8  # about 50 MB of masks for a 2048-bit key


def add(key: PublicKey, left: Sequence[int], right: Sequence[int]) -> list[int]:
    """Encryptions of the sums."""
    square = key.square
    return [a * b % square for a, b in zip(left, right, strict=True)]


def subtract(key: PublicKey, left: Sequence[int], right: Sequence[int]) -> list[int]:
    """Encryptions of the differences: a histogram's sibling from its parent, for one inversion in all."""
    return add(key, left, inverses(right, key.square))


def compress(key: PublicKey, ciphertexts: Sequence[int], width: int, capacity: int, threads: int = 1) -> list[int]:
    """`capacity` plaintexts in one: that of ciphertext k is shifted by `width` bits times k modulo `capacity`.

    SecureBoost+, split-info compressing: c <- c^(2^width) * next. All packages take a step together.
    """
    square, shift = key.square, big(1) << width
    packages = [ciphertexts[at : at + capacity] for at in range(0, len(ciphertexts), capacity)]
    done = [big(1)] * len(packages)
    for place in range(capacity - 1, -1, -1):
        # Only the last package may be short of members.
        busy = len(packages) if packages and place < len(packages[-1]) else len(packages) - 1
        if place < capacity - 1:
            done[:busy] = powers(done[:busy], shift, square, threads)
        for at in range(busy):
            done[at] = done[at] * packages[at][place] % square
    return done


class Blinder:
    """Makes ciphertexts anew: the same plaintexts, and otherwise independent of what went into them.

    Its masks are n-th residues from bases drawn here, never taken from the key's owner: one base with an exponent
    longer than the group's order, and a few independent ones so that not even the class of a product modulo the
    first one's powers is left over.
    """

    def __init__(self, key: PublicKey, draws: int, randomness: Csprng) -> None:
        self._key = key
        bits = key.bits + MARGIN
        window = window_for(bits, draws, _MOST_WINDOW)
        drawn = [_residue(key, randomness) for _ in range(1 + _INDEPENDENT)]
        self._masks = ResidueTable(key.n, ladder(drawn[0], bits, window, key.square) + drawn[1:], window)

    def blind(self, ciphertexts: Sequence[int], randomness: Csprng) -> list[int]:
        n, square = self._key.n, self._key.square
        masks = self._masks.draw(len(ciphertexts), randomness)
        return [join(value * x % square, t, n, square) for value, (x, t) in zip(ciphertexts, masks, strict=True)]


def _residue(key: PublicKey, randomness: Csprng) -> int:
    drawn = int.from_bytes(randomness.bytes((key.bits + MARGIN) // 8), "little")
    return power(big(drawn), key.n, key.square)
