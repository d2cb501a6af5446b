"""MaskedXGBoost, Theorem 2: how much noise the published guarantee for the active party's vectors asks for.

What it assumes decides what it is worth: that whoever receives the noised vector does not know the masks. The passive
party made them. `LEAKAGE.md` tells what that means.
"""

from __future__ import annotations

import math

PAPER_MU = 2.0 * math.e / (math.e + 1.0)  # section 5.2; holds for margins in [0, 1] only


def energy_allowed(epsilon: float, delta: float) -> float:
    """The most that v' Sigma^-1 v may be for a change v of the released vector: the right side of Theorem 2.

    It solves exp(-(epsilon - s/2)^2 / (2s)) = delta. (The last line of the paper's proof prints s/2 for
    epsilon - s/2.)
    """
    log = math.log(delta)
    # The printed difference cancels for small epsilon: 2(e - 2l - 2 sqrt(l(l - e))) = 2(sqrt(e - l) - sqrt(-l))^2.
    return 2.0 * (epsilon / (math.sqrt(epsilon - log) + math.sqrt(-log))) ** 2


def epsilon_of(energy: float, delta: float) -> float:
    """The epsilon that the theorem gives for an energy: `energy_allowed` the other way round."""
    return energy / 2.0 + math.sqrt(2.0 * energy * -math.log(delta))


def energy_of(n_active: float, n_inactive: float, mu: float, sigma1: float, sigma2: float, c: float = 1.0) -> float:
    """The left side of Theorem 2: a bound on v' Sigma^-1 v where every entry of v may be as large as mu."""
    return n_inactive * mu**2 / (c * (2.0 * sigma1**2 + sigma2**2)) + n_active * mu**2 / (c * sigma2**2)


def label_energy(n_active: int, change: float, sigma1: float, sigma2: float) -> float:
    """v' Sigma^-1 v where one entry changes: the larger of an inactive entry's and an active one's.

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
    """What each of `steps` releases may cost by advanced composition (section 2.3), half of delta kept for it."""
    spare = delta / 2.0

    def total(each: float) -> float:
        return each * math.sqrt(2.0 * steps * math.log(1.0 / spare)) + steps * each * math.expm1(each)

    low, high = 0.0, epsilon
    for _ in range(200):
        middle = (low + high) / 2.0
        low, high = (middle, high) if total(middle) <= epsilon else (low, middle)
    return low, spare / steps
