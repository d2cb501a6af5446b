"""Integer noise, sampled exactly: discrete Laplace and discrete Gaussian (Canonne, Kamath and Steinke, 2020).

Floating-point noise has gaps that reveal the value it was added to; integer noise on a fixed-point grid has none. Both
samplers need to decide whether a uniform real number U is below exp(-x). Floats decide this for nearly all draws at
once; for the rest, exact arithmetic decides, with as many further bits of U as necessary. So the result has exactly the
stated distribution, at the speed of arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Generator as Search
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from veilboost.errors import InvalidParameter
from veilboost.fixedpoint import from_ordered, to_ordered
from veilboost.privacy.mechanism import Generator, words
from veilboost.types import Float32Array, Float64Array, Int64Array

LARGEST_SCALE = 2.0**40  # beyond it floats decide too few draws
_WORD = 64
_AT_ONCE = 1 << 16  # draws whose memory fits into the caches


def discrete_laplace(generator: Generator, scale: float, count: int) -> Int64Array:
    """Integers with P(x) proportional to exp(-|x| / scale)."""
    _check(scale)
    return _in_chunks(lambda some: _laplace(generator, scale, some), count)


def _laplace(generator: Generator, scale: float, count: int) -> Int64Array:
    drawn = np.empty(count, dtype=np.int64)
    missing = np.arange(count)
    while missing.size:
        size = _geometric(generator, scale, missing.size)
        negative = (words(generator, missing.size) & np.uint64(1)).astype(np.bool_)
        good = ~(negative & (size == 0))  # zero would count twice
        drawn[missing[good]] = np.where(negative, -size, size)[good]
        missing = missing[~good]
    return drawn


def discrete_gaussian(generator: Generator, sigma: float, count: int) -> Int64Array:
    """Integers with P(x) proportional to exp(-x^2 / (2 sigma^2)). The variance is at most sigma^2."""
    _check(sigma)
    return _in_chunks(lambda some: _gaussian(generator, sigma, some), count)


def _gaussian(generator: Generator, sigma: float, count: int) -> Int64Array:
    square = Fraction(sigma) ** 2
    proposal = math.floor(sigma) + 1  # CKS Algorithm 3: propose by a discrete Laplace, keep by an exponential coin
    drawn = np.empty(count, dtype=np.int64)
    missing = np.arange(count)
    while missing.size:
        proposed = _laplace(generator, float(proposal), missing.size)
        off = np.abs(proposed) - sigma * sigma / proposal
        exponent = off * off / (2.0 * sigma * sigma)
        coin = words(generator, missing.size)
        chance, tossed = np.exp(-exponent), coin.astype(np.float64) * 2.0**-_WORD
        kept = tossed < chance
        # Rounding changes the exponent by less than 2^-38: |x| stays below 50 sigma, and sigma^2 cancels nothing else.
        for place in np.flatnonzero(np.abs(tossed - chance) < 2.0**-34):
            exact = (abs(int(proposed[place])) - square / proposal) ** 2 / (2 * square)
            kept[place] = _Uniform(int(coin[place]), generator).is_below_exp(exact)
        drawn[missing[kept]] = proposed[kept]
        missing = missing[~kept]
    return drawn


def _geometric(generator: Generator, scale: float, count: int) -> Int64Array:
    """Integers from 0 with P(at least k) = exp(-k / scale): the integer part of -scale ln U."""
    coin = words(generator, count)
    middle: Float64Array = coin.astype(np.float64) + 0.5
    real = scale * (_WORD * math.log(2.0) - np.log(middle))
    size = np.floor(real)
    # The error from the 64 known bits of U and from rounding the logarithm.
    error = scale * (1.0 / middle + 2.0**-45)
    for place in np.flatnonzero(np.abs(real - np.rint(real)) <= error):
        size[place] = _exact_geometric(int(coin[place]), Fraction(scale), generator)
    return size.astype(np.int64)


def _exact_geometric(word: int, scale: Fraction, generator: Generator) -> int:
    uniform = _Uniform(word, generator)
    size = max(0, math.floor(float(scale) * uniform.minus_log()))
    while not uniform.is_below_exp(size / scale):
        size -= 1
    while uniform.is_below_exp((size + 1) / scale):
        size += 1
    return size


class _Uniform:
    """A uniform real number; its bits are drawn as they are needed."""

    def __init__(self, word: int, generator: Generator) -> None:
        self._value, self._bits = word, _WORD
        self._generator = generator

    def minus_log(self) -> float:
        """Approximately -ln U."""
        self._extend()
        return self._bits * math.log(2.0) - math.log(self._value or 1)

    def is_below_exp(self, exponent: Fraction) -> bool:
        """Whether U < exp(-exponent), for an exponent of at least 0. U = exp(-x) has probability 0, save at x = 0."""
        if exponent == 0:
            return True
        while True:
            with localcontext() as context:
                context.prec = self._bits // 3 + 20  # digits beyond the known bits
                power = (-Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp() * 2**self._bits
                slack = power.scaleb(-self._bits // 3 - 10) + Decimal(10) ** -8
                if self._value + 1 <= power - slack:
                    return True
                if self._value >= power + slack:
                    return False
            self._extend()

    def _extend(self) -> None:
        self._value = self._value << _WORD | int(words(self._generator, 1)[0])
        self._bits += _WORD


def _in_chunks(draw: Callable[[int], Int64Array], count: int) -> Int64Array:
    drawn = np.empty(count, dtype=np.int64)
    for first in range(0, count, _AT_ONCE):
        drawn[first : first + _AT_ONCE] = draw(min(_AT_ONCE, count - first))
    return drawn


def _check(scale: float) -> None:
    if not 0 < scale <= LARGEST_SCALE:
        raise InvalidParameter(f"the scale of integer noise is {scale}", "give a number above 0, up to 2^40")


LEVELS = 20  # sign, 8 bits of exponent and 11 of mantissa: cut points are precise to one part in 2048
TABLES = LEVELS + 1  # one more for the count of all values that are not missing
SearchedCuts: TypeAlias = Search[tuple[Int64Array, int], Int64Array, Float32Array]


def cell_counts(values: Float32Array) -> Int64Array:
    """The number of non-missing values in each cell of the last level; counts of parts of a column add up."""
    cells = to_ordered(values[~np.isnan(values)]) >> np.uint32(32 - LEVELS)
    return np.bincount(cells, minlength=1 << LEVELS)


def noisy_cuts(generator: Generator, counts: Int64Array, bins: int, sigma: float) -> Float32Array:
    """Cut points near the quantiles k / bins of a column, from its `cell_counts`, with noise `sigma` on every count."""
    below = np.concatenate(([0], counts.cumsum()))  # the number of values in the cells before each
    search = search_cuts(bins)
    first, width = next(search)
    while True:
        found: Int64Array = below[first + width] - below[first]
        try:
            first, width = search.send(found + discrete_gaussian(generator, sigma, len(first)))
        except StopIteration as end:
            return end.value


def search_cuts(bins: int) -> SearchedCuts:
    """Search cut points near the quantiles k / bins of a column by noisy counts, one table at a time.

    Yields the first cells of ranges, in order, and their common width in cells; the ranges are disjoint. Expects the
    noisy number of values in each. The search descends a tree of counts that halves the range of float32 in the order
    of its bits, so the tree does not depend on the data. A level is one table of counts; changing one person's value
    moves it from one cell to another, an L2 distance of sqrt 2. If several quantiles fall into the same cell, or into
    none, there are fewer cut points.
    """
    total = int((yield np.zeros(1, dtype=np.int64), 1 << LEVELS)[0])
    rank = np.arange(1, bins) * (max(total, 1) / bins)
    start, before = np.zeros(bins - 1, dtype=np.int64), np.zeros(bins - 1)
    for level in range(1, LEVELS + 1):
        half = 1 << (LEVELS - level)
        nodes, which = np.unique(start, return_inverse=True)
        noisy = np.maximum((yield nodes, half), 0)[which]
        right = rank >= before + noisy
        before += np.where(right, noisy, 0)
        start += np.where(right, half, 0)
    cuts = from_ordered((np.unique(start) << (32 - LEVELS)).astype(np.uint32))
    return cuts[np.isfinite(cuts)]
