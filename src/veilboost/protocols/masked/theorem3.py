"""MaskedXGBoost, Theorem 3: what a mask tells about one bit of the splitting vector it was made for.

A noise vector is normal with the covariance of eqs. (12) and (13), which depends on the splitting vector. When one
entry leaves the active set, three eigenvalues k of Sigma_2^-1 Sigma_1 - I are not 0, and the privacy loss is
-1/2 sum ln(1 + k) + 1/2 sum k y^2. With the loss and its law known exactly, delta is computed, not bounded: in both
directions (the paper's "similarly" for the other one does not hold) and with the true ratio of determinants.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from veilboost.types import AnyArray, Float64Array

LEAST_ACTIVE = 3  # a smaller active set has no circulant noise; with one entry the active noise is 0 there
_CONTOUR = 1501


def circulant_means(ratio: float, n: int) -> tuple[float, float, float]:
    """The paper's a, b, c for ratio = sigma1^2 / sigma2^2 and n active entries (of the larger set; not all rows)."""
    angle = 2.0 * np.pi * np.arange(n) / n
    inverse = ratio / (2.0 * ratio * (1.0 - np.cos(angle)) + 1.0)
    return float(inverse.mean()), float((inverse * np.cos(angle)).mean()), float((inverse * np.cos(2 * angle)).mean())


def loss_eigenvalues(ratio: float, n: int) -> Float64Array:
    """k1, k2, k3 of Theorem 3, where the set of n active entries loses one."""
    a, b, c = circulant_means(ratio, n)
    # k2 = a - c (its eigenvector is [1, 0, -1], not [1, 0, 1] as printed); the others have this sum and product.
    total, product = 4.0 * b - a - c, 2.0 * (2.0 * b * b - a * a - a * c)
    root = math.sqrt(max(total * total / 4.0 - product, 0.0))
    return np.array([total / 2.0 + root, a - c, total / 2.0 - root])


def log_determinant_ratio(ratio: float, n: int) -> float:
    """ln(|Sigma_2| / |Sigma_1|) of appendix E, whose products run to n - 1 and n - 2; between ln 1/4 and ln 2."""
    return -float(np.log1p(loss_eigenvalues(ratio, n)).sum())


def printed_delta(epsilon: float, ratio: float, n: int, vectors: int) -> float:
    """The delta of Theorem 3 as printed: W Pr(y'ky >= 2 epsilon / W - 2 ln 2). Needs epsilon > W ln 2."""
    each = epsilon / vectors - math.log(2.0)
    return 1.0 if each <= 0 else min(1.0, vectors * chi_square_tail(loss_eigenvalues(ratio, n), 1, each))


def mask_delta(epsilon: float, ratio: float, n: int, vectors: int) -> float:
    """The least delta for which W noise vectors are (epsilon, delta)-private for one bit: the larger direction's."""
    k = loss_eigenvalues(ratio, n)
    shift = -0.5 * vectors * float(np.log1p(k).sum())
    leaving = _delta(epsilon, shift, k, k / (1.0 + k), vectors)
    joining = _delta(epsilon, -shift, -k / (1.0 + k), -k, vectors)
    return max(leaving, joining)


def _delta(epsilon: float, shift: float, own: Float64Array, other: Float64Array, vectors: int) -> float:
    """P(L > epsilon) - e^epsilon Q(L > epsilon): the loss has weights `own` under its own law, `other` under Q."""
    above = chi_square_tail(own, vectors, epsilon - shift)
    return max(0.0, above - math.exp(epsilon) * chi_square_tail(other, vectors, epsilon - shift))


@cache
def largest_ratio(epsilon: float, delta: float, vectors: int, sizes: tuple[int, ...], printed: bool = False) -> float:
    """The largest sigma1^2 / sigma2^2 that keeps a mask within the budget for active sets of all these sizes."""
    of = printed_delta if printed else mask_delta

    def fits(ratio: float) -> bool:
        return all(of(epsilon, ratio, n, vectors) <= delta for n in sizes)

    low, high = 1e-9, 1e6
    if not fits(low):
        return 0.0
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def chi_square_tail(weights: Float64Array, degrees: int, x: float) -> float:
    """P(1/2 sum_i weights_i X_i > x) for independent chi-square X_i of so many degrees.

    The inverse Laplace integral of E exp(sX) / s. The path crosses the real axis at the least value of the integrand,
    between 0 and the first singularity, and bends around that singularity, so that the integrand dies out like a
    Gaussian and the trapezoid rule is exact to many digits.
    """
    if x <= 0.0:
        return 1.0 if x == 0.0 and not (weights < 0).any() else 1.0 - chi_square_tail(-weights, degrees, -x)
    top = float(weights.max(initial=0.0))
    if top <= 0.0:
        return 0.0

    def exponent(s: AnyArray) -> AnyArray:
        spread = -0.5 * degrees * np.log(1.0 - s[:, None] * weights[None, :]).sum(axis=1)
        return spread - s * x - np.log(s)

    low, high = 0.0, 1.0 / top
    for _ in range(60):  # where the derivative along the real axis is 0
        s = (low + high) / 2.0
        slope = float((0.5 * degrees * weights / (1.0 - s * weights)).sum()) - x - 1.0 / s
        low, high = (s, high) if slope < 0 else (low, s)
    start = (low + high) / 2.0
    curvature = float((0.5 * degrees * (weights / (1.0 - start * weights)) ** 2).sum()) + 1.0 / start**2
    width = 1.0 / math.sqrt(curvature)
    # s = start + i u + u^2 / (2 width'): a parabola open to the right, past the cut that starts at 1 / top.
    bend = 0.5 / max(start, 1.0 / top - start, width)
    reach = math.sqrt(40.0 / (x * bend)) + 40.0 * width
    u = np.linspace(0.0, reach, _CONTOUR)
    path = start + 1j * u + bend * u * u
    peak = float(exponent(np.array([start + 0j]))[0].real)
    values = np.exp(exponent(path) - peak) * (1j + 2.0 * bend * u)
    step = float(u[1])
    integral = float((values.imag[1:].sum() + 0.5 * values.imag[0]) * step)
    return min(1.0, max(0.0, math.exp(peak) * integral / math.pi))
