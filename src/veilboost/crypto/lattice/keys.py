"""The interface of the lattice scheme: sizes, keys, ciphertexts of whole levels, and their sums.

This module defines all parameters of the ring and of the noise, with their reasons (ADR 0020).
"""

from __future__ import annotations

import hashlib
import itertools
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from veilboost import _native
from veilboost.crypto.csprng import Csprng
from veilboost.errors import InvalidParameter, MalformedMessage
from veilboost.types import AnyArray, Int32Array, Int64Array, UInt8Array, UInt64Array

DEGREE = 4096  # N: ring Z_q[X] / (X^N + 1)
PRIMES = (1125899906826241, 1125899906629633)  # the largest below 2^50 that are 1 modulo 2N; q is their product
ROOTS = (1094367314627419, 967006076000656)  # of order 2N
# Classical security. For N = 4096 and a ternary secret log2 q may be 106 (Bossuat and others, "Security Guidelines for
# Implementing Homomorphic Encryption", 2024); ours is 100.
SECURITY_BITS = 128
RESIDUE_BITS = 50
POLYNOMIAL_BYTES = DEGREE * RESIDUE_BITS // 8  # one polynomial modulo one prime
SEED_BYTES = 32
ERROR_COINS = 21  # centred binomial errors
ERROR_SIGMA = math.sqrt(ERROR_COINS / 2)  # 3.24
FLOOD_BITS = 40  # statistical distance of a node's answer from one that depends only on the sums: 2^-40
LEAST_RUN, MOST_RUN = 64, DEGREE
LEAST_NARROWED = 1 << 12  # the fewest rows of a block that `Sizes.narrowing` may lead to
MOST_ROWS = 1 << 20  # of a block: one worker sums it, and one message holds its ciphertexts
MOST_LOG_FLOOD = 62  # a flood is a signed number of 64 bits

TERNARY_VARIANCE = 2 / 3
_LEAST_LOG_FLOOD = 57  # smaller floods leave no room for the rounding of the modulus switch, 2^56.9 at eight sigma


