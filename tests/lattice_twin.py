"""The lattice scheme in NumPy: the twin that the C++ kernel is held against.

The same bytes as `native/lattice` for the same seeds. One thread, whatever it is told, and some forty times slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lattice_ring import (
    KeyStream,
    Ring,
    errors,
    flood,
    pack,
    rings,
    ternary,
    to_first_prime,
    unpack,
)
from veilboost.crypto.lattice.keys import (
    DEGREE,
    LEAST_RUN,
    MOST_LOG_FLOOD,
    MOST_RUN,
    POLYNOMIAL_BYTES,
    PRIMES,
    SEED_BYTES,
)
from veilboost.types import AnyArray, Int32Array, Int64Array, UInt8Array, UInt64Array

_RUNS_AT_ONCE = 32  # some ten megabytes of polynomials


class NumpySecret:
    """A ternary secret for each family, expanded from one key."""

    def __init__(self, families: int, key: bytes) -> None:
        self._families, self._key = families, key
        secrets = np.array([ternary(KeyStream(key, family)) for family in range(families)])
        self._secret = [ring.forward(ring.residues(secrets)) for ring in rings()]

    def public_key(self, seed: bytes, out: UInt8Array) -> None:
        """-a s + e for each family."""
        _require(out.shape == (self._families * len(PRIMES) * POLYNOMIAL_BYTES,), "public_key: wrong size")
        error = np.array([errors(KeyStream(self._key, self._families + family)) for family in range(self._families)])
        parts = [
            _less_product(ring, ring.residues(error), ring.uniform(seed, j), self._secret[j])
            for j, ring in enumerate(rings())
        ]
        out[:] = pack(np.stack(parts, axis=1)).ravel()

    def encrypt(
        self,
        values: Int32Array,
        group: Int32Array,
        rows: Int32Array,
        begin: Int64Array,
        end: Int64Array,
        run: Int32Array,
        log_delta: int,
        seed: bytes,
        noise: bytes,
        out: UInt8Array,
        threads: int,
    ) -> None:
        """Every run: -a s + e + 2^log_delta m for each family, m the polynomial of the run's values."""
        runs = _runs(rows, begin, end, run)
        shape = (len(runs), self._families, len(PRIMES), POLYNOMIAL_BYTES)
        fits = values.shape[2] == self._families and len(group) == len(begin) and out.shape == (np.prod(shape),)
        _require(fits and len(seed) == len(noise) == SEED_BYTES, "encrypt: shapes do not fit together")
        packed = out.reshape(shape)
        for each in runs:
            message = np.zeros((self._families, DEGREE), dtype=np.int64)
            message[:, : len(each.rows)] = values[group[each.block], each.rows].T
            error = np.array(
                [errors(KeyStream(noise, each.number * self._families + family)) for family in range(self._families)]
            )
            for j, ring in enumerate(rings()):
                scaled = ring.scale(ring.residues(message), 1 << log_delta)
                a = ring.uniform(seed, each.number * len(PRIMES) + j)
                part = _less_product(ring, ring.add(scaled, ring.residues(error)), a, self._secret[j])
                packed[each.number, :, j] = pack(part)

    def decrypt(
        self, sums: UInt64Array, masks: UInt8Array, run: Int32Array, log_delta: int, out: Int64Array, threads: int
    ) -> bool:
        blocks, families, slots = sums.shape
        tiles = _tiles(run, slots)
        fits = families == self._families and blocks == len(run) and out.shape == (blocks, slots, families)
        _require(fits and masks.shape == (len(tiles) * POLYNOMIAL_BYTES,), "decrypt: shapes do not fit together")
        ring, (p0, p1) = rings()[0], PRIMES
        in_range = bool((sums < p0).all())
        for tile, packed in zip(tiles, masks.reshape(len(tiles), POLYNOMIAL_BYTES), strict=True):
            mask = unpack(packed)
            in_range &= bool((mask < p0).all())
            product = ring.inverse(ring.multiply(ring.forward(mask % p0), self._secret[0]))
            wanted = tile.wanted(product, slots)
            found = ring.add(sums[tile.block, :, tile.slots] % p0, wanted).astype(object)
            # Numbers of a hundred bits, but few: what was divided by p1 at the switch is now rounded to the grid.
            centred = np.where(found > p0 // 2, found - p0, found)
            rounded = centred * p1 + (1 << (log_delta - 1)) >> log_delta
            out[tile.block, tile.slots] = rounded.T.astype(np.int64)
        return in_range


class NumpyPublic:
    """The public key: for each family what its owner sent, and the half that the seed gives."""

    def __init__(self, families: int, seed: bytes, packed: UInt8Array) -> None:
        _require(packed.shape == (families * len(PRIMES) * POLYNOMIAL_BYTES,), "a public key has another size")
        parts = unpack(packed.reshape(families, len(PRIMES), POLYNOMIAL_BYTES))
        self._families = families
        self._key = [np.vstack((parts[:, j], ring.uniform(seed, j))) for j, ring in enumerate(rings())]
        _require(_all_in_range(self._key), "a public key has residues out of range")

    def sum(
        self,
        ciphertext: UInt8Array,
        seed: bytes,
        bins: Sequence[AnyArray],
        matrix: Int32Array,
        rows: Int32Array,
        begin: Int64Array,
        end: Int64Array,
        run: Int32Array,
        feature_start: Int32Array,
        feature_width: Int32Array,
        log_flood: int,
        log_delta: int,
        added: Int64Array,
        noise: bytes,
        sums: UInt64Array,
        masks: UInt8Array,
        threads: int,
    ) -> bool:
        families, slots = self._families, sums.shape[2]
        runs, tiles = _runs(rows, begin, end, run), _tiles(run, slots)
        shape = (len(runs), families, len(PRIMES), POLYNOMIAL_BYTES)
        fits = (
            ciphertext.shape == (np.prod(shape),)
            and sums.shape[:2] == (len(begin), families)
            and masks.shape == (len(tiles) * POLYNOMIAL_BYTES,)
            and len(feature_start) == len(feature_width)
            and all(each.shape[1] == len(feature_start) for each in bins)
            and len(matrix) == len(begin)
            and 0 <= log_flood <= MOST_LOG_FLOOD
            and (not len(added) or added.shape == sums.shape)
        )
        _require(fits and len(seed) == len(noise) == SEED_BYTES, "sum: shapes do not fit together")
        packed = ciphertext.reshape(shape)
        for block, of in enumerate(matrix.tolist()):
            own_runs = [each for each in runs if each.block == block]
            own_tiles = [each for each in tiles if each.block == block]
            totals = np.zeros((len(own_tiles), len(PRIMES), families + 1, DEGREE), dtype=np.uint64)
            for first in range(0, len(own_runs), _RUNS_AT_ONCE):
                some = own_runs[first : first + _RUNS_AT_ONCE]
                loaded = _load(packed, seed, [each.number for each in some])
                if not _all_in_range(loaded):
                    return False
                slot = [np.asarray(bins[of][each.rows], dtype=np.int64) + feature_start for each in some]
                for tile, total in zip(own_tiles, totals, strict=True):
                    polynomials = np.array([tile.polynomial(each) for each in slot])
                    for ring, parts, carried in zip(rings(), loaded, total, strict=True):
                        # One transform of the tile serves all families and the mask.
                        product = ring.multiply(ring.forward(polynomials)[:, None], parts).sum(axis=0)
                        carried[:] = ring.add(carried, product % ring.p)
            for tile, total in zip(own_tiles, totals, strict=True):
                more = added[block] if len(added) else None
                self._finish(tile, total, log_flood, log_delta, more, KeyStream(noise, tile.number), sums, masks)
        return True

    def _finish(
        self,
        tile: _Tile,
        total: UInt64Array,
        log_flood: int,
        log_delta: int,
        added: Int64Array | None,
        source: KeyStream,
        sums: UInt64Array,
        masks: UInt8Array,
    ) -> None:
        """Hide the tile: a public-key encryption of zero over the mask, a flood over what is wanted; then switch.

        What is added is scaled like a message, modulo q, before that: nothing but the new sum appears.
        """
        families, slots = self._families, sums.shape[2]
        mask_error, u = errors(source), ternary(source)
        wanted: list[UInt64Array] = []
        mask: list[UInt64Array] = []
        for j, ring in enumerate(rings()):
            hiding = ring.multiply(ring.forward(ring.residues(u)), self._key[j])
            coefficients = ring.inverse(ring.add(total[j], hiding))
            wanted.append(tile.wanted(coefficients[:families], slots))
            mask.append(ring.add(coefficients[families], ring.residues(mask_error)))
        over = flood(source, wanted[0].size, log_flood).reshape(wanted[0].shape)
        flooded = [ring.add(each, ring.residues(over)) for ring, each in zip(rings(), wanted, strict=True)]
        if added is not None:
            flooded = [
                ring.add(each, ring.scale(ring.residues(added[:, tile.slots]), 1 << log_delta))
                for ring, each in zip(rings(), flooded, strict=True)
            ]
        sums[tile.block, :, tile.slots] = to_first_prime(flooded[0], flooded[1])
        at = tile.number * POLYNOMIAL_BYTES
        masks[at : at + POLYNOMIAL_BYTES] = pack(to_first_prime(mask[0], mask[1]))


@dataclass(frozen=True)
class _Run:
    """Rows that share a ciphertext; runs are numbered over all blocks."""

    number: int
    block: int
    rows: Int32Array


@dataclass(frozen=True)
class _Tile:
    """N / run consecutive slots of a block; tiles are numbered over all blocks."""

    number: int
    block: int
    run: int
    slots: slice

    def polynomial(self, slot: Int64Array) -> UInt64Array:
        """Of a run whose row j falls in slot[j, f] for feature f: the sum of X^(b run + run-1 - j), b counted within
        the tile. Times sum_j m_j X^j it has the sum of slot b at coefficient b run + run-1."""
        row, feature = np.nonzero((slot >= self.slots.start) & (slot < self.slots.stop))
        within = slot[row, feature] - self.slots.start
        return np.bincount(within * self.run + self.run - 1 - row, minlength=DEGREE).astype(np.uint64)

    def wanted(self, coefficients: UInt64Array, slots: int) -> UInt64Array:
        """Those of this tile's slots; the last tile may have fewer than it has room for."""
        return coefficients[..., self.run - 1 :: self.run][..., : slots - self.slots.start]


def _tiles(run: Int32Array, slots: int) -> list[_Tile]:
    found: list[_Tile] = []
    for block, length in enumerate(run.tolist()):
        _check_run(length)
        in_tile = DEGREE // length
        for first in range(0, slots, in_tile):
            found.append(_Tile(len(found), block, length, slice(first, first + in_tile)))
    return found


def _runs(rows: Int32Array, begin: Int64Array, end: Int64Array, run: Int32Array) -> list[_Run]:
    _require(len(begin) == len(end) == len(run), "blocks do not fit together")
    found: list[_Run] = []
    for block, (first, last, length) in enumerate(zip(begin.tolist(), end.tolist(), run.tolist(), strict=True)):
        _check_run(length)
        _require(0 <= first <= last <= len(rows), "a block is not among the rows")
        for start in range(first, last, length):
            found.append(_Run(len(found), block, rows[start : min(start + length, last)]))
    return found


def _check_run(length: int) -> None:
    _require(LEAST_RUN <= length <= MOST_RUN and length & (length - 1) == 0, "a run is not a power of two in range")


def _less_product(ring: Ring, coefficients: UInt64Array, a: UInt64Array, secret: UInt64Array) -> UInt64Array:
    """coefficients - a s, transformed; `a` and `secret` are already."""
    return ring.subtract(ring.forward(coefficients), ring.multiply(a, secret))


def _load(packed: UInt8Array, seed: bytes, numbers: Sequence[int]) -> list[UInt64Array]:
    """For each prime the runs' (run, family or mask, N); the mask is expanded from the seed."""
    parts = unpack(packed[numbers])
    loaded: list[UInt64Array] = []
    for j, ring in enumerate(rings()):
        masks = np.array([ring.uniform(seed, number * len(PRIMES) + j) for number in numbers])
        loaded.append(np.concatenate((parts[:, :, j], masks[:, None]), axis=1))
    return loaded


def _all_in_range(by_prime: Sequence[UInt64Array]) -> bool:
    return all(bool((residues < ring.p).all()) for ring, residues in zip(rings(), by_prime, strict=True))


def _require(fits: bool, otherwise: str) -> None:
    if not fits:
        raise ValueError(otherwise)
