"""MaskedXGBoost, Theorem 1: how far a noisy score may lie from the true one.

A candidate's noisy left sums are g_L + x and h_L + y, its right sums g_R - x and h_R - y, with x and y normal of
standard deviation kappa = sqrt(n_A C) sigma2 (the paper's statement prints sqrt(n_A) C; appendix B has it right).
"""

from __future__ import annotations

import math

import numpy as np

from veilboost.types import Float64Array

_GRID = 2001
_REACH = 10.0  # standard deviations; what lies beyond is far below any bound of interest
_ANGLES = 24


def kappa(n_active: float, sigma2: float, c: float = 1.0) -> float:
    """The standard deviation of a candidate's noisy sums."""
    return math.sqrt(n_active * c) * sigma2


def tail_bounds(x: float) -> tuple[float, float]:
    """Remark 3: below and above 1 - Phi(x), for x > 0."""
    density = math.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)
    return 2.0 * density / (math.sqrt(4.0 + x * x) + x), 2.0 * density / (math.sqrt(8.0 / math.pi + x * x) + x)


def score_error_bound(
    alpha: float,
    kappa: float,
    left: tuple[float, float],
    right: tuple[float, float],
    reg_lambda: float,
    vectors: int | None = None,
) -> float:
    """U(alpha, kappa): at least the probability that the noisy score (eq. 8, with its factor 1/2) is off by alpha.

    `left` and `right` are the true (g, h) of the two children. The published integral takes the noise of g and of h
    as independent. They share their masks, so for `vectors` noise vectors their correlation is the inner product of
    two random directions (plus or minus 1 where there is one vector); give it to have the bound for the true law.
    """
    if kappa == 0.0:
        return 0.0
    bound = 0.0
    for correlation in _correlations(vectors):
        for g, h in (left, right):
            bound += _side(alpha, kappa, g, h + reg_lambda, correlation) / len(_correlations(vectors))
    return min(bound, 1.0)


def _correlations(vectors: int | None) -> list[float]:
    """Equally likely values of the correlation between the noises of g and h."""
    if vectors is None:
        return [0.0]
    if vectors == 1:
        return [-1.0, 1.0]
    # The inner product of two uniform directions: cos(theta) with density proportional to sin(theta)^(W - 2).
    theta = np.linspace(0.0, math.pi, 20_001)
    mass = np.cumsum(np.sin(theta) ** (vectors - 2))
    middles = (np.arange(_ANGLES) + 0.5) / _ANGLES
    return np.cos(np.interp(middles, mass / mass[-1], theta)).tolist()


def _side(alpha: float, kappa: float, g: float, h: float, correlation: float) -> float:
    """Pr(|X^2 / Y - C| >= alpha) of one child: eq. (17) where alpha <= C, eq. (18) where it is larger."""
    score = g * g / h
    t = h + kappa * np.linspace(-_REACH, _REACH, _GRID)  # where Y may be
    density = np.exp(-0.5 * ((t - h) / kappa) ** 2)
    weight = density / density.sum()
    mean = g + correlation * (t - h)
    spread = kappa * math.sqrt(max(1.0 - correlation * correlation, 1e-12))

    def square_below(bound: Float64Array) -> Float64Array:
        """P(X^2 <= bound | Y = t). Eq. (11) lacks the "- 1" of this and prints the root over beta alone."""
        root = np.sqrt(np.maximum(bound, 0.0))
        return _normal_cdf((root - mean) / spread) - _normal_cdf((-root - mean) / spread)

    positive = t > 0
    above = np.where(positive, 1.0 - square_below((score + alpha) * t), 0.0)
    low = score - alpha
    below = np.where(positive & (low >= 0), square_below(low * t), 0.0)
    # With a negative denominator the quotient is below 0: always too far where alpha <= C, else only past C - alpha.
    turned = np.where(positive, 0.0, 1.0 if low >= 0 else 1.0 - square_below(low * t))
    return float((weight * (above + below + turned)).sum())


def _normal_cdf(x: Float64Array) -> Float64Array:
    return np.array([0.5 * math.erfc(-value / math.sqrt(2.0)) for value in x.tolist()])
