"""MaskedXGBoost's three theorems.

Theorem 1: the error of a noisy score. A candidate's noisy left sums are g_L + x and h_L + y, its
right sums g_R - x and h_R - y, with x and y normal of standard deviation kappa = sqrt(n_A C) sigma2 (the paper's
statement prints sqrt(n_A) C; appendix B has it right).

Theorem 2: the noise that the published guarantee for the active party's vectors requires. It assumes that the receiver
of a noised vector does not know the masks. But the passive party made them: see `LEAKAGE.md`.

Theorem 3: what a mask reveals about one bit of its split vector. A noise vector is normal with the
covariance of eqs. (12) and (13), which depends on the split vector. When one entry leaves the active set, three
eigenvalues k of Sigma_2^-1 Sigma_1 - I are not 0, and the privacy loss is -1/2 sum ln(1 + k) + 1/2 sum k y^2. So delta
is computed, not bounded: in both directions (the paper's "similarly" for the other one does not hold) and with the true
ratio of determinants.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from veilboost.types import AnyArray, Float64Array

Pair = tuple[float, float]  # g and h
_GRID = 2001
_REACH = 10.0  # standard deviations; the rest is far below any bound of interest
_ANGLES = 24
PAPER_MU = 2.0 * math.e / (math.e + 1.0)  # section 5.2; holds for margins in [0, 1] only
LEAST_ACTIVE = 3  # a smaller active set has no circulant noise; with one entry the active noise is 0 there
_CONTOUR = 1501


# --- Theorem 1 -----------------------------------------------------------------------------------------------


def kappa(n_active: float, sigma2: float, c: float = 1.0) -> float:
    """The standard deviation of a candidate's noisy sums."""
    return math.sqrt(n_active * c) * sigma2


def score_error_bound(
    alpha: float, kappa: float, left: Pair, right: Pair, reg_lambda: float, vectors: int | None = None
) -> float:
    """U(alpha, kappa): a bound on the probability that the noisy score (eq. 8, with its factor 1/2) is off by alpha.

    `left` and `right` are the true (g, h) of the children. The published integral assumes independent noise on g and h.
    They share masks, so with `vectors` given their correlation is the inner product of two directions.
    """
    if kappa == 0.0:
        return 0.0
    bound = 0.0
    for correlation in _correlations(vectors):
        for g, h in (left, right):
            bound += _child_error(alpha, kappa, g, h + reg_lambda, correlation) / len(_correlations(vectors))
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


def _child_error(alpha: float, kappa: float, g: float, h: float, correlation: float) -> float:
    """Pr(|X^2 / Y - C| >= alpha) of one child: eq. (17) if alpha <= C, otherwise eq. (18)."""
    score = g * g / h
    t = h + kappa * np.linspace(-_REACH, _REACH, _GRID)  # the values of Y
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
    # With a negative denominator the quotient is negative: always too far if alpha <= C, else only beyond C - alpha.
    turned = np.where(positive, 0.0, 1.0 if low >= 0 else 1.0 - square_below(low * t))
    return float((weight * (above + below + turned)).sum())


def _normal_cdf(x: Float64Array) -> Float64Array:
    return np.array([0.5 * math.erfc(-value / math.sqrt(2.0)) for value in x.tolist()])


# --- Theorem 2 -----------------------------------------------------------------------------------------------


def energy_allowed(epsilon: float, delta: float) -> float:
    """The right-hand side of Theorem 2: the largest v' Sigma^-1 v for a change v of the released vector.

    It solves exp(-(epsilon - s/2)^2 / (2s)) = delta; the last line of the paper's proof prints s/2 for epsilon - s/2.
    """
    log = math.log(delta)
    # The printed difference cancels for small epsilon: 2(e - 2l - 2 sqrt(l(l - e))) = 2(sqrt(e - l) - sqrt(-l))^2.
    return 2.0 * (epsilon / (math.sqrt(epsilon - log) + math.sqrt(-log))) ** 2


def epsilon_of(energy: float, delta: float) -> float:
    """The epsilon that the theorem gives for an energy: the inverse of `energy_allowed`."""
    return energy / 2.0 + math.sqrt(2.0 * energy * -math.log(delta))


def energy_of(n_active: float, n_inactive: float, mu: float, sigma1: float, sigma2: float, c: float = 1.0) -> float:
    """The left-hand side of Theorem 2: a bound on v' Sigma^-1 v if every entry of v is at most mu."""
    return n_inactive * mu**2 / (c * (2.0 * sigma1**2 + sigma2**2)) + n_active * mu**2 / (c * sigma2**2)


