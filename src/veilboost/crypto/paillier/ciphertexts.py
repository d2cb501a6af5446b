"""Operations on ciphertexts with the public key: add, subtract, shift, pack, sum and re-randomise."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from veilboost.crypto.csprng import Csprng
from veilboost.crypto.paillier.integers import (
    MARGIN,
    Halves,
    ResidueTable,
    big,
    inverses,
    join,
    ladder,
    power,
    powers,
    window_for,
)
from veilboost.crypto.paillier.keys import PublicKey
from veilboost.errors import MalformedMessage
from veilboost.types import AnyArray, Int32Array, Int64Array

_INDEPENDENT = 32
_MOST_WINDOW = 8  # about 50 MB of masks for a 2048-bit key


def add(key: PublicKey, left: Sequence[int], right: Sequence[int]) -> list[int]:
    """Encryptions of the sums."""
    square = key.square
    return [a * b % square for a, b in zip(left, right, strict=True)]


def subtract(key: PublicKey, left: Sequence[int], right: Sequence[int]) -> list[int]:
    """Encryptions of the differences, such as a histogram's sibling from its parent, with one inversion in total."""
    return add(key, left, inverses(right, key.square))


def compress(key: PublicKey, ciphertexts: Sequence[int], width: int, capacity: int, threads: int = 1) -> list[int]:
    """Pack `capacity` plaintexts into one: that of ciphertext k is shifted by `width` bits times k modulo `capacity`.

    SecureBoost+, split-info compressing: c <- c^(2^width) * next. All packages advance together.
    """
    square, shift = key.square, big(1) << width
    packages = [ciphertexts[at : at + capacity] for at in range(0, len(ciphertexts), capacity)]
    done = [big(1)] * len(packages)
    for place in range(capacity - 1, -1, -1):
        # Only the last package may have fewer members.
        busy = len(packages) if packages and place < len(packages[-1]) else len(packages) - 1
        if place < capacity - 1:
            done[:busy] = powers(done[:busy], shift, square, threads)
        for at in range(busy):
            done[at] = done[at] * packages[at][place] % square
    return done


class Blinder:
    """Re-randomises ciphertexts: the same plaintexts, and otherwise independent of the input.

    Its masks are n-th residues from bases drawn here, never taken from the key's owner: one base with an exponent
    longer than the group's order, and a few independent bases, so that not even the class of a product modulo the
    powers of the first base is preserved.
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


# --- sums by label -------------------------------------------------------------------------------------------------
#
# Encrypted sums per label, for many labellings of the same ciphertexts, with few multiplications.
#
# Each labelling alone would cost one multiplication per ciphertext. But ciphertexts that have the same labels in
# several labellings can be multiplied once for all of them. So the labellings are halved recursively, and in each half
# ciphertexts that agree in all of its labellings are merged first: a merge of k costs k - 1 multiplications and saves
# as many in each of the two halves below. It never costs more, and for 12 columns of 32 bins about half as much.


_MOST_CODE = 1 << 62


def sums_by_label(key: PublicKey, values: Halves, labels: AnyArray, widths: Sequence[int]) -> list[int]:
    """Sums of the ciphertexts with each label of each labelling; empty ones are the trivial encryption of 0.

    `labels` is (ciphertexts, labellings), labelling f has labels 0 .. widths[f] - 1; results are concatenated.
    """
    offsets = [0, *itertools.accumulate(widths)]
    sums = [big(1)] * offsets[-1]
    if not sums or not len(values.x):
        return sums
    n, square = key.n, key.square
    pending = [(values, labels, 0, len(widths))]
    while pending:
        items, labels, first, last = pending.pop()
        merged, labels = _merge(items, labels, widths[first:last], square)
        if last - first == 1:
            for x, t, label in zip(merged.x, merged.t, labels[:, 0].tolist(), strict=True):
                sums[offsets[first] + label] = join(x, t, n, square)
            continue
        middle = (first + last) // 2
        pending.append((merged, labels[:, : middle - first], first, middle))
        pending.append((merged, labels[:, middle - first :], middle, last))
    return sums


def _merge(items: Halves, labels: AnyArray, widths: Sequence[int], square: int) -> tuple[Halves, AnyArray]:
    """Merge items that have the same labels in all labellings."""
    codes = _codes(labels, widths)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    if len(starts) == len(order):
        return items, labels
    xs, ts = items.x, items.t
    x: list[int] = []
    t: list[int] = []
    at: list[int] = order.tolist()
    for low, high in itertools.pairwise([*starts.tolist(), len(at)]):
        product, total = xs[at[low]], ts[at[low]]
        for k in at[low + 1 : high]:  # hot loop: one addition of ciphertexts each
            product = product * xs[k] % square
            total += ts[k]
        x.append(product)
        t.append(total)
    return Halves(x, t), labels[order[starts]]


def _codes(labels: AnyArray, widths: Sequence[int]) -> Int64Array:
    """One number per row; rows with equal labels have equal numbers."""
    codes = labels[:, 0].astype(np.int64)
    room = widths[0]
    for column, width in enumerate(widths[1:], start=1):
        if room * width >= _MOST_CODE:
            distinct, codes = np.unique(codes, return_inverse=True)
            room = len(distinct)
        codes = codes * width + labels[:, column]
        room *= width
    return codes


# --- packing -------------------------------------------------------------------------------------------------------
#
# Two signed numbers in one plaintext, and many such plaintexts in one.
#
# A pair (a, b) is a * 2^low + b, a signed integer. Sums of pairs are pairs of sums if each sum fits its field, so the
# number of summands need not be known: adding half a field to each field after decryption restores the signs.
# (SecureBoost+ adds an offset to every g instead, and then needs the number of rows in every bin.)


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
        """Pairs per plaintext: all fields together are below 2^(bits - 1), and so below n."""
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
                raise MalformedMessage("a plaintext exceeds its fields")
            for _ in range(members):
                part = rest & field
                pairs.append(((part >> self.low) - high_half, (part & low) - low_half))
                rest >>= self.width
        return np.array(pairs, dtype=np.int64).reshape(count, 2)
