"""The variances of the mechanisms, by their formulas."""

from __future__ import annotations

import math

from veilboost.privacy.mechanism import duchi_bound, piecewise_share
from veilboost.types import Float64Array


def duchi_variance(values: Float64Array, epsilon: float) -> Float64Array:
    """B^2 - t^2."""
    return duchi_bound(epsilon) ** 2 - values**2


def piecewise_variance(values: Float64Array, epsilon: float) -> Float64Array:
    """t^2 / (e^(eps/2) - 1) + (e^(eps/2) + 3) / (3 (e^(eps/2) - 1)^2)."""
    less = math.expm1(epsilon / 2.0)
    return values**2 / less + (less + 4.0) / (3.0 * less**2)


def hybrid_variance(values: Float64Array, epsilon: float) -> Float64Array:
    """The two variances, weighted: both mechanisms have the same mean."""
    share = piecewise_share(epsilon)
    return share * piecewise_variance(values, epsilon) + (1.0 - share) * duchi_variance(values, epsilon)


def discrete_laplace_variance(scale: float) -> float:
    """2 e^(-1/t) / (1 - e^(-1/t))^2, a little under 2 t^2."""
    return 0.5 / math.sinh(0.5 / scale) ** 2