@dataclass(frozen=True, order=True)
class Sizes:
    """Messages are scaled by 2^log_delta and result coefficients flooded by 2^log_flood; sums of magnitude up to
    `largest_sum` are decrypted exactly.

    `narrowing` halves the largest sum so many times: where even the most flooding does not hide sums of as many rows as
    have room, nodes are divided into more blocks.
    """

    log_flood: int
    narrowing: int = 0

    @classmethod
    def of_scale(cls, log_delta: int) -> Sizes:
        log_flood = min(log_delta - 2, MOST_LOG_FLOOD)
        return cls(log_flood, log_delta - 2 - log_flood)

    @property
    def log_delta(self) -> int:
        # Flood, noise and rounding together stay below delta / 2: 2^f + 2^(f-1) + ... < 2^(f+1).
        return self.log_flood + 2 + self.narrowing

    @property
    def largest_sum(self) -> int:
        return (PRIMES[0] * PRIMES[1] // 2 >> self.log_delta) - 1

    def rows_per_block(self, value_bits: int) -> int:
        """How many rows of values up to 2^value_bits a block has at most."""
        return min(self.largest_sum >> value_bits, MOST_ROWS)

    def has_room(self, rows: int, value_bits: int) -> bool:
        """Whether blocks of a job with this many rows are large enough: smaller ones reveal more."""
        least = LEAST_NARROWED if self.narrowing else LEAST_RUN
        return self.rows_per_block(value_bits) >= min(rows, least)

    def hides(self, rows: int, value_bits: int, slots: int, features: int) -> bool:
        """Whether the flood hides the sums of each block of a job with this many rows."""
        block = min(rows, self.rows_per_block(value_bits))
        return sizes_for(block, slots, features).log_flood <= self.log_flood


def sizes_for(rows: int, slots: int, features: int, families: int = 2) -> Sizes:
    """The flooding that a block of this many rows needs.

    The noise of a result coefficient is a sum of errors over the hits of its tile (rows that fall into it, once for
    each feature), of u times the key's error and of the mask's error times s. Uniform noise in [-B, B) hides a value x
    up to a statistical distance of |x| / 2B; for all values of a block: families * slots * E|x| / 2B. All tiles have
    rows * features hits in total; roots are concave, so the sum is largest if hits are spread evenly over slots.
    """
    hits = rows * features * min(1.0, DEGREE / LEAST_RUN / max(slots, 1))
    deviation = ERROR_SIGMA * math.sqrt(hits + 2 * DEGREE * TERNARY_VARIANCE)
    total = families * slots * deviation * math.sqrt(2 / math.pi)
    needed = math.ceil(FLOOD_BITS + math.log2(max(total, 1.0)) - 1)
    return Sizes(max(needed, _LEAST_LOG_FLOOD))


def sizes_for_job(rows: int, value_bits: int, slots: int, features: int) -> Sizes | None:
    """The smallest scale that hides the sums of a job with this many rows and values of at most 2^value_bits.

    A larger scale leaves less room for sums, so a block has fewer rows and needs less flooding. None if no scale leaves
    room for a block.
    """
    sizes = Sizes(_LEAST_LOG_FLOOD)
    while sizes.has_room(rows, value_bits):
        if sizes.hides(rows, value_bits, slots, features):
            return sizes
        sizes = Sizes.of_scale(sizes.log_delta + 1)
    return None


def run_length(rows: int, slots: int) -> int:
    """Rows per ciphertext: more rows mean fewer ciphertexts in and more tiles out; this is near the minimum."""
    best = math.sqrt(2 * DEGREE * max(rows, 1) / max(slots, 1))
    return min(MOST_RUN, max(LEAST_RUN, 1 << round(math.log2(max(best, 1.0)))))


ENGINE_VARIABLE = "VEILBOOST_LATTICE_ENGINE"
FAMILIES = 2  # g and h: they share a mask, each has its own secret
RUN_BYTES = FAMILIES * len(PRIMES) * POLYNOMIAL_BYTES
KEY_BYTES = RUN_BYTES
NOTHING = np.empty((0, FAMILIES, 0), dtype=np.int64)  # to add to sums
SPAN_ROWS = 1 << 16  # the most rows of a span, unless it is a single block


@dataclass(frozen=True)
class Blocks:
    """Blocks of rows to sum: block k holds rows[begin[k]:end[k]], divided into runs of run[k] rows."""

    rows: Int32Array
    begin: Int64Array
    end: Int64Array
    run: Int32Array

    def ciphertext_bytes(self) -> int:
        return int((-((self.begin - self.end) // self.run)).sum()) * RUN_BYTES

    def spans(self) -> list[slice]:
        """Consecutive blocks that are encrypted and summed as one unit of work, each span under its own seed.

        Both parties derive the same spans.
        """
        edges, room = [0], SPAN_ROWS
        for block, rows in enumerate((self.end - self.begin).tolist()):
            if rows > room and block > edges[-1]:
                edges.append(block)
                room = SPAN_ROWS
            room -= rows
        return [slice(low, high) for low, high in itertools.pairwise([*edges, len(self.run)])]

    def edges(self, spans: Sequence[slice]) -> list[int]:
        """The first row of each of these consecutive spans, and the end of the last."""
        ends = [int(self.end[span.stop - 1]) for span in spans if span.stop]
        return [int(self.begin[spans[0].start]) if ends else 0, *ends]

    def at(self, span: slice, rows: Int32Array) -> Blocks:
        """The blocks of one span; `rows` are its rows."""
        first = self.begin[span.start] if len(self.begin) else 0
        return Blocks(rows, self.begin[span] - first, self.end[span] - first, self.run[span])

    def mask_bytes(self, slots: int) -> int:
        return int((-(-slots * self.run.astype(np.int64) // DEGREE)).sum()) * POLYNOMIAL_BYTES

    def check(self) -> None:
        """Check that runs, which come from a peer, are powers of two within bounds."""
        run = self.run
        if ((run < LEAST_RUN) | (run > MOST_RUN) | (run & (run - 1) != 0)).any() or (self.begin > self.end).any():
            raise MalformedMessage("a block of rows has runs of an invalid length")


def span_seed(seed: bytes, span: int) -> bytes:
    """The seed of a span, derived from the common seed; the first span uses the common seed itself."""
    return seed if not span else hashlib.blake2b(span.to_bytes(8, "little"), key=seed, digest_size=SEED_BYTES).digest()


@dataclass(frozen=True)
class Ciphertext:
    """The encrypted values of all blocks; the seed replaces the half that is not sent."""

    seed: bytes
    packed: UInt8Array


@dataclass(frozen=True)
class EncryptedSums:
    """Per block: the result coefficients (blocks, families, slots), and the concatenated masks of the tiles."""

    sums: UInt64Array
    masks: UInt8Array


def chosen_engine() -> str:
    """The version of the kernel that `ENGINE_VARIABLE` names; by default the fastest that this processor supports.

    All versions write the same bytes for the same input.
    """
    name, known = os.environ.get(ENGINE_VARIABLE, "auto"), _native.lattice_engines()
    if name != "auto" and name not in known:
        raise InvalidParameter(f"{ENGINE_VARIABLE}={name!r} does not run here", f"use one of {', '.join(known)}")
    return name


class SecretKey:
    """The owner's key: encrypts values and decrypts sums. The owner's workers may have it too."""

    def __init__(self, randomness: Csprng, engine: str | None = None) -> None:
        self._key, self.public_seed = randomness.bytes(SEED_BYTES), randomness.bytes(SEED_BYTES)
        self._open(engine or chosen_engine())
        self.public_part = np.empty(KEY_BYTES, dtype=np.uint8)
        self._engine.public_key(self.public_seed, self.public_part)

    def _open(self, engine: str) -> None:
        self._name, self._engine = engine, _native.LatticeSecret(FAMILIES, self._key, engine)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_engine"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._open(self._name)

    def encrypt(
        self,
        values: Int32Array,
        group: Int32Array,
        blocks: Blocks,
        sizes: Sizes,
        randomness: Csprng,
        threads: int,
    ) -> Ciphertext:
        """Encrypt values (groups, rows, 2); each block uses those of its group.

        Never reuse randomness with different values: it would reveal the difference of two plaintexts.
        """
        seed, noise = randomness.bytes(SEED_BYTES), randomness.bytes(SEED_BYTES)
        return Ciphertext(seed, self.encrypt_with(seed, noise, values, group, blocks, sizes, threads))

    def encrypt_with(
        self,
        seed: bytes,
        noise: bytes,
        values: Int32Array,
        group: Int32Array,
        blocks: Blocks,
        sizes: Sizes,
        threads: int,
    ) -> UInt8Array:
        """The ciphertexts under a public and a secret seed; use each seed only once."""
        packed = np.empty(blocks.ciphertext_bytes(), dtype=np.uint8)
        self._engine.encrypt(
            values,
            group,
            blocks.rows,
            blocks.begin,
            blocks.end,
            blocks.run,
            sizes.log_delta,
            seed,
            noise,
            packed,
            threads,
        )
        return packed

    def decrypt(self, answer: EncryptedSums, run: Int32Array, slots: int, sizes: Sizes, threads: int) -> Int64Array:
        """The sums (blocks, slots, 2), exactly."""
        blocks = Blocks(run, np.zeros(len(run), dtype=np.int64), np.zeros(len(run), dtype=np.int64), run)
        if answer.sums.shape != (len(run), FAMILIES, slots) or len(answer.masks) != blocks.mask_bytes(slots):
            raise MalformedMessage("the encrypted sums are of other nodes or bins")
        out = np.empty((len(run), slots, FAMILIES), dtype=np.int64)
        if not self._engine.decrypt(answer.sums, answer.masks, run, sizes.log_delta, out, threads):
            raise MalformedMessage("an encrypted sum is out of range")
        return out


class PublicKey:
    """The receiver's key. Its uniform half is derived from the seed, never taken from the peer."""

    def __init__(self, seed: bytes, part: UInt8Array, engine: str | None = None) -> None:
        if len(seed) != SEED_BYTES or part.shape != (KEY_BYTES,):
            raise MalformedMessage("a public key has another size")
        self.seed, self.part, self._name = seed, part, engine or chosen_engine()
        try:
            self._engine = _native.LatticePublic(FAMILIES, seed, part, self._name)
        except ValueError:
            raise MalformedMessage("a public key is out of range") from None

    def __reduce__(self) -> tuple[type[PublicKey], tuple[bytes, UInt8Array, str]]:
        return PublicKey, (self.seed, self.part, self._name)

    def sum(
        self,
        ciphertext: Ciphertext,
        blocks: Blocks,
        bins: Sequence[AnyArray],
        matrix: Int32Array,
        starts: Int32Array,
        widths: Int32Array,
        sizes: Sizes,
        threads: int,
        noise: bytes | None = None,
        added: Int64Array | None = None,
    ) -> EncryptedSums:
        """Encrypted sums per block and slot, re-randomised and flooded.

        Block k takes its bins from `bins[matrix[k]]` (rows, features); feature f has `widths[f]` slots from
        `starts[f]` on. Masks and noise come from the seed `noise`; use it only once. Without it, the system draws one.
        `added` (blocks, families, slots) is added to the sums at the scale of the messages before flooding, so that the
        answer reveals only the new sums.
        """
        if len(ciphertext.seed) != SEED_BYTES or len(ciphertext.packed) != blocks.ciphertext_bytes():
            raise MalformedMessage("the ciphertexts are of another number of rows")
        slots = int(widths.sum())
        sums = np.empty((len(blocks.run), FAMILIES, slots), dtype=np.uint64)
        masks = np.empty(blocks.mask_bytes(slots), dtype=np.uint8)
        fits = self._engine.sum(
            ciphertext.packed,
            ciphertext.seed,
            list(bins),
            matrix,
            blocks.rows,
            blocks.begin,
            blocks.end,
            blocks.run,
            starts,
            widths,
            sizes.log_flood,
            sizes.log_delta,
            NOTHING if added is None else added,
            noise or Csprng().bytes(SEED_BYTES),
            sums,
            masks,
            threads,
        )
        if not fits:
            raise MalformedMessage("a ciphertext is out of range")
        return EncryptedSums(sums, masks)
