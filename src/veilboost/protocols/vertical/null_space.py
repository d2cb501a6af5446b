"""Vectors orthogonal to given columns, and sums over float64 vectors whose error has a bound.

Null spaces are made by projection: random vectors, less what of them lies in the span of the columns. That costs
rows * columns^2, never rows^2.
"""

from __future__ import annotations

import math

import numpy as np

from veilboost.crypto.csprng import Csprng
from veilboost.types import Float64Array, Int64Array

UNIT = 2.0**-53  # half the distance from 1.0 to the next float64
RESIDUAL = 128.0  # a null vector may miss a column by this many UNITs of the column's norm
_CHUNK = 256
_CHUNKED = 288.0  # rounding errors that a chunked sum can add up: a chunk, then NumPy's pairwise sum over chunks
_RIDGE = 1e-10  # of unit columns; keeps the normal equations solvable where columns depend on each other
_PASSES = 12
_DRAWN = 1 << 16  # normal values that are made at once: what that takes stays in the caches


def gaussian(source: Csprng, rows: int, columns: int) -> Float64Array:
    """Independent standard normal values, by Box and Muller's transform of 53-bit uniforms."""
    values = np.empty(rows * columns)
    for first in range(0, len(values), _DRAWN):
        part = values[first : first + _DRAWN]
        half = (len(part) + 1) // 2
        drawn = np.frombuffer(source.bytes(16 * half), dtype="<u8") >> np.uint64(11)
        uniform = (drawn.astype(np.float64) + 0.5) * UNIT
        radius, angle = np.sqrt(-2.0 * np.log(uniform[:half])), 2.0 * math.pi * uniform[half:]
        part[:half] = radius * np.cos(angle)
        part[half:] = (radius * np.sin(angle))[: len(part) - half]
    return values.reshape(rows, columns)


def lengths(columns: Float64Array) -> Float64Array:
    return np.sqrt(np.einsum("ij,ij->j", columns, columns))


def null_vectors(columns: Float64Array, count: int, source: Csprng) -> Float64Array:
    """`count` random orthonormal vectors (rows, count) that are orthogonal to all columns (rows, width).

    Their span is uniform among the subspaces of that dimension in the null space. Columns may depend on each other.

    Raises
    ------
    ArithmeticError
        If the null space is too small, or rounding did not let the vectors come close enough to it.
    """
    norm = lengths(columns)
    scaled = np.allclose(norm, 1.0, rtol=0.0, atol=1e-9)  # such columns may be large: they are not copied
    unit = columns if scaled else columns[:, norm > 0] / norm[norm > 0]
    rows, width = unit.shape
    if width + count > rows:
        raise ArithmeticError("there are too few rows for so many null vectors")
    identity: Float64Array = np.eye(width)
    basis, normal = unit, unit.T @ unit + _RIDGE * identity
    block = gaussian(source, rows, count)
    for number in range(_PASSES):
        if number == _PASSES // 2:  # nearly dependent columns make the normal equations slow to converge
            basis, normal = np.linalg.qr(unit)[0], identity
        block = np.linalg.qr(block - basis @ np.linalg.solve(normal, basis.T @ block))[0]
        # The computed products may themselves be off by _CHUNKED units, which `rounding_error` counts.
        if number and np.abs(chunked_product(unit.T, block)).max(initial=0.0) <= RESIDUAL * UNIT:
            return block
    raise ArithmeticError("no null vectors were found that are exact enough")


def chunked_product(left: Float64Array, right: Float64Array) -> Float64Array:
    """left (m, rows) times right (rows, k), each entry off by at most _CHUNKED * UNIT * sum |left| |right|."""
    count = left.shape[1] // _CHUNK
    whole = count * _CHUNK
    chunks = np.matmul(
        left[:, :whole].reshape(left.shape[0], count, _CHUNK).transpose(1, 0, 2),
        right[:whole].reshape(count, _CHUNK, right.shape[1]),
    )
    partial = np.concatenate((chunks, (left[:, whole:] @ right[whole:])[None]))
    return np.ascontiguousarray(np.moveaxis(partial, 0, -1)).sum(axis=-1)


def chunked_bin_sums(bins: Int64Array, size: int, values: Float64Array) -> Float64Array:
    """Sums of values (rows, k) over the rows of each bin (rows, features) of `size`: (size, k), as exact as above."""
    rows, features = bins.shape
    chunk = np.arange(rows, dtype=np.int64) // _CHUNK
    chunks = -(-rows // _CHUNK)
    flat = (chunk[:, None] + chunks * bins).ravel()
    sums = [np.bincount(flat, np.repeat(column, features), chunks * size) for column in values.T]
    return np.stack([each.reshape(size, chunks).sum(axis=-1) for each in sums], axis=1)


def rounding_error(rows: int, norm: float, count: int) -> float:
    """The most by which a sum over a subset of rows can be off after masking by up to `count` kernel vectors.

    With v of length `norm` and m the indicator of a subset (length up to sqrt(rows)), m'(I - ZZ')v is computed instead
    of m'v, where Z is orthogonal to v or to m. Three errors add up, each a multiple of UNIT * |m| * |v|: the rounded
    entries of the masked matrix (count + 2 operations on terms up to 1 + sqrt(count)), Z's own deviation from
    orthogonality, and the final sum.
    """
    entries = (count + 2) * (1 + math.sqrt(count))
    deviation = math.sqrt(count) * (RESIDUAL + _CHUNKED)
    return UNIT * math.sqrt(rows) * norm * (entries + deviation + _CHUNKED)
