"""Dense ciphertexts that the receiver expands: 25 bytes a row, and answers with as few bits as the sums need.

This module defines their parameters, with their reasons (ADR 0041). `keys` defines the other layout.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from veilboost import _native
from veilboost.crypto.csprng import Csprng
from veilboost.crypto.lattice import keys
from veilboost.crypto.lattice.keys import (
    ERROR_SIGMA,
    FAMILIES,
    FLOOD_BITS,
    RESIDUE_BITS,
    SEED_BYTES,
    Blocks,
    Ciphertext,
)
from veilboost.errors import MalformedMessage
from veilboost.types import AnyArray, Int32Array, Int64Array, UInt8Array

DEGREE = 8192
PRIMES = (*keys.PRIMES, 1125899905744897)  # q is the product of the first two; the last is for key switching
ROOTS = (783305341123190, 1020585629616648, 270066943051113)  # of order 2N
# With the special prime log2 of the modulus is 150; for N = 8192 and a ternary secret it may be 214 (see `keys`).
POLYNOMIAL_BYTES = DEGREE * RESIDUE_BITS // 8
ROW_BYTES = FAMILIES * 2 * RESIDUE_BITS // 8
MOST_DEPTH = 8  # doublings; a key of 614,400 bytes for each
LEAST_RUN, MOST_RUN = DEGREE >> MOST_DEPTH, DEGREE >> 1
KEY_BYTES = (2 + 2 * 3 * MOST_DEPTH) * FAMILIES * POLYNOMIAL_BYTES

_Q = PRIMES[0] * PRIMES[1]
_TERNARY_VARIANCE = 2 / 3
# Answers are rounded to units of q / 2^bits; times the secret, the mask's rounding errors have a deviation of
# sqrt(N / 18) = 21.3 units. With delta = 2^9 units and a flood of at most delta / 8 there is room for 9 deviations.
_ROUNDING_BITS = 9
_FLOOD_ROOM = 3
MOST_BITS = 46


@dataclass(frozen=True, order=True)
class DenseSizes:
    """Messages are scaled by 2^log_delta; sums of magnitude up to `largest_sum` are decrypted exactly."""

    log_delta: int

    @property
    def bits(self) -> int:
        """The bits of a number in an answer."""
        return 2 * RESIDUE_BITS + _ROUNDING_BITS - self.log_delta

    @property
    def largest_sum(self) -> int:
        return (_Q // 2 >> self.log_delta) - 1

    @property
    def most_log_flood(self) -> int:
        return self.log_delta - _FLOOD_ROOM

    def valid(self) -> bool:
        return _ROUNDING_BITS < self.bits <= MOST_BITS


def sizes_for_sum(largest: int) -> DenseSizes | None:
    """The largest scale, and so the shortest answers, for sums of this magnitude; None if there is no room for them."""
    log_delta = (_Q // 2 // (largest + 1)).bit_length() - 1
    sizes = DenseSizes(log_delta)
    return sizes if sizes.valid() else None


def sizes_for_flood(flood: int) -> DenseSizes:
    """The smallest scale, and so the largest sums, beside this flood."""
    return DenseSizes(max(flood + _FLOOD_ROOM, 2 * RESIDUE_BITS + _ROUNDING_BITS - MOST_BITS))


def log_flood(blocks: Blocks, slots: int, features: int) -> int:
    """The flood that hides the noise of a whole answer up to a statistical distance of 2^-40.

    The owner knows all noise. A doubling adds the noise of a key switch, and later doublings double it at some
    coefficients: one hit (a row in a bin) of a run with E = 2^depth adds E^2 (fresh + switch) to the variances of all
    numbers of its tile together. The sum of deviations is largest if variances are spread evenly. `keys.sizes_for`
    explains the other terms.
    """
    fresh = ERROR_SIGMA**2
    rounding = (DEGREE * _TERNARY_VARIANCE + 1) / 12  # of a division by the special prime
    switch = 2 * DEGREE / 12 * fresh + rounding
    numbers = max(1, len(blocks.run) * slots)
    hits = ((blocks.end - blocks.begin) * (DEGREE / blocks.run) ** 2).sum() * features
    variances = hits * (fresh + switch) + numbers * (2 * DEGREE * _TERNARY_VARIANCE * fresh + rounding)
    total = FAMILIES * math.sqrt(numbers * variances) * math.sqrt(2 / math.pi)
    return math.ceil(FLOOD_BITS + math.log2(total) - 1)


def dense_run(rows: int, slots: int, bits: int, leaf_bytes: int) -> int:
    """Rows per run: more rows mean fewer runs to make and longer answers; this is near the minimum of the time.

    A run costs as much as `leaf_bytes` of an answer, in which a row of a run takes `bits` for each slot.
    """
    best = math.sqrt(max(rows, 1) * leaf_bytes / (max(slots, 1) * bits / 8))
    return min(MOST_RUN, max(LEAST_RUN, 1 << round(math.log2(max(best, 1.0)))))


def dense_runs(counts: Int64Array, slots: int, sizes: DenseSizes, leaf_bytes: int) -> Int32Array:
    """The runs of a level's nodes with these numbers of rows.

    Nodes with equal runs share tiles, so it may be shorter to make runs more equal than each node would choose them.
    """
    single = np.array([dense_run(rows, slots, sizes.bits, leaf_bytes) for rows in counts.tolist()], dtype=np.int32)
    pairs = itertools.combinations_with_replacement(np.unique(single).tolist(), 2)
    every = [np.clip(single, low, high).astype(np.int32) for low, high in pairs]
    return min(every, key=lambda run: level_bytes(counts, run, slots, sizes, leaf_bytes), default=single)


def level_bytes(counts: Int64Array, run: Int32Array, slots: int, sizes: DenseSizes, leaf_bytes: int) -> int:
    """The bytes of a level's ciphertexts and answers, and those that could be sent while it is expanded."""
    leaves = int((-(-counts // run)).sum())
    return ROW_BYTES * int(counts.sum()) + sum(answer_bytes(run, slots, sizes)) + leaves * leaf_bytes


def ciphertext_bytes(blocks: Blocks) -> int:
    return int((blocks.end - blocks.begin).sum()) * ROW_BYTES


def check_runs(blocks: Blocks) -> None:
    """Check that runs, which come from a peer, are powers of two within bounds."""
    run = blocks.run
    if ((run < LEAST_RUN) | (run > MOST_RUN) | (run & (run - 1) != 0)).any():
        raise MalformedMessage("a block of rows has runs of an invalid length")


@dataclass(frozen=True)
class DenseSums:
    """Per block the result coefficients (blocks, families, slots), and the masks of all tiles; packed."""

    sums: UInt8Array
    masks: UInt8Array


def _depth(run: Int32Array) -> Int32Array:
    return np.log2(DEGREE // run).astype(np.int32)


def answer_bytes(run: Int32Array, slots: int, sizes: DenseSizes) -> tuple[int, int]:
    """The bytes of the sums and of the masks of an answer."""
    tiles = _native.expansion_tiles(_depth(run), slots)
    return -(-len(run) * FAMILIES * slots * sizes.bits // 8), tiles * DEGREE * sizes.bits // 8


class DenseSecretKey:
    """The owner's key: encrypts values and decrypts sums. The owner's workers may have it too."""

    def __init__(self, randomness: Csprng, engine: str | None = None) -> None:
        self._key, self.public_seed = randomness.bytes(SEED_BYTES), randomness.bytes(SEED_BYTES)
        self._open(engine or keys.chosen_engine())

    @cached_property
    def public_part(self) -> UInt8Array:
        """The public key and the key-switching keys, without their uniform halves."""
        part = np.empty(KEY_BYTES, dtype=np.uint8)
        self._engine.public_keys(self.public_seed, MOST_DEPTH, part, 1)
        return part

    def _open(self, engine: str) -> None:
        self._name, self._engine = engine, _native.ExpansionSecret(self._key, engine)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_engine", "public_part")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._open(self._name)

    def encrypt_with(
        self,
        seed: bytes,
        noise: bytes,
        values: Int32Array,
        group: Int32Array,
        blocks: Blocks,
        sizes: DenseSizes,
        threads: int,
    ) -> UInt8Array:
        """Encrypt values (groups, rows, 2), each block those of its group; use each seed only once.

        The rows of the blocks follow each other without gaps.
        """
        packed = np.empty(ciphertext_bytes(blocks), dtype=np.uint8)
        self._engine.encrypt(
            values,
            group,
            blocks.rows,
            blocks.begin,
            blocks.end,
            _depth(blocks.run),
            sizes.log_delta,
            seed,
            noise,
            packed,
            threads,
        )
        return packed

    def decrypt(self, answer: DenseSums, run: Int32Array, slots: int, sizes: DenseSizes, threads: int) -> Int64Array:
        """The sums (blocks, slots, 2), exactly."""
        if (len(answer.sums), len(answer.masks)) != answer_bytes(run, slots, sizes):
            raise MalformedMessage("the encrypted sums are of other nodes or bins")
        out = np.empty((len(run), slots, FAMILIES), dtype=np.int64)
        self._engine.decrypt(answer.sums, answer.masks, _depth(run), slots, sizes.bits, sizes.log_delta, out, threads)
        return out


class DensePublicKey:
    """The receiver's keys. Their uniform halves are derived from the seed, never taken from the peer."""

    def __init__(self, seed: bytes, part: UInt8Array, engine: str | None = None) -> None:
        if len(seed) != SEED_BYTES or part.shape != (KEY_BYTES,):
            raise MalformedMessage("a public key has another size")
        self.seed, self.part, self._name = seed, part, engine or keys.chosen_engine()
        try:
            self._engine = _native.ExpansionPublic(seed, part, MOST_DEPTH, self._name)
        except ValueError:
            raise MalformedMessage("a public key is out of range") from None

    def __reduce__(self) -> tuple[type[DensePublicKey], tuple[bytes, UInt8Array, str]]:
        return DensePublicKey, (self.seed, self.part, self._name)

    def sum(
        self,
        ciphertext: Ciphertext,
        blocks: Blocks,
        bins: Sequence[AnyArray],
        matrix: Int32Array,
        starts: Int32Array,
        widths: Int32Array,
        sizes: DenseSizes,
        threads: int,
        noise: bytes | None = None,
        added: Int64Array | None = None,
    ) -> DenseSums:
        """Encrypted sums per block and slot, re-randomised and flooded; as `keys.PublicKey.sum`."""
        if len(ciphertext.seed) != SEED_BYTES or len(ciphertext.packed) != ciphertext_bytes(blocks):
            raise MalformedMessage("the ciphertexts are of another number of rows")
        slots = int(widths.sum())
        flood = log_flood(blocks, slots, len(widths))
        if flood > sizes.most_log_flood:
            raise MalformedMessage("the scale of the values leaves no room to flood the sums")
        sums, masks = (np.empty(size, dtype=np.uint8) for size in answer_bytes(blocks.run, slots, sizes))
        fits = self._engine.sum(
            ciphertext.packed,
            ciphertext.seed,
            list(bins),
            matrix,
            blocks.rows,
            blocks.begin,
            blocks.end,
            _depth(blocks.run),
            starts,
            slots,
            flood,
            sizes.log_delta,
            sizes.bits,
            keys.NOTHING if added is None else added,
            noise or Csprng().bytes(SEED_BYTES),
            sums,
            masks,
            threads,
        )
        if not fits:
            raise MalformedMessage("a ciphertext is out of range")
        return DenseSums(sums, masks)
