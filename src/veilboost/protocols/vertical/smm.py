"""What both versions of FedXGBoost-SMM share: kernel vectors, how many there are, who checks them, how they mask.

Secure matrix multiplication (FedXGBoost, Protocol 1): one party sends Z, orthonormal and orthogonal to its data D; the
other answers (I - ZZ')E instead of its data E; D'(I - ZZ')E is D'E. Null spaces are made by projection: random vectors,
less what of them lies in the span of the columns. That costs rows * columns^2, never rows^2.
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
_OFF_THE_GRID = 0.25  # below one half sums are exact; what is more than this was not made by rounding
_ORTHONORMAL = 1e-12
_DIAGONAL = 1e-11  # more than a vector's length may be off
_HIDDEN = 1e-15  # of what a row of ZZ' would have if all rows had the same


@dataclass(frozen=True)
class KernelOptions(ProtocolOptions):
    """How nodes are masked."""

    r: int = param(16, "most kernel vectors of a node", low=1, high=1_000_000)
    share: float = param(0.1, "most kernel vectors of a node, as a share of its rows", low=0, high=1, low_open=True)
    rotate: bool = param(False, "hardening: mask by a secret rotation of the kernel vectors, not by some of them")
    revealed: float = param(
        0.0,
        "hardening: most that masked answers may reveal in a tree, in ranks per row; 0: as published, no bound",
        low=0,
    )

    def count(self, rows: int, columns: int) -> int:
        """How many kernel vectors a node has, where they must be orthogonal to so many columns."""
        return max(min(self.r, max(int(self.share * rows), 1), rows - columns), 0)


def refuse(config: TrainingConfig, options: KernelOptions) -> None:
    """At the door: a bound on what is revealed that no choice of vectors can keep."""
    if options.revealed and options.share < 1 - options.revealed / config.max_depth:
        raise UnsupportedCombination(
            f"revealed={options.revealed:g} cannot be kept over {config.max_depth} levels with share={options.share:g}",
            f"raise share to {1 - options.revealed / config.max_depth:g} or revealed, or grow shallower trees",
        )


def refuse_rows(rows: int, config: TrainingConfig, options: KernelOptions) -> None:
    """Where the job begins: the same bound, now that the number of rows is known."""
    refuse(config, options)
    needed = math.ceil(rows * (1 - options.revealed / config.max_depth))
    if options.revealed and options.r < needed:
        raise InvalidParameter(
            f"revealed={options.revealed:g} needs {needed} kernel vectors for {rows} rows, r is {options.r}",
            "raise r or revealed, or grow shallower trees",
        )


def refuse_inexact(gradients: Int32Array, rows: Int32Array, options: KernelOptions) -> None:
    """Float64 must hold a round's sums well enough for the grid, whatever the nodes will be."""
    for pairs in gradients:
        g, h = pairs[rows].T.astype(np.float64)
        norm = max(float(np.linalg.norm(each)) for each in (g, h, g + h))  # smm1 sums g + h at times
        if rounding_error(len(rows), norm, options.count(len(rows), 1)) >= _OFF_THE_GRID:
            raise GradientRange(
                f"float64 cannot hold masked sums of {len(rows)} rows to the last bit at this gradient scale",
                "lower gradient_bits, or scale sample weights down",
            )


class RevealedRank:
    """Adds up what masked answers reveal in the trees of a round: n - r' equations about a node of n rows."""

    def __init__(self, rows: int, trees: int, options: KernelOptions) -> None:
        self._most = options.revealed * rows
        self._so_far = np.zeros(trees, dtype=np.int64)

    def after(self, groups: RowGroups, answers: Sequence[tuple[int, int]]) -> None:
        """Take in answers of (node, r'), or refuse before they leave."""
        if not self._most:
            return
        so_far = self._so_far.copy()
        counts = groups.counts
        for node, vectors in answers:
            so_far[groups.group[node]] += counts[node] - vectors
        if so_far.max() > self._most:
            raise UnsupportedCombination(
                "the next answer would reveal more of this tree than the bound `revealed` allows",
                "raise revealed, or grow shallower trees",
            )
        self._so_far = so_far


def without_single_rows(level: Level) -> Level:
    """Where the child to be summed has one row, which no mask hides, its sibling is summed instead."""
    single = level.fit.counts[level.build] < 2
    if not single.any():
        return level
    build = np.sort(np.where(single, level.build ^ 1, level.build))
    derived = np.isin(level.derive, build, invert=True)
    return replace(level, build=build, derive=level.derive[derived], parent=level.parent[derived])


def hidden_rows(kernel: Float64Array) -> BoolArray:
    """Which rows of ZZ' have something beside the diagonal; the answer's other rows would be bare (Alg. 3, step 4).

    For orthonormal Z the squares of row i off the diagonal sum to d - d^2, d being the square of Z's row i.
    """
    diagonal = np.einsum("ij,ij->i", kernel, kernel)
    return (diagonal > _HIDDEN * kernel.shape[1] / max(len(kernel), 1)) & (diagonal < 1 - _DIAGONAL)


def check_kernel(kernel: Float64Array) -> None:
    """Refuse vectors that do not mask: I - ZZ' must be a projector, or it could be inverted, and touch every row."""
    if not np.isfinite(kernel).all():
        raise MalformedMessage("a kernel vector is not finite")
    off = kernel.T @ kernel - np.eye(kernel.shape[1])
    if np.abs(off).max(initial=0.0) > _ORTHONORMAL:
        raise MalformedMessage("the kernel vectors are not orthonormal")
    if not hidden_rows(kernel).all():
        raise MalformedMessage("the kernel vectors would leave a row of the answer unmasked")


def draw_mask(kernel: Float64Array, options: KernelOptions, depth: int, source: Csprng) -> Float64Array:
    """Z of the answer: a random number r' of the vectors, drawn again while a row stays bare (Alg. 2, Alg. 3)."""
    rows, count = kernel.shape
    if not count:
        return kernel
    least = 1  # as published; more where the revealed rank of a tree of this depth is bounded
    if options.revealed:
        least = min(count, max(1, math.ceil(rows * (1 - options.revealed / depth))))
    for _ in range(_DRAWS):
        drawn = np.frombuffer(source.bytes(8 * (count + 1)), dtype="<u8")
        size = least + int(drawn[0] % np.uint64(count - least + 1))  # the bias is below count / 2^64
        if options.rotate:  # a random r'-dimensional subspace of their span: who sent the vectors cannot tell which
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
    """Matrices of these shapes, laid end to end."""
    at = 0
    for rows, columns in shapes:
        yield flat[at : at + rows * columns].reshape(rows, columns)
        at += rows * columns


def rounded(sums: Float64Array) -> Int64Array:
    """Sums on the grid. Honest ones are whole numbers but for a rounding error that `refuse_inexact` bounds."""
    if np.isfinite(sums).all():
        whole = np.rint(sums)
        if np.abs(whole).max(initial=0.0) < _LARGEST_SUM and np.abs(sums - whole).max(initial=0.0) <= _OFF_THE_GRID:
            return whole.astype(np.int64)
    raise MalformedMessage("masked sums do not lie on the fixed-point grid", "start the job again")


KERNEL_BYTES = 8 * KernelOptions().r  # of the kernel vectors of a row


def cuts_with_rows(rows: int, bins: int) -> float:
    """Cuts of a feature between bins that have rows, where these are drawn evenly."""
    return max(0.0, bins * (1 - (1 - 1 / bins) ** rows) - 1)


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
    `ArithmeticError` if the null space is too small, or rounding did not let the vectors come close enough to it.
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
