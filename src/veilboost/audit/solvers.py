"""Solvers that attacks share: typed wrappers of scipy and scikit-learn, which are imported on first use."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from veilboost.types import AnyArray, BoolArray, Float64Array

_PASSES = 30
_FITS = 1e-3  # tolerance relative to the distance of the two values: far below the effect of one wrong entry
_ROOM = 1e-5  # tolerance of the box constraints: the two values are known up to a fixed-point grid


def nearest_pairs(gap: Float64Array) -> list[tuple[int, int]]:
    """Pair each row with its own column so that the total distance is smallest."""
    solver: Any = import_module("scipy.optimize")
    rows, columns = solver.linear_sum_assignment(gap)
    return list(zip(rows.tolist(), columns.tolist(), strict=True))


def between(towards: Float64Array, a: Float64Array, known: Float64Array, highest: Float64Array) -> Float64Array | None:
    """A solution of a x = known, 0 <= x <= highest that is furthest in a direction; None if there is none."""
    solver: Any = import_module("scipy.optimize")
    bounds = np.stack([np.zeros_like(highest), highest], axis=1)
    found = solver.linprog(-towards, A_eq=a, b_eq=known, bounds=bounds, method="highs")
    return np.asarray(found.x, dtype=np.float64) if found.status == 0 else None


def logistic(x: Float64Array, labels: Float64Array) -> tuple[Float64Array, Float64Array, Float64Array]:
    """A regularised logistic regression with balanced classes: intercepts, weights and classes."""
    learner: Any = import_module("sklearn.linear_model")
    fitted = learner.LogisticRegression(C=0.1, class_weight="balanced", max_iter=500).fit(x, labels)
    return fitted.intercept_, fitted.coef_, fitted.classes_


def forest_guess(x: AnyArray, labels: Float64Array, others: AnyArray) -> Float64Array:
    """Labels that a random forest predicts for other rows."""
    learner: Any = import_module("sklearn.ensemble")
    forest = learner.RandomForestClassifier(50, class_weight="balanced", random_state=0).fit(x, labels)
    return np.asarray(forest.predict(others), dtype=np.float64)


def five_layers(x: Float64Array, labels: Float64Array, seed: int) -> Any:
    """A network with L2 regularisation and early stopping."""
    learner: Any = import_module("sklearn.neural_network")
    pipeline, scale = import_module("sklearn.pipeline"), import_module("sklearn.preprocessing")
    network = learner.MLPClassifier((64, 32, 16, 8), alpha=0.01, max_iter=40, early_stopping=True, random_state=seed)
    return pipeline.make_pipeline(scale.StandardScaler(), network).fit(x, labels)


def beta_quantile(share: float, a: float, b: float) -> float:
    """Quantile of a beta distribution."""
    functions: Any = import_module("scipy.special")
    return float(functions.betaincinv(a, b, share))


def least_squares(columns: Float64Array, values: Float64Array) -> Float64Array:
    """The shortest x that minimises |columns x - values|."""
    found: Any = np.linalg.lstsq(columns, values, rcond=None)
    return found[0]


def conjugate_gradients(
    product: Callable[[Float64Array], Float64Array], known: Float64Array, exact: float, steps: int
) -> Float64Array:
    """Solve product(x) = known, where `product` applies a positive semidefinite matrix."""
    scipy: Any = import_module("scipy.sparse.linalg")
    size = len(known)

    def flat(x: Float64Array) -> Float64Array:
        return product(x.ravel())

    operator = scipy.LinearOperator((size, size), matvec=flat, dtype=np.float64)
    return scipy.cg(operator, known, rtol=exact, maxiter=steps)[0]


# --- two-valued vectors behind a projector ------------------------------------------------------------------------
#
# The attacker knows (I - ZZ')x, where Z has orthonormal columns, and that every entry of x is one of two values. If Z
# has fewer columns than half of the entries of x, usually only one vector between the two values fits: x itself
# (Mangasarian and Recht, 2011). If Z has few columns, rounding is already nearly right.


def two_valued(
    projected: Float64Array,
    hidden: Float64Array,
    low: float,
    high: float,
    rng: np.random.Generator,
    most_programs: int = 32,
) -> tuple[BoolArray, BoolArray]:
    """For the columns of `projected` (rows, columns): which entries are `high`, and which columns certainly fit.

    `hidden` (rows, r) are the orthonormal columns of Z. At most `most_programs` columns are solved by linear
    programming, the others by rounding.
    """
    unit = (projected - (low - hidden @ (hidden.sum(axis=0) * low))[:, None]) / (high - low)  # of a vector of 0 and 1
    guess = _rounded(unit, hidden)
    fits = _fitting(unit, hidden, guess)
    for column in np.flatnonzero(~fits)[:most_programs].tolist():
        point = inside_box(unit[:, column], hidden, rng.normal(size=len(unit)))
        if point is not None:
            guess[:, column] = point > 0.5
    return guess, _fitting(unit, hidden, guess)


def inside_box(projected: Float64Array, hidden: Float64Array, towards: Float64Array) -> Float64Array | None:
    """The point of projected + span(hidden) in the box [0, 1] that is lowest in a direction."""
    scipy: Any = import_module("scipy.optimize")
    within = scipy.LinearConstraint(hidden, -projected - _ROOM, 1.0 - projected + _ROOM)
    found = scipy.milp(towards @ hidden, constraints=within, bounds=scipy.Bounds(-np.inf, np.inf)).x
    return None if found is None else projected + hidden @ found


def used_vectors(kernel: Float64Array, answers: Float64Array) -> tuple[Float64Array, Float64Array]:
    """The sent vectors (rows, r) that mask the answers (rows, columns): those orthogonal to all answers.

    If there is none, the answers were masked by a rotation of all vectors, and only their component orthogonal to all
    vectors is certain. Returns the vectors and the answers projected off them.
    """
    if not kernel.shape[1]:
        return kernel, answers
    along = np.abs(kernel.T @ answers).max(axis=1)
    used = along <= 1e-7 * np.sqrt((answers**2).sum(axis=0).max() / len(answers))
    if used.any():
        return np.ascontiguousarray(kernel[:, used]), answers
    return kernel, answers - kernel @ (kernel.T @ answers)


def _rounded(unit: Float64Array, hidden: Float64Array) -> BoolArray:
    """Alternate between rounding and adding back the hidden component of the rounded vector."""
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
