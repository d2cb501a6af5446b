"""Solvers that attacks share. What they take from scipy and scikit-learn has types here, and loads when it is used."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from veilboost.types import AnyArray, BoolArray, Float64Array

_PASSES = 30
_FITS = 1e-3  # of the distance between the two values: far less than one wrong entry makes
_ROOM = 1e-5  # by which the programme may leave the box: the two values are known up to a fixed-point grid


def nearest_pairs(gap: Float64Array) -> list[tuple[int, int]]:
    """Each row with a column of its own, so that the sum of what they are apart is least."""
    solver: Any = import_module("scipy.optimize")
    rows, columns = solver.linear_sum_assignment(gap)
    return list(zip(rows.tolist(), columns.tolist(), strict=True))


def between(towards: Float64Array, a: Float64Array, known: Float64Array, highest: Float64Array) -> Float64Array | None:
    """Of all x with a x = known and 0 <= x <= highest one furthest in a direction; None where there is none."""
    solver: Any = import_module("scipy.optimize")
    bounds = np.stack([np.zeros_like(highest), highest], axis=1)
    found = solver.linprog(-towards, A_eq=a, b_eq=known, bounds=bounds, method="highs")
    return np.asarray(found.x, dtype=np.float64) if found.status == 0 else None


def logistic(x: Float64Array, labels: Float64Array) -> tuple[Float64Array, Float64Array, Float64Array]:
    """A regularised logistic regression in which classes count alike: intercepts, weights and classes."""
    learner: Any = import_module("sklearn.linear_model")
    fitted = learner.LogisticRegression(C=0.1, class_weight="balanced", max_iter=500).fit(x, labels)
    return fitted.intercept_, fitted.coef_, fitted.classes_


def forest_guess(x: AnyArray, labels: Float64Array, others: AnyArray) -> Float64Array:
    """A random forest's labels for other rows."""
    learner: Any = import_module("sklearn.ensemble")
    forest = learner.RandomForestClassifier(50, class_weight="balanced", random_state=0).fit(x, labels)
    return np.asarray(forest.predict(others), dtype=np.float64)


def five_layers(x: Float64Array, labels: Float64Array, seed: int) -> Any:
    """A network with L2 regularisation, trained to convergence or until it no longer improves."""
    learner: Any = import_module("sklearn.neural_network")
    pipeline, scale = import_module("sklearn.pipeline"), import_module("sklearn.preprocessing")
    network = learner.MLPClassifier((64, 32, 16, 8), alpha=0.01, max_iter=40, early_stopping=True, random_state=seed)
    return pipeline.make_pipeline(scale.StandardScaler(), network).fit(x, labels)


def beta_quantile(share: float, a: float, b: float) -> float:
    """Where a beta distribution has this share below."""
    functions: Any = import_module("scipy.special")
    return float(functions.betaincinv(a, b, share))


def least_squares(columns: Float64Array, values: Float64Array) -> Float64Array:
    """The shortest x for which |columns x - values| is least."""
    found: Any = np.linalg.lstsq(columns, values, rcond=None)
    return found[0]


def conjugate_gradients(
    product: Callable[[Float64Array], Float64Array], known: Float64Array, exact: float, steps: int
) -> Float64Array:
    """x with product(x) = known, `product` being a symmetric matrix without negative eigenvalues."""
    scipy: Any = import_module("scipy.sparse.linalg")
    size = len(known)

    def flat(x: Float64Array) -> Float64Array:
        return product(x.ravel())

    operator = scipy.LinearOperator((size, size), matvec=flat, dtype=np.float64)
    return scipy.cg(operator, known, rtol=exact, maxiter=steps)[0]


# --- two-valued vectors behind a projector ------------------------------------------------------------------------
#
# Somebody knows (I - ZZ')x, Z with orthonormal columns, and that every entry of x is one of two values. With fewer
# columns in Z than half of the entries of x, there is as a rule one vector between the two values that fits: x itself
# (Mangasarian and Recht, 2011). Where Z has few columns, rounding what is known is nearly right already.


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
    scipy: Any = import_module("scipy.optimize")
    within = scipy.LinearConstraint(hidden, -projected - _ROOM, 1.0 - projected + _ROOM)
    found = scipy.milp(towards @ hidden, constraints=within, bounds=scipy.Bounds(-np.inf, np.inf)).x
    return None if found is None else projected + hidden @ found


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
