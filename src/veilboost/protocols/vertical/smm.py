"""The common part of both versions of FedXGBoost-SMM: kernel vectors, their number and validation, and masking.

Secure matrix multiplication (FedXGBoost, Protocol 1): one party sends Z, orthonormal and orthogonal to its data D; the
other answers (I - ZZ')E instead of its data E; D'(I - ZZ')E is D'E. Null vectors are computed by projection: random
vectors minus their component in the span of the columns. That costs rows * columns^2, never rows^2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from veilboost.boost.grower import Level
from veilboost.boost.rows import RowGroups
from veilboost.config import ProtocolOptions, TrainingConfig
from veilboost.crypto.csprng import Csprng
from veilboost.errors import GradientRange, InvalidParameter, MalformedMessage, UnsupportedCombination
from veilboost.fields import param
from veilboost.types import BoolArray, Float64Array, Int32Array, Int64Array

_DRAWS = 20
_LARGEST_SUM = 2.0**62
_OFF_THE_GRID = 0.25  # below one half sums are exact; rounding errors stay below this
_ORTHONORMAL = 1e-12
_DIAGONAL = 1e-11  # above the error of a vector's length
_HIDDEN = 1e-15  # relative to a row of ZZ' if all rows were equal


@dataclass(frozen=True)
class KernelOptions(ProtocolOptions):
    """How nodes are masked."""

    r: int = param(16, "most kernel vectors of a node", low=1, high=1_000_000)
    share: float = param(0.1, "most kernel vectors of a node, as a share of its rows", low=0, high=1, low_open=True)
    rotate: bool = param(False, "hardening: mask with a secret rotation of the kernel vectors instead of a subset")
    revealed: float = param(
        0.0,
        "hardening: largest rank per row that masked answers may reveal in a tree; 0: as published, no bound",
        low=0,
    )

    def count(self, rows: int, columns: int) -> int:
        """The number of kernel vectors of a node, which must be orthogonal to this many columns."""
        return max(min(self.r, max(int(self.share * rows), 1), rows - columns), 0)


def refuse(config: TrainingConfig, options: KernelOptions) -> None:
    """During validation: refuse a bound `revealed` that no choice of vectors can keep."""
    if options.revealed and options.share < 1 - options.revealed / config.max_depth:
        raise UnsupportedCombination(
            f"revealed={options.revealed:g} cannot be kept over {config.max_depth} levels with share={options.share:g}",
            f"raise share to {1 - options.revealed / config.max_depth:g}, raise revealed, or lower max_depth",
        )


def refuse_rows(rows: int, config: TrainingConfig, options: KernelOptions) -> None:
    """At the start of the job: the same check, now that the number of rows is known."""
    refuse(config, options)
    needed = math.ceil(rows * (1 - options.revealed / config.max_depth))
    if options.revealed and options.r < needed:
        raise InvalidParameter(
            f"revealed={options.revealed:g} needs {needed} kernel vectors for {rows} rows, r is {options.r}",
            f"raise r to {needed}, raise revealed, or lower max_depth",
        )


def refuse_inexact(gradients: Int32Array, rows: Int32Array, options: KernelOptions) -> None:
    """Raise if float64 cannot hold a round's sums exactly enough for the grid, for any nodes."""
    for pairs in gradients:
        g, h = pairs[rows].T.astype(np.float64)
        norm = max(float(np.linalg.norm(each)) for each in (g, h, g + h))  # smm1 may sum g + h
        if rounding_error(len(rows), norm, options.count(len(rows), 1)) >= _OFF_THE_GRID:
            raise GradientRange(
                f"float64 cannot hold masked sums of {len(rows)} rows exactly at this gradient scale",
                "lower gradient_bits, or scale sample weights down",
            )


class RevealedRank:
    """Sums the rank that masked answers reveal in the trees of a round: n - r' equations for a node of n rows."""

    def __init__(self, rows: int, trees: int, options: KernelOptions) -> None:
        self._most = options.revealed * rows
        self._so_far = np.zeros(trees, dtype=np.int64)

    def after(self, groups: RowGroups, answers: Sequence[tuple[int, int]]) -> None:
        """Add answers of (node, r'), or raise before they are sent."""
        if not self._most:
            return
        so_far = self._so_far.copy()
        counts = groups.counts
        for node, vectors in answers:
            so_far[groups.group[node]] += counts[node] - vectors
        if so_far.max() > self._most:
            raise UnsupportedCombination(
                "the next answer would reveal more of this tree than `revealed` allows",
                "raise revealed, or lower max_depth",
            )
        self._so_far = so_far


