"""Dense ciphertexts in NumPy: the twin that the C++ kernel is held against.

The same bytes as `native/lattice/expansion_body.h` for the same seeds, from the definitions: ciphertexts are kept as
coefficients, automorphisms move them, and every run of a level is reached by its own path from the root.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from lattice_ring import KeyStream, Ring, errors, pack, ternary, unpack
from veilboost.crypto.lattice.expansion import DEGREE, POLYNOMIAL_BYTES, PRIMES, ROOTS, ROW_BYTES
from veilboost.types import AnyArray, Int32Array, Int64Array, UInt8Array, UInt64Array

FAMILIES, MODULI, SPECIAL = 2, 2, PRIMES[2]
_LINE_TILES = 64
_Q = PRIMES[0] * PRIMES[1]


@cache
def rings() -> tuple[Ring, ...]:
    return tuple(Ring(p, root, DEGREE) for p, root in zip(PRIMES, ROOTS, strict=True))


def centred(residues: UInt64Array, p: int) -> Int64Array:
    signed = residues.astype(np.int64)
    return np.where(signed > p // 2, signed - p, signed)


def automorphism(polynomial: AnyArray, step: int) -> AnyArray:
    """X to X^(N / 2^step + 1), on signed coefficients."""
    exponent = np.arange(DEGREE) * (DEGREE // 2**step + 1) % (2 * DEGREE)
    out = np.empty_like(polynomial)
    out[..., exponent % DEGREE] = np.where(exponent < DEGREE, polynomial, -polynomial)
    return out


def moved(ring: Ring, residues: UInt64Array, step: int) -> UInt64Array:
    return ring.residues(automorphism(residues.astype(np.int64), step))


def shifted_down(ring: Ring, residues: UInt64Array, by: int) -> UInt64Array:
    """Times X^-by: what falls out at the low end comes back at the high end with the other sign."""
    signed = np.concatenate((residues[..., by:].astype(np.int64), -residues[..., :by].astype(np.int64)), axis=-1)
    return ring.residues(signed)


@dataclass(frozen=True)
class _Run:
    """Rows that become one ciphertext: row j at coefficient residue + 2^depth j of ciphertext `number`."""

    number: int
    block: int
    depth: int
    residue: int
    rows: Int64Array  # positions in the list of all rows


@dataclass(frozen=True)
class _Tile:
    """2^depth slots of a line; each cell is the block and the slot of a number."""

    depth: int
    cells: list[tuple[int, int]]


def _runs(begin: Int64Array, end: Int64Array, depth: Int32Array) -> list[_Run]:
    found, position = list[_Run](), 0
    for block in np.argsort(depth, kind="stable").tolist():
        log = int(depth[block])
        run = DEGREE >> log
        for first in range(int(begin[block]), int(end[block]), run):
            number, offset = divmod(position, DEGREE)
            residue = int(f"{offset // run:0{log}b}"[::-1], 2)
            rows = np.arange(first, min(first + run, int(end[block])))
            found.append(_Run(number, block, log, residue, rows))
            position += run
    return found


def tiles_of(depth: Int32Array, slots: int) -> list[_Tile]:
    found = list[_Tile]()
    line, log = list[tuple[int, int]](), 0

    def close() -> None:
        found.extend(_Tile(log, line[at : at + 2**log]) for at in range(0, len(line), 2**log))

    for block in np.argsort(depth, kind="stable").tolist():
        if line and (log != depth[block] or len(line) >= _LINE_TILES << log):
            close()
            line = []
        log = int(depth[block])
        line += [(block, slot) for slot in range(slots)]
    close()
    return found


class NumpyExpansionSecret:
    def __init__(self, key: bytes) -> None:
        self._key = key
        self._small = np.array([ternary(KeyStream(key, family), DEGREE) for family in range(FAMILIES)])
        self.secret = [ring.forward(ring.residues(self._small)) for ring in rings()]

    def _part(self, family: int, message: Int64Array, of: int, primes: int, seed: bytes, stream: int, noise: int):
        """-a s + e modulo the first primes, and the message times the special prime modulo prime `of`."""
        error = errors(KeyStream(self._key, noise), DEGREE)
        for j, ring in enumerate(rings()[:primes]):
            plain = ring.residues(error)
            if j == of:
                plain = ring.add(plain, ring.scale(ring.residues(message), SPECIAL))
            a = ring.uniform(seed, stream + j)
            yield pack(ring.subtract(ring.forward(plain), ring.multiply(a, self.secret[j][family])))

    def public_keys(self, seed: bytes, depth: int, out: UInt8Array, threads: int) -> None:
        parts = list[UInt8Array]()
        for family in range(FAMILIES):
            parts += self._part(family, self._small[family], -1, MODULI, seed, 0, FAMILIES + family)
        for step in range(depth):
            images = automorphism(self._small, step)
            for digit in range(2):
                number = 2 * step + digit
                for family in range(FAMILIES):
                    noise = FAMILIES + FAMILIES * (1 + number) + family
                    parts += self._part(family, images[family], digit, 3, seed, MODULI + 3 * number, noise)
        out[:] = np.concatenate(parts)

    def encrypt(
        self,
        values: Int32Array,
        group: Int32Array,
        rows: Int32Array,
        begin: Int64Array,
        end: Int64Array,
        depth: Int32Array,
        log_delta: int,
        seed: bytes,
        noise: bytes,
        out: UInt8Array,
        threads: int,
    ) -> None:
        packed = out.reshape(-1, ROW_BYTES)
        runs = _runs(begin, end, depth)
        for number in {run.number for run in runs}:
            error = np.array(
                [errors(KeyStream(noise, number * FAMILIES + family), DEGREE) for family in range(FAMILIES)]
            )
            hidden = [
                ring.subtract(
                    ring.residues(error),
                    ring.inverse(ring.multiply(ring.uniform(seed, number * MODULI + j), self.secret[j])),
                )
                for j, ring in enumerate(rings()[:MODULI])
            ]
            for run in (each for each in runs if each.number == number):
                at = run.residue + (np.arange(len(run.rows)) << run.depth)
                message = values[group[run.block], rows[run.rows]].T.astype(np.int64)
                parts = [
                    ring.add(each[:, at], ring.scale(ring.residues(message), 1 << (log_delta - run.depth)))
                    for ring, each in zip(rings(), hidden, strict=False)
                ]
                packed[run.rows - begin[0]] = pack(np.stack(parts, axis=1).reshape(FAMILIES * MODULI, -1).T)

    def decrypt(
        self,
        sums: UInt8Array,
        masks: UInt8Array,
        depth: Int32Array,
        slots: int,
        bits: int,
        log_delta: int,
        out: Int64Array,
        threads: int,
    ) -> None:
        ring, (p0, p1, _) = rings()[0], PRIMES
        numbers = _unpack_bits(sums, bits, len(depth) * FAMILIES * slots).reshape(len(depth), FAMILIES, slots)
        tiles = tiles_of(depth, slots)
        for tile, packed in zip(tiles, masks.reshape(len(tiles), -1), strict=True):
            mask = _longer(_unpack_bits(packed, bits, DEGREE), bits).astype(np.uint64) % np.uint64(p0)
            product = ring.inverse(ring.multiply(ring.forward(mask), self.secret[0])).astype(object)
            for b, (block, slot) in enumerate(tile.cells):
                x = (_longer(numbers[block, :, slot], bits) + product[:, b]) % p0
                x = np.where(x > p0 // 2, x - p0, x)
                out[block, slot] = (x * p1 + (1 << (log_delta - 1)) >> log_delta).astype(np.int64)


class NumpyExpansionPublic:
    def __init__(self, seed: bytes, packed: UInt8Array, depth: int) -> None:
        parts = unpack(packed.reshape(-1, POLYNOMIAL_BYTES))
        own = FAMILIES * MODULI
        public, steps = (
            parts[:own].reshape(FAMILIES, MODULI, DEGREE),
            parts[own:].reshape(depth, 2, FAMILIES, 3, DEGREE),
        )
        if not all((public[:, j] < PRIMES[j]).all() for j in range(MODULI)):
            raise ValueError("a public key has residues out of range")
        if not all((steps[..., j, :] < PRIMES[j]).all() for j in range(3)):
            raise ValueError("a public key has residues out of range")
        self._public = [np.vstack((public[:, j], rings()[j].uniform(seed, j)[None])) for j in range(MODULI)]
        self._steps = [
            [
                [
                    np.vstack((steps[step, digit, :, j], ring.uniform(seed, MODULI + 3 * (2 * step + digit) + j)[None]))
                    for j, ring in enumerate(rings())
                ]
                for digit in range(2)
            ]
            for step in range(depth)
        ]

    def switched(self, mask: Sequence[UInt64Array], step: int) -> list[UInt64Array]:
        """Special times sigma(mask) s as a ciphertext (g, h, mask) modulo all primes, from the mask modulo q."""
        digits = [centred(moved(ring, mask[d], step), ring.p) for d, ring in enumerate(rings()[:MODULI])]
        found = list[UInt64Array]()
        for j, ring in enumerate(rings()):
            products = [
                ring.multiply(ring.forward(ring.residues(digit)), self._steps[step][d][j])
                for d, digit in enumerate(digits)
            ]
            found.append(ring.inverse(ring.add(products[0], products[1])))
        return found

    def leaf(self, run: _Run, first: Sequence[UInt64Array], mask: Sequence[UInt64Array]) -> list[UInt64Array]:
        """The run's ciphertext (g, h, mask) modulo all primes, times the special prime.

        `first` are the first halves, times the special prime modulo all primes, `mask` is modulo q.
        """
        first, mask = list(first), list(mask)
        for step in range(run.depth):
            odd, last = run.residue >> step & 1, step == run.depth - 1
            by_prime = self.switched(mask, step)
            divided = divided_by_special([each[FAMILIES] for each in by_prime])
            scaled = [ring.scale(mask[j], SPECIAL) if j < MODULI else mask[0] * 0 for j, ring in enumerate(rings())]
            result = list[UInt64Array]()
            for j, ring in enumerate(rings()):
                moved_halves = ring.add(moved(ring, first[j], step), by_prime[j][:FAMILIES])
                own, other = first[j], moved_halves
                if last:
                    own = np.vstack((own, scaled[j][None]))
                    other = np.vstack((other, by_prime[j][FAMILIES][None]))
                half = ring.subtract(own, other) if odd else ring.add(own, other)
                result.append(shifted_down(ring, half, 2**step) if odd else half)
            if last:
                return result
            first = result
            for j, ring in enumerate(rings()[:MODULI]):
                half = ring.subtract(mask[j], divided[j]) if odd else ring.add(mask[j], divided[j])
                mask[j] = shifted_down(ring, half, 2**step) if odd else half
        raise ValueError("a depth of nothing")

    def sum(
        self,
        ciphertext: UInt8Array,
        seed: bytes,
        bins: Sequence[AnyArray],
        matrix: Int32Array,
        rows: Int32Array,
        begin: Int64Array,
        end: Int64Array,
        depth: Int32Array,
        feature_start: Int32Array,
        slots: int,
        log_flood: int,
        log_delta: int,
        bits: int,
        added: Int64Array,
        noise: bytes,
        sums: UInt8Array,
        masks: UInt8Array,
        threads: int,
    ) -> bool:
        residues = unpack(ciphertext.reshape(-1, ROW_BYTES)).reshape(-1, FAMILIES, MODULI)
        if not (residues < np.array(PRIMES[:MODULI], dtype=np.uint64)).all():
            return False
        runs, tiles = _runs(begin, end, depth), tiles_of(depth, slots)
        totals = [[np.zeros((FAMILIES + 1, DEGREE), dtype=np.uint64) for _ in PRIMES] for _ in tiles]
        for run in runs:
            at = run.residue + (np.arange(len(run.rows)) << run.depth)
            first = [np.zeros((FAMILIES, DEGREE), dtype=np.uint64) for _ in PRIMES]
            for j, ring in enumerate(rings()[:MODULI]):
                first[j][:, at] = ring.scale(residues[run.rows - begin[0], :, j].T, SPECIAL)
            mask = [
                ring.inverse(ring.uniform(seed, run.number * MODULI + j)) for j, ring in enumerate(rings()[:MODULI])
            ]
            leaf = [ring.forward(each) for ring, each in zip(rings(), self.leaf(run, first, mask), strict=True)]
            slot = bins[matrix[run.block]][rows[run.rows]].astype(np.int64) + feature_start
            for tile, total in zip(tiles, totals, strict=True):
                if tile.depth != run.depth or run.block not in {block for block, _ in tile.cells}:
                    continue
                polynomial = np.zeros(DEGREE, dtype=np.int64)
                for b, (block, wanted) in enumerate(tile.cells):
                    if block == run.block:
                        exponent = b - (np.nonzero(slot == wanted)[0] << run.depth)
                        np.add.at(polynomial, exponent % DEGREE, np.where(exponent < 0, -1, 1))
                for j, ring in enumerate(rings()):
                    total[j] = ring.add(total[j], ring.multiply(ring.forward(ring.residues(polynomial)), leaf[j]))
        numbers = np.zeros((len(depth), FAMILIES, slots), dtype=np.uint64)
        packed = masks.reshape(len(tiles), -1)
        for number, (tile, total) in enumerate(zip(tiles, totals, strict=True)):
            source = KeyStream(noise, number)
            error, u = errors(source, DEGREE), ternary(source, DEGREE)
            for j, ring in enumerate(rings()[:MODULI]):
                hiding = ring.scale(ring.multiply(ring.forward(ring.residues(u)), self._public[j]), SPECIAL)
                total[j] = ring.add(total[j], hiding)
            parts = divided_by_special([ring.inverse(each) for ring, each in zip(rings(), total, strict=True)])
            mask = [ring.add(part[FAMILIES], ring.residues(error)) for ring, part in zip(rings(), parts, strict=False)]
            packed[number] = _pack_bits(_shorter(to_first_prime(mask), bits), bits)
            count = len(tile.cells)
            words = source.words(2 * FAMILIES * count).astype(object).reshape(FAMILIES, count, 2)
            flood = ((words[..., 0] << 64 | words[..., 1]) >> (127 - log_flood)) - (1 << log_flood)
            more = np.zeros((FAMILIES, count), dtype=object)
            if len(added):
                more[:] = np.array([added[block, :, slot] for block, slot in tile.cells]).T.astype(object) << log_delta
            wanted = [
                ((part[:FAMILIES, :count].astype(object) + flood + more) % ring.p).astype(np.uint64)
                for ring, part in zip(rings(), parts, strict=False)
            ]
            found = _shorter(to_first_prime(wanted), bits)
            for b, (block, slot) in enumerate(tile.cells):
                numbers[block, :, slot] = found[:, b]
        sums[:] = _pack_bits(numbers.ravel(), bits)
        return True


def divided_by_special(by_prime: Sequence[UInt64Array]) -> list[UInt64Array]:
    """The nearest to z / special, modulo the primes of q."""
    rest = centred(by_prime[MODULI], SPECIAL)
    return [
        ring.scale(ring.subtract(by_prime[j], ring.residues(rest)), pow(SPECIAL, -1, ring.p))
        for j, ring in enumerate(rings()[:MODULI])
    ]


def joined(by_prime: Sequence[UInt64Array]) -> AnyArray:
    """The numbers around zero with these residues modulo the primes of q."""
    p0, p1, _ = PRIMES
    first, second = (each.astype(object) for each in by_prime)
    z = second + p1 * ((first - second) * pow(p1, -1, p0) % p0)
    return np.where(z > _Q // 2, z - _Q, z)


def to_first_prime(by_prime: Sequence[UInt64Array]) -> AnyArray:
    """Modulus switch: the nearest to z / p1, modulo p0."""
    p0, p1, _ = PRIMES
    return (2 * joined(by_prime) + p1) // (2 * p1) % p0


def _shorter(residues: AnyArray, bits: int) -> UInt64Array:
    """The nearest to x 2^bits / p0, by a factor of 64 bits."""
    factor = (1 << (64 + bits)) // PRIMES[0]
    return ((residues.astype(object) * factor + (1 << 63) >> 64) % (1 << bits)).astype(np.uint64)


def _longer(numbers: UInt64Array, bits: int) -> AnyArray:
    return numbers.astype(object) * PRIMES[0] + (1 << (bits - 1)) >> bits


def _pack_bits(numbers: UInt64Array, bits: int) -> UInt8Array:
    every = np.unpackbits(numbers.astype("<u8")[:, None].view(np.uint8), axis=1, bitorder="little")
    return np.packbits(every[:, :bits].ravel(), bitorder="little")


def _unpack_bits(packed: UInt8Array, bits: int, count: int) -> UInt64Array:
    every = np.unpackbits(packed, bitorder="little")[: count * bits].reshape(count, bits)
    padded = np.pad(every, ((0, 0), (0, 64 - bits)))
    return np.packbits(padded, axis=1, bitorder="little").view("<u8")[:, 0].astype(np.uint64)
