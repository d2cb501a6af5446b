"""Sums under reusable masks: the encryption of whole vectors of rows when the bins do not change (ADR 0040).

The job fixes uniform polynomials a, one for every N rows, and one more, a'. Once, the receiver sends a mask of every
slot (bin): the sum of its rows' X^-i a, hidden by u a' + e with a secret u of its own, rounded. Every vector of values
has a fresh secret s. Its ciphertext is -a s + e plus the scaled values, one number a row, and the key part
b = -a' s + e. The receiver adds the numbers of a slot's rows and the constant coefficient of u b, floods the result and
returns one number a slot. The owner adds the constant coefficient of the mask times s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from veilboost import _native
from veilboost.crypto.csprng import JobRandomness
from veilboost.crypto.lattice.keys import (
    DEGREE,
    ERROR_SIGMA,
    FAMILIES,
    FLOOD_BITS,
    MOST_LOG_FLOOD,
    PRIMES,
    SEED_BYTES,
    TERNARY_VARIANCE,
    chosen_engine,
)
from veilboost.errors import MalformedMessage
from veilboost.types import AnyArray, Int8Array, Int32Array, Int64Array, UInt8Array, UInt64Array

MOST_BITS = 96  # of a number of a ciphertext; at least four bits of q are rounded away
MOST_MASK_BYTES = 7
_LEAST_SUM_BITS = 12  # so that a number has at least eight bytes
# A rounded mask times a secret has a deviation of 15.1 units. Up to 2^8 of them, 17 deviations, are a quarter of a
# message's unit; the flood takes another quarter.
_BELOW_SUMS = 10
_NOTHING = np.empty((0, 0), dtype=np.int64)


@dataclass(frozen=True, order=True)
class MaskSizes:
    """Values are scaled by 2^log_delta and sums flooded by 2^log_flood, modulo 2^bits. Sums have `sum_bits` bits."""

    log_flood: int
    sum_bits: int

    @property
    def log_delta(self) -> int:
        return self.log_flood + 2

    @property
    def bits(self) -> int:
        return self.sum_bits + self.log_delta

    @property
    def width(self) -> int:
        """Bytes of a number."""
        return -(-self.bits // 8)

    @property
    def mask_bytes(self) -> int:
        """Bytes of a mask's coefficient."""
        return -(-(self.sum_bits + _BELOW_SUMS) // 8)

    @property
    def largest_sum(self) -> int:
        return (1 << (self.sum_bits - 1)) - 1

    @property
    def part_bytes(self) -> int:
        """Bytes of a vector's key part."""
        return FAMILIES * DEGREE * self.width

    @property
    def slot_bytes(self) -> int:
        """Bytes of the mask of a slot."""
        return DEGREE * self.mask_bytes

    def vector_bytes(self, rows: int) -> int:
        """Bytes of one encrypted vector."""
        return rows * FAMILIES * self.width + self.part_bytes

    def valid(self) -> bool:
        """Whether numbers of these sizes, which may come from a peer, can be computed with."""
        return (
            0 <= self.log_flood <= MOST_LOG_FLOOD
            and self.sum_bits >= _LEAST_SUM_BITS
            and 57 <= self.bits <= MOST_BITS
            and self.mask_bytes <= MOST_MASK_BYTES
        )


def least_flood(rows: int, slots: int, features: int) -> int:
    """The least `log_flood` for vectors of this many rows.

    The noise of a sum consists of the errors of its rows, of u times the error of the key part, and of the mask's error
    times s, with numbers rounded to at most `MOST_BITS` bits of q. Uniform noise in [-B, B) hides a value x up to a
    statistical distance of |x| / 2B; for all values of an answer: families * slots * E|x| / 2B. Each row is in one slot
    of every column; roots are concave, so the sum is largest if rows are spread evenly.
    """
    error = (ERROR_SIGMA * 2.0**MOST_BITS / (PRIMES[0] * PRIMES[1])) ** 2  # variance, in units of a number
    ternary = DEGREE * TERNARY_VARIANCE
    variance = (error + 1 / 12) * (rows * features / max(slots, 1) + ternary) + error * ternary
    total = FAMILIES * slots * math.sqrt(variance * 2 / math.pi)
    return math.ceil(FLOOD_BITS + math.log2(max(total, 1.0)) - 1)


def mask_sizes(rows: int, value_bits: int, slots: int, features: int, sum_bits: int = 0) -> MaskSizes | None:
    """The smallest sizes for values up to 2^value_bits, and at least `sum_bits`. None: too large for reusable masks."""
    needed = 2 + math.floor(math.log2(max(rows, 1) << value_bits))
    sizes = MaskSizes(least_flood(rows, slots, features), max(needed, sum_bits, _LEAST_SUM_BITS))
    return sizes if sizes.valid() else None


def masks_seed(randomness: JobRandomness) -> bytes:
    """The public seed of a job's uniform polynomials."""
    return randomness.for_request("lattice masks").bytes(SEED_BYTES)


def vector_key(randomness: JobRandomness, nonce: bytes) -> bytes:
    """The key of the vector with this nonce: its secrets and errors."""
    return randomness.for_request("lattice vector", nonce).bytes(SEED_BYTES)


class MaskOwner:
    """The active side: encrypts vectors, and reads their sums with the masks that it received."""

    def __init__(self, seed: bytes, rows: int, sizes: MaskSizes) -> None:
        self.rows, self.sizes = rows, sizes
        self._engine = chosen_engine()
        self._polynomials = _native.LatticeMasks(seed, rows, self._engine)

    def encrypt(self, values: Int32Array, key: bytes, rows: UInt8Array, part: UInt8Array, threads: int) -> None:
        """Encrypt values (rows, 2) into `rows` (rows, families * width) and the key part (families, N, width).

        Never use a key with other values: it would reveal their difference.
        """
        self._polynomials.encrypt(values, key, self.sizes.log_delta, self.sizes.bits, rows, part, threads)

    def decrypt(
        self, answer: UInt64Array, slots: Int32Array, masks: UInt8Array, key: bytes, threads: int
    ) -> Int64Array:
        """The sums (slots, 2) of an answer (2, slots) about these slots, which `masks` (all slots, bytes, N) hide."""
        if answer.shape != (FAMILIES, len(slots)):
            raise MalformedMessage("the encrypted sums are of other nodes or bins")
        out = np.empty((len(slots), FAMILIES), dtype=np.int64)
        sizes = self.sizes
        _native.lattice_unmask(answer, slots, masks, key, sizes.log_delta, sizes.bits, self._engine, out, threads)
        return out


def make_masks(
    seed: bytes,
    sizes: MaskSizes,
    offsets: Int32Array,
    first: int,
    count: int,
    noise: bytes,
    threads: int,
    rows: Int32Array,
    bins: AnyArray,
) -> tuple[UInt8Array, Int8Array]:
    """Masks (count, bytes, N) of the slots from `first` on, and the factors (count, N) that remove them.

    Row i has bins `bins[rows[i]]`. `noise` is the secret of all masks: use it for one table of bins only.
    """
    polynomials = _native.LatticeMasks(seed, len(rows), chosen_engine())
    masks = np.empty((count, sizes.mask_bytes, DEGREE), dtype=np.uint8)
    hiding = np.empty((count, DEGREE), dtype=np.int8)
    polynomials.make(np.ascontiguousarray(bins[rows]), offsets, first, noise, masks, hiding, threads)
    return masks, hiding


def add_rows(dense: UInt8Array, bins: AnyArray, offsets: Int32Array) -> UInt64Array:
    """The sums of dense rows per slot, (slots, families, 2 limbs). Sums of parts of the rows may be added."""
    sums = np.empty((int(offsets[-1]), FAMILIES, 2), dtype=np.uint64)
    _native.lattice_add_rows(dense, bins, offsets[:-1], chosen_engine(), sums)
    return sums


def answer(
    sums: UInt64Array,
    part: UInt8Array,
    slots: Int32Array,
    hiding: Int8Array,
    sizes: MaskSizes,
    noise: bytes,
    threads: int,
    added: Int64Array | None = None,
) -> UInt64Array:
    """The answer (families, slots) about sums of a vector with this key part; `slots` names the mask of each sum.

    `added` (families, slots) is added to the sums at the scale of the values before flooding. Use `noise` only once.
    """
    out = np.empty((FAMILIES, len(slots)), dtype=np.uint64)
    _native.lattice_answer(
        sums,
        slots,
        hiding,
        part,
        sizes.log_flood,
        sizes.log_delta,
        sizes.bits,
        sizes.mask_bytes,
        _NOTHING if added is None else added,
        noise,
        chosen_engine(),
        out,
        threads,
    )
    return out
