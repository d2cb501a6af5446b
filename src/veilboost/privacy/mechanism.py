"""Vectorised noise mechanisms. The caller passes the generator; `tests/variances.py` has each mechanism's variance.

The mechanisms for single values (Duchi, piecewise, hybrid; Wang et al., ICDE 2019) take numbers in [-1, 1]; callers
scale by a range that does not depend on the data, and scale back. Integers for exact grids are in `discrete`.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from veilboost.errors import InvalidParameter
from veilboost.types import Float64Array, Int64Array

# Below it Duchi beats the hybrid of both: ln((-5 + 2(6353-405 sqrt 241)^(1/3) + 2(6353+405 sqrt 241)^(1/3)) / 27).
HYBRID_FROM = math.log(
    (-5 + 2 * (6353 - 405 * math.sqrt(241)) ** (1 / 3) + 2 * (6353 + 405 * math.sqrt(241)) ** (1 / 3)) / 27
)


class Generator(Protocol):
    """A source of secret bytes."""

    def bytes(self, count: int, /) -> bytes: ...


# --- uniform randomness -----------------------------------------------------------------------------------


def words(generator: Generator, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """`count` uniform 64-bit words."""
    return np.frombuffer(generator.bytes(8 * count), dtype="<u8")


def uniform(generator: Generator, count: int) -> Float64Array:
    """Uniform numbers in (0, 1): odd multiples of 2^-53, so that neither end occurs and both tails are equal."""
    return ((words(generator, count) >> np.uint64(11)) | np.uint64(1)).astype(np.float64) * 2.0**-53


def integers_below(generator: Generator, bound: int, count: int) -> Int64Array:
    """Uniform integers in [0, bound), exactly: words beyond the last multiple of `bound` are drawn again."""
    if not 1 <= bound <= 2**32:
        raise InvalidParameter(f"integers below {bound}", "choose a bound from 1 to 2^32")
    last = np.uint64((2**64 // bound) * bound - 1)
    drawn = words(generator, count).copy()
    while (again := np.flatnonzero(drawn > last)).size:
        drawn[again] = words(generator, again.size)
    return (drawn % np.uint64(bound)).astype(np.int64)


# --- noise to add -----------------------------------------------------------------------------------------


def gaussian(generator: Generator, sigma: float, count: int) -> Float64Array:
    """Gaussian noise by Box and Muller. Variance sigma^2."""
    pairs = (count + 1) // 2
    radius = sigma * np.sqrt(-2.0 * np.log(uniform(generator, pairs)))
    angle = (2.0 * math.pi) * uniform(generator, pairs)
    drawn = np.empty(2 * pairs)
    np.multiply(radius, np.cos(angle), out=drawn[:pairs])
    np.multiply(radius, np.sin(angle), out=drawn[pairs:])
    return drawn[:count]


# --- one value in [-1, 1] becomes another -----------------------------------------------------------------


def duchi(generator: Generator, values: Float64Array, epsilon: float) -> Float64Array:
    """One of the points B and -B, B = (e^eps + 1) / (e^eps - 1), so that the mean is the value."""
    _check(values, epsilon)
    bound = duchi_bound(epsilon)
    up = uniform(generator, values.size).reshape(values.shape) < 0.5 + values / (2.0 * bound)
    return np.where(up, bound, -bound)


def duchi_bound(epsilon: float) -> float:
    """(e^eps + 1) / (e^eps - 1), without overflow."""
    return 1.0 / math.tanh(epsilon / 2.0)


def piecewise(generator: Generator, values: Float64Array, epsilon: float) -> Float64Array:
    """A point of [-C, C], C = (e^(eps/2) + 1) / (e^(eps/2) - 1), more likely in an interval around the value."""
    _check(values, epsilon)
    flat = values.reshape(-1)
    bound = duchi_bound(epsilon / 2.0)
    left = (bound + 1.0) * flat / 2.0 - (bound - 1.0) / 2.0
    right = left + bound - 1.0
    near = uniform(generator, flat.size) < 1.0 / (1.0 + math.exp(-epsilon / 2.0))
    place = uniform(generator, flat.size)
    # Outside: the two pieces [-C, l) and (r, C] have total length C + 1, laid end to end.
    outside = place * (bound + 1.0) - bound
    outside = np.where(outside < left, outside, outside + (bound - 1.0))
    return np.where(near, left + place * (right - left), outside).reshape(values.shape)


def hybrid(generator: Generator, values: Float64Array, epsilon: float) -> Float64Array:
    """Piecewise with probability 1 - e^(-eps/2), else Duchi; below eps* = 0.609 always Duchi."""
    _check(values, epsilon)
    if epsilon <= HYBRID_FROM:
        return duchi(generator, values, epsilon)
    first = uniform(generator, values.size).reshape(values.shape) < piecewise_share(epsilon)
    return np.where(first, piecewise(generator, values, epsilon), duchi(generator, values, epsilon))


def piecewise_share(epsilon: float) -> float:
    """The probability of the piecewise mechanism in the hybrid."""
    return 0.0 if epsilon <= HYBRID_FROM else -math.expm1(-epsilon / 2.0)


def _check(values: Float64Array, epsilon: float) -> None:
    check_epsilon(epsilon)
    if not bool(np.all(np.abs(values) <= 1.0)):  # NaN fails too
        raise InvalidParameter("a value to perturb is outside [-1, 1]", "clip and scale it first")


def check_epsilon(epsilon: float, name: str = "epsilon") -> None:
    if not 0 < epsilon < math.inf:
        raise InvalidParameter(f"{name} is {epsilon}", "give a finite number above 0")


# --- selection --------------------------------------------------------------------------------------------


def randomized_response(generator: Generator, values: Int64Array, categories: int, epsilon: float) -> Int64Array:
    """A category is kept with probability e^eps / (e^eps + k - 1), otherwise replaced by another at random."""
    check_epsilon(epsilon)
    if categories < 2 or (values.size and not 0 <= int(values.min()) <= int(values.max()) < categories):
        raise InvalidParameter(
            f"randomized response over {categories} categories of values that are not all below it",
            "give at least two categories, and values from 0",
        )
    kept = uniform(generator, values.size).reshape(values.shape) < keep_probability(categories, epsilon)
    step = 1 + integers_below(generator, categories - 1, values.size).reshape(values.shape)
    return np.where(kept, values, (values + step) % categories)


def keep_probability(categories: int, epsilon: float) -> float:
    """e^eps / (e^eps + k - 1)."""
    return 1.0 / (1.0 + (categories - 1) * math.exp(-epsilon))


def exponential(generator: Generator, utilities: Float64Array, epsilon: float, sensitivity: float) -> Int64Array:
    """Select along the last axis with probability proportional to exp(eps u / (2 Delta)): argmax of u with Gumbels.

    A candidate that may not win has utility -inf; every row needs at least one finite utility.
    """
    check_epsilon(epsilon)
    if not 0 < sensitivity < math.inf:
        raise InvalidParameter(f"the sensitivity of a utility is {sensitivity}", "give a finite number above 0")
    best = np.max(utilities, axis=-1) if utilities.shape[-1:] != (0,) else np.array(-math.inf)
    if not bool(np.all(np.isfinite(best))):
        raise InvalidParameter("there is nothing to select from", "give at least one candidate a finite utility")
    gumbel = -np.log(-np.log(uniform(generator, utilities.size))).reshape(utilities.shape)
    return np.argmax(utilities * (epsilon / (2.0 * sensitivity)) + gumbel, axis=-1)
