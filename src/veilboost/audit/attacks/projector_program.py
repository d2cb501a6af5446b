"""Two-valued vectors behind a projector: rounding and fitting where little is hidden, linear programming where more is.

Somebody knows (I - ZZ')x, Z with orthonormal columns, and that every entry of x is one of two values. With fewer
columns in Z than half of the entries of x, there is as a rule one vector between the two values that fits: x itself
(Mangasarian and Recht, 2011). Where Z has few columns, rounding what is known is nearly right already.
"""

from __future__ import annotations

import numpy as np

from veilboost.audit.attacks.equations import program_between
from veilboost.types import BoolArray, Float64Array

_PASSES = 30
_FITS = 1e-3  # of the distance between the two values: far less than one wrong entry makes
_ROOM = 1e-5  # by which the programme may leave the box: the two values are known up to a fixed-point grid


def two_valued(
    projected: Float64Array,
    hidden: Float64Array,
    low: float,
    high: float,
    rng: np.random.Generator,
    most_programs: int = 32,
) -> tuple[BoolArray, BoolArray]:
    """For the columns of `projected` (rows, columns): which entries are `high`, and which columns surely fit.

    `hidden` (rows, r) are the orthonormal columns of Z. At most so many columns are put to linear programming, the
    others stay as rounding has them.
    """
    unit = (projected - (low - hidden @ (hidden.sum(axis=0) * low))[:, None]) / (high - low)  # now behind it: 0 or 1
    guess = _rounded(unit, hidden)
    fits = _fitting(unit, hidden, guess)
    for column in np.flatnonzero(~fits)[:most_programs].tolist():
        point = inside_box(unit[:, column], hidden, rng.normal(size=len(unit)))
        if point is not None:
            guess[:, column] = point > 0.5
    return guess, _fitting(unit, hidden, guess)


def inside_box(projected: Float64Array, hidden: Float64Array, towards: Float64Array) -> Float64Array | None:
    """The point of projected + span(hidden) with all entries in [0, 1] that lies least in a direction."""
    found = program_between(towards @ hidden, hidden, -projected - _ROOM, 1.0 - projected + _ROOM)
    return None if found is None else projected + hidden @ found


def orthogonal_complement(seen: Float64Array) -> Float64Array:
    """An orthonormal basis (columns, k) of what the rows of `seen` say nothing about."""
    _, size, directions = np.linalg.svd(seen, full_matrices=True)
    rank = int((size > 1e-9 * size.max(initial=0.0)).sum())
    return np.ascontiguousarray(directions[rank:].T)


def used_vectors(kernel: Float64Array, answers: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Which of the vectors sent (rows, r) mask the answers (rows, columns): those orthogonal to all of them.

    Where none is, the answers were masked by a rotation of all vectors, and only what is orthogonal to all is sure. The
    vectors come back with the answers as seen beyond them.
    """
    if not kernel.shape[1]:
        return kernel, answers
    along = np.abs(kernel.T @ answers).max(axis=1)
    used = along <= 1e-7 * np.sqrt((answers**2).sum(axis=0).max() / len(answers))
    if used.any():
        return np.ascontiguousarray(kernel[:, used]), answers
    return kernel, answers - kernel @ (kernel.T @ answers)


def _rounded(unit: Float64Array, hidden: Float64Array) -> BoolArray:
    """Round, put what is hidden of the rounded vector back in, round again."""
    guess: BoolArray = unit > 0.5
    for _ in range(_PASSES):
        better = unit + hidden @ (hidden.T @ guess) > 0.5
        if np.array_equal(better, guess):
            break
        guess = better
    return guess


def _fitting(unit: Float64Array, hidden: Float64Array, guess: BoolArray) -> BoolArray:
    seen = guess - hidden @ (hidden.T @ guess)
    return np.abs(seen - unit).max(axis=0) < _FITS
