"""Sums under reusable masks, written from the definitions: the twin that the C++ kernel is held against.

Numbers of more than 64 bits are Python's own. The same bytes as `native/masks.cpp` for the same seeds.
"""

from __future__ import annotations

import numpy as np

from lattice_ring import KeyStream, errors, flood, rings, ternary
from veilboost.crypto.lattice.keys import DEGREE, FAMILIES, PRIMES
from veilboost.crypto.lattice.masks import MaskSizes
from veilboost.types import AnyArray, Int8Array, Int32Array, Int64Array, UInt8Array, UInt64Array

Q = PRIMES[0] * PRIMES[1]
# z / q is the fractional part of the sum of x_j / p_j times the inverse of q / p_j modulo p_j: to 192 bits.
_FRACTIONS = [(pow(Q // p, -1, p) << 192) // p for p in PRIMES]


def rounded(residues: list[UInt64Array], bits: int) -> AnyArray:
    """Numbers modulo q, given modulo both primes, as multiples of q / 2^bits: the nearest, an array of objects."""
    first, second = (each.astype(object) for each in residues)
    fraction = (first * _FRACTIONS[0] + second * _FRACTIONS[1]) % 2**192 >> 64
    return (fraction + 2 ** (127 - bits)) % 2**128 >> (128 - bits)


def as_bytes(numbers: AnyArray, width: int) -> UInt8Array:
    """Each number in `width` bytes, lowest first, along a new last axis."""
    whole = b"".join(int(number).to_bytes(width, "little") for number in numbers.ravel())
    return np.frombuffer(whole, dtype=np.uint8).reshape(*numbers.shape, width)


def as_numbers(packed: UInt8Array) -> AnyArray:
    """The inverse of `as_bytes`."""
    flat = packed.reshape(-1, packed.shape[-1])
    numbers = np.array([int.from_bytes(each.tobytes(), "little") for each in flat], dtype=object)
    return numbers.reshape(packed.shape[:-1])


def encrypt(seed: bytes, values: Int32Array, key: bytes, sizes: MaskSizes) -> tuple[UInt8Array, UInt8Array]:
    """Rows (rows, families * width) and key part (families, N, width)."""
    secrets = np.array([ternary(KeyStream(key, family)) for family in range(FAMILIES)])
    polynomials = -(-len(values) // DEGREE) + 1
    parts: list[AnyArray] = []
    for number in range(polynomials):
        error = np.array([errors(KeyStream(key, FAMILIES * (number + 1) + family)) for family in range(FAMILIES)])
        residues: list[UInt64Array] = []
        for j, ring in enumerate(rings()):
            a = ring.uniform(seed, number * len(PRIMES) + j)
            product = ring.inverse(ring.multiply(a, ring.forward(ring.residues(secrets))))
            residues.append(ring.subtract(ring.residues(error), product))
        parts.append(rounded(residues, sizes.bits))
    dense = np.concatenate(parts[1:], axis=1).T[: len(values)]
    dense = (dense + values.astype(object) * 2**sizes.log_delta) % 2**sizes.bits
    return as_bytes(dense, sizes.width).reshape(len(values), -1), as_bytes(parts[0], sizes.width)


def make_masks(
    seed: bytes, sizes: MaskSizes, bins: AnyArray, offsets: Int32Array, noise: bytes
) -> tuple[UInt8Array, Int8Array]:
    """Masks (slots, bytes, N) and the factors (slots, N) that remove them."""
    masks: list[UInt8Array] = []
    factors: list[Int64Array] = []
    for feature, bin_of in enumerate(bins.T):
        for slot in range(int(offsets[feature]), int(offsets[feature + 1])):
            source = KeyStream(noise, slot)
            error, u = errors(source), ternary(source)
            member = bin_of == slot - offsets[feature]
            residues: list[UInt64Array] = []
            for j, ring in enumerate(rings()):
                total = ring.multiply(ring.uniform(seed, j), ring.forward(ring.residues(u)))
                for number, first in enumerate(range(0, len(bins), DEGREE), start=1):
                    rows = np.zeros(DEGREE, dtype=np.int64)
                    rows[: len(member[first : first + DEGREE])] = member[first : first + DEGREE]
                    a = ring.uniform(seed, number * len(PRIMES) + j)
                    total = ring.add(total, ring.multiply(a, ring.forward(ring.residues(inverted(rows)))))
                residues.append(ring.add(ring.inverse(total), ring.residues(error)))
            # <h, s> is the constant coefficient of h(1/X) s.
            backwards = [
                ring.residues(inverted(each.astype(np.int64))) for ring, each in zip(rings(), residues, strict=True)
            ]
            masks.append(as_bytes(rounded(backwards, 8 * sizes.mask_bytes), sizes.mask_bytes).T)
            factors.append(inverted(u))
    return np.array(masks), np.array(factors).astype(np.int8)


def inverted(polynomial: Int64Array) -> Int64Array:
    """P(1/X): X^-i is -X^(N-i)."""
    return np.concatenate((polynomial[:1], -polynomial[:0:-1]))


def answer(
    rows: UInt8Array,
    part: UInt8Array,
    bins: AnyArray,
    offsets: Int32Array,
    factors: Int8Array,
    sizes: MaskSizes,
    noise: bytes,
    added: Int64Array,
) -> UInt64Array:
    dense, slots = as_numbers(rows.reshape(len(bins), FAMILIES, -1)), int(offsets[-1])
    over = flood(KeyStream(noise, 0), FAMILIES * slots, sizes.log_flood).reshape(FAMILIES, slots)
    drop = sizes.bits - 8 * sizes.mask_bytes
    found = np.zeros((FAMILIES, slots), dtype=np.uint64)
    key = as_numbers(part)
    for feature, bin_of in enumerate(bins.T):
        for slot in range(int(offsets[feature]), int(offsets[feature + 1])):
            for family in range(FAMILIES):
                total = int(dense[bin_of == slot - offsets[feature], family].sum())
                total += int((factors[slot].astype(object) * key[family]).sum())
                total += int(over[family, slot]) + (int(added[family, slot]) << sizes.log_delta)
                total += 1 << (drop - 1) if drop else 0
                found[family, slot] = total % 2**sizes.bits >> drop
    return found


def decrypt(found: UInt64Array, masks: UInt8Array, key: bytes, sizes: MaskSizes) -> Int64Array:
    bits = 8 * sizes.mask_bytes
    scale = sizes.log_delta - (sizes.bits - bits)
    out = np.zeros((found.shape[1], FAMILIES), dtype=np.int64)
    for family in range(FAMILIES):
        secret = ternary(KeyStream(key, family)).astype(object)
        for slot in range(found.shape[1]):
            mask = as_numbers(np.ascontiguousarray(masks[slot].T))
            phase = (int(found[family, slot]) + int((mask * secret).sum())) % 2**bits
            centred = phase - 2**bits if phase >= 2 ** (bits - 1) else phase
            out[slot, family] = (centred + 2 ** (scale - 1)) >> scale
    return out