def without_single_rows(level: Level) -> Level:
    """If the child to be summed has one row, which no mask hides, sum its sibling instead."""
    single = level.fit.counts[level.build] < 2
    if not single.any():
        return level
    build = np.sort(np.where(single, level.build ^ 1, level.build))
    derived = np.isin(level.derive, build, invert=True)
    return replace(level, build=build, derive=level.derive[derived], parent=level.parent[derived])


def hidden_rows(kernel: Float64Array) -> BoolArray:
    """Which rows of ZZ' have off-diagonal entries; the other rows of the answer would be unmasked (Alg. 3, step 4).

    For orthonormal Z the off-diagonal squares of row i sum to d - d^2, where d is the squared norm of row i of Z.
    """
    diagonal = np.einsum("ij,ij->i", kernel, kernel)
    return (diagonal > _HIDDEN * kernel.shape[1] / max(len(kernel), 1)) & (diagonal < 1 - _DIAGONAL)


def check_kernel(kernel: Float64Array) -> None:
    """Refuse vectors that do not mask: I - ZZ' must be a projector (otherwise it is invertible) and mask every row."""
    if not np.isfinite(kernel).all():
        raise MalformedMessage("a kernel vector is not finite")
    off = kernel.T @ kernel - np.eye(kernel.shape[1])
    if np.abs(off).max(initial=0.0) > _ORTHONORMAL:
        raise MalformedMessage("the kernel vectors are not orthonormal")
    if not hidden_rows(kernel).all():
        raise MalformedMessage("the kernel vectors would leave a row of the answer unmasked")


def draw_mask(kernel: Float64Array, options: KernelOptions, depth: int, source: Csprng) -> Float64Array:
    """Z of the answer: a random number r' of the vectors, drawn again while a row is unmasked (Alg. 2, Alg. 3)."""
    rows, count = kernel.shape
    if not count:
        return kernel
    least = 1  # as published; more if the revealed rank of a tree of this depth is bounded
    if options.revealed:
        least = min(count, max(1, math.ceil(rows * (1 - options.revealed / depth))))
    for _ in range(_DRAWS):
        drawn = np.frombuffer(source.bytes(8 * (count + 1)), dtype="<u8")
        size = least + int(drawn[0] % np.uint64(count - least + 1))  # the bias is below count / 2^64
        if options.rotate:  # a random r'-dimensional subspace of their span, unknown to the sender of the vectors
            mask = kernel @ np.linalg.qr(gaussian(source, count, size))[0]
        else:
            mask = kernel[:, np.argsort(drawn[1:], kind="stable")[:size]]
        if hidden_rows(mask).all():
            return mask
    raise MalformedMessage("the kernel vectors would leave a row of the answer unmasked")


def masked(mask: Float64Array, data: Float64Array) -> Float64Array:
    """(I - ZZ') data."""
    return data - mask @ (mask.T @ data)


def blocks_of(flat: Float64Array, shapes: Sequence[tuple[int, int]]) -> Iterator[Float64Array]:
    """Yield the matrices of these shapes from a flat array."""
    at = 0
    for rows, columns in shapes:
        yield flat[at : at + rows * columns].reshape(rows, columns)
        at += rows * columns


def rounded(sums: Float64Array) -> Int64Array:
    """Round sums to the grid. Honest sums are integers up to a rounding error that `refuse_inexact` bounds."""
    if np.isfinite(sums).all():
        whole = np.rint(sums)
        if np.abs(whole).max(initial=0.0) < _LARGEST_SUM and np.abs(sums - whole).max(initial=0.0) <= _OFF_THE_GRID:
            return whole.astype(np.int64)
    raise MalformedMessage("masked sums are not on the fixed-point grid", "start the job again")


KERNEL_BYTES = 8 * KernelOptions().r  # of the kernel vectors, per row


def cuts_with_rows(rows: int, bins: int) -> float:
    """Expected number of splits of a feature between non-empty bins, if rows fall into bins uniformly."""
    return max(0.0, bins * (1 - (1 - 1 / bins) ** rows) - 1)