def label_energy(n_active: int, change: float, sigma1: float, sigma2: float) -> float:
    """v' Sigma^-1 v if one entry changes: the larger of the values for an inactive and an active entry.

    For the circulant block of eq. (12) with x + 1/x = 2 + sigma2^2 / sigma1^2, an entry of the diagonal of its inverse
    is 1 / (sigma2 sqrt(sigma2^2 + 4 sigma1^2)) * (1 + x^n) / (1 - x^n), 0 < x < 1.
    """
    alone = 1.0 / (2.0 * sigma1**2 + sigma2**2)
    if sigma1 == 0.0:
        return change**2 * alone
    q = sigma2**2 / sigma1**2
    x = 2.0 / (2.0 + q + math.sqrt(q * (q + 4.0)))
    shrunk = x**n_active
    chained = (1.0 + shrunk) / ((1.0 - shrunk) * sigma2 * math.sqrt(sigma2**2 + 4.0 * sigma1**2))
    return change**2 * max(alone, chained)


def advanced_share(epsilon: float, delta: float, steps: int) -> tuple[float, float]:
    """The budget of each of `steps` releases by advanced composition (section 2.3), which takes half of delta."""
    spare = delta / 2.0

    def total(each: float) -> float:
        return each * math.sqrt(2.0 * steps * math.log(1.0 / spare)) + steps * each * math.expm1(each)

    low, high = 0.0, epsilon
    for _ in range(200):
        middle = (low + high) / 2.0
        low, high = (middle, high) if total(middle) <= epsilon else (low, middle)
    return low, spare / steps


# --- Theorem 3 -----------------------------------------------------------------------------------------------


def circulant_means(ratio: float, n: int) -> tuple[float, float, float]:
    """The paper's a, b, c for ratio = sigma1^2 / sigma2^2 and n active entries (of the larger set; not all rows)."""
    angle = 2.0 * np.pi * np.arange(n) / n
    inverse = ratio / (2.0 * ratio * (1.0 - np.cos(angle)) + 1.0)
    return float(inverse.mean()), float((inverse * np.cos(angle)).mean()), float((inverse * np.cos(2 * angle)).mean())


def loss_eigenvalues(ratio: float, n: int) -> Float64Array:
    """k1, k2, k3 of Theorem 3, when the set of n active entries loses one."""
    a, b, c = circulant_means(ratio, n)
    # k2 = a - c (its eigenvector is [1, 0, -1], not [1, 0, 1] as printed); the others have this sum and product.
    total, product = 4.0 * b - a - c, 2.0 * (2.0 * b * b - a * a - a * c)
    root = math.sqrt(max(total * total / 4.0 - product, 0.0))
    return np.array([total / 2.0 + root, a - c, total / 2.0 - root])


def printed_delta(epsilon: float, ratio: float, n: int, vectors: int) -> float:
    """The delta of Theorem 3 as printed: W Pr(y'ky >= 2 epsilon / W - 2 ln 2). Needs epsilon > W ln 2."""
    each = epsilon / vectors - math.log(2.0)
    return 1.0 if each <= 0 else min(1.0, vectors * chi_square_tail(loss_eigenvalues(ratio, n), 1, each))


def mask_delta(epsilon: float, ratio: float, n: int, vectors: int) -> float:
    """The least delta for which W noise vectors are (epsilon, delta)-private for one bit, in both directions."""
    k = loss_eigenvalues(ratio, n)
    shift = -0.5 * vectors * float(np.log1p(k).sum())
    leaving = _delta(epsilon, shift, k, k / (1.0 + k), vectors)
    joining = _delta(epsilon, -shift, -k / (1.0 + k), -k, vectors)
    return max(leaving, joining)


def _delta(epsilon: float, shift: float, own: Float64Array, other: Float64Array, vectors: int) -> float:
    """P(L > epsilon) - e^epsilon Q(L > epsilon): the loss has weights `own` under P and `other` under Q."""
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
    """P(1/2 sum_i weights_i X_i > x) for independent chi-square X_i with `degrees` degrees of freedom.

    This is the inverse Laplace integral of E exp(sX) / s. The path crosses the real axis at the minimum of the
    integrand, between 0 and the first singularity, and bends around that singularity, so that the integrand decays like
    a Gaussian and the trapezoidal rule is exact to many digits.
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
    # s = start + i u + u^2 / (2 width'): a parabola open to the right, past the branch cut that starts at 1 / top.
    bend = 0.5 / max(start, 1.0 / top - start, width)
    reach = math.sqrt(40.0 / (x * bend)) + 40.0 * width
    u = np.linspace(0.0, reach, _CONTOUR)
    path = start + 1j * u + bend * u * u
    peak = float(exponent(np.array([start + 0j]))[0].real)
    values = np.exp(exponent(path) - peak) * (1j + 2.0 * bend * u)
    step = float(u[1])
    integral = float((values.imag[1:].sum() + 0.5 * values.imag[0]) * step)
    return min(1.0, max(0.0, math.exp(peak) * integral / math.pi))
