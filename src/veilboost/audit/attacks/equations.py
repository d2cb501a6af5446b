"""Linear equations and inequalities: solvers of NumPy and SciPy, with types."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from veilboost.types import Float64Array


def least_squares(columns: Float64Array, values: Float64Array) -> Float64Array:
    """The shortest x for which |columns x - values| is least."""
    found: Any = np.linalg.lstsq(columns, values, rcond=None)
    return found[0]


def program_between(
    towards: Float64Array, matrix: Float64Array, low: Float64Array, high: Float64Array
) -> Float64Array | None:
    """The x that makes towards'x least while low <= matrix x <= high; None where there is none."""
    scipy: Any = import_module("scipy.optimize")
    free = scipy.Bounds(-np.inf, np.inf)
    found = scipy.milp(towards, constraints=scipy.LinearConstraint(matrix, low, high), bounds=free)
    return found.x


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