UNIT = 2.0**-53  # half the distance from 1.0 to the next float64
RESIDUAL = 128.0  # a null vector may miss a column by this many UNITs of the column's norm
_CHUNK = 256
_CHUNKED = 288.0  # rounding errors of a chunked sum: those of a chunk, then of NumPy's pairwise sum over chunks
_RIDGE = 1e-10  # of unit columns; keeps the normal equations solvable if columns are linearly dependent
_PASSES = 12
_DRAWN = 1 << 16  # normal values drawn at once, so that the buffers stay in the caches


def gaussian(source: Csprng, rows: int, columns: int) -> Float64Array:
    """Independent standard normal values, by the Box-Muller transform of 53-bit uniforms."""
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

    Their span is uniform among the subspaces of that dimension in the null space. Columns may be linearly dependent.
    Raises `ArithmeticError` if the null space is too small, or if rounding keeps the vectors too far from it.
    """
    norm = lengths(columns)
    scaled = np.allclose(norm, 1.0, rtol=0.0, atol=1e-9)  # unit columns may be large, so they are not copied
    unit = columns if scaled else columns[:, norm > 0] / norm[norm > 0]
    rows, width = unit.shape
    if width + count > rows:
        raise ArithmeticError(f"{rows} rows are too few for {count} null vectors of {width} columns")
    identity: Float64Array = np.eye(width)
    basis, normal = unit, unit.T @ unit + _RIDGE * identity
    block = gaussian(source, rows, count)
    for number in range(_PASSES):
        if number == _PASSES // 2:  # with nearly dependent columns the normal equations converge slowly
            basis, normal = np.linalg.qr(unit)[0], identity
        block = np.linalg.qr(block - basis @ np.linalg.solve(normal, basis.T @ block))[0]
        # The computed products may be off by _CHUNKED units, which `rounding_error` includes.
        if number and np.abs(chunked_product(unit.T, block)).max(initial=0.0) <= RESIDUAL * UNIT:
            return block
    raise ArithmeticError("no sufficiently exact null vectors were found")


def chunked_product(left: Float64Array, right: Float64Array) -> Float64Array:
    """Product of left (m, rows) and right (rows, k), within _CHUNKED * UNIT * sum |left| |right| per entry."""
    count = left.shape[1] // _CHUNK
    whole = count * _CHUNK
    chunks = np.matmul(
        left[:, :whole].reshape(left.shape[0], count, _CHUNK).transpose(1, 0, 2),
        right[:whole].reshape(count, _CHUNK, right.shape[1]),
    )
    partial = np.concatenate((chunks, (left[:, whole:] @ right[whole:])[None]))
    return np.ascontiguousarray(np.moveaxis(partial, 0, -1)).sum(axis=-1)


def chunked_bin_sums(bins: Int64Array, size: int, values: Float64Array) -> Float64Array:
    """Sums (size, k) of values (rows, k) over the rows of each of `size` bins (rows, features), as exact as above."""
    rows, features = bins.shape
    chunk = np.arange(rows, dtype=np.int64) // _CHUNK
    chunks = -(-rows // _CHUNK)
    flat = (chunk[:, None] + chunks * bins).ravel()
    sums = [np.bincount(flat, np.repeat(column, features), chunks * size) for column in values.T]
    return np.stack([each.reshape(size, chunks).sum(axis=-1) for each in sums], axis=1)


def rounding_error(rows: int, norm: float, count: int) -> float:
    """The largest error of a sum over a subset of rows after masking with up to `count` kernel vectors.

    With v of length `norm` and m the indicator of a subset (length up to sqrt(rows)), m'(I - ZZ')v is computed instead
    of m'v, where Z is orthogonal to v or to m. Three errors add up, each a multiple of UNIT * |m| * |v|: the rounded
    entries of the masked matrix (count + 2 operations on terms up to 1 + sqrt(count)), Z's own deviation from
    orthogonality, and the final sum.
    """
    entries = (count + 2) * (1 + math.sqrt(count))
    deviation = math.sqrt(count) * (RESIDUAL + _CHUNKED)
    return UNIT * math.sqrt(rows) * norm * (entries + deviation + _CHUNKED)
