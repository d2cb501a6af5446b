"""Every mechanism has the mean, the variance and the law that its formula says.

Draws come from a seeded generator, so that a test fails for a reason and never by chance.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from variances import discrete_laplace_variance, duchi_variance, hybrid_variance, piecewise_variance
from veilboost.crypto.csprng import Csprng
from veilboost.errors import InvalidParameter
from veilboost.privacy import discrete, mechanism
from veilboost.privacy.discrete import discrete_gaussian, discrete_laplace

COUNT = 40_000
epsilons = st.floats(0.2, 6.0)
units = st.floats(-1.0, 1.0)


def agrees(drawn, mean, variance, fourth=None):
    """Mean and variance within six standard errors: one chance in a billion, and the seed is fixed anyway."""
    assert abs(drawn.mean() - mean) <= 6 * math.sqrt(variance / drawn.size) + 1e-12
    fourth = float(np.mean((drawn - drawn.mean()) ** 4)) if fourth is None else fourth
    assert abs(drawn.var() - variance) <= 6 * math.sqrt(max(fourth - variance**2, 0.0) / drawn.size) + 1e-9 * variance


def law_agrees(drawn, probability, reach):
    """Every integer within reach comes as often as it should."""
    support = np.arange(-reach, reach + 1)
    weights = np.array([probability(int(x)) for x in support])
    weights /= weights.sum()
    for x, p in zip(support, weights, strict=True):
        assert abs(int(np.sum(drawn == x)) - drawn.size * p) <= 6 * math.sqrt(drawn.size * p * (1 - p)) + 1, x


# --- what everything is made of ---------------------------------------------------------------------------


class Fixed:
    """A generator whose words are chosen by the test; further ones are zero."""

    def __init__(self, *words):
        self._bytes = b"".join(word.to_bytes(8, "little") for word in words)

    def bytes(self, count, /):
        drawn, self._bytes = self._bytes[:count], self._bytes[count:]
        return drawn.ljust(count, b"\0")


def test_uniform_numbers_never_reach_either_end():
    drawn = mechanism.uniform(Fixed(0, 2**64 - 1), 2)
    assert drawn.tolist() == [2.0**-53, 1.0 - 2.0**-53]
    agrees(mechanism.uniform(Csprng(b"u"), COUNT), 0.5, 1 / 12)


def test_integers_below_a_bound_are_not_biased_by_its_remainder():
    bound = 3
    last = 2**64 // bound * bound - 1
    assert mechanism.integers_below(Fixed(last + 1, 5), bound, 1).tolist() == [5 % bound]
    assert mechanism.integers_below(Fixed(last), bound, 1).tolist() == [last % bound]
    drawn = mechanism.integers_below(Csprng(b"i"), 7, COUNT)
    assert set(drawn.tolist()) == set(range(7))
    agrees(drawn.astype(float), 3.0, (49 - 1) / 12)
    with pytest.raises(InvalidParameter):
        mechanism.integers_below(Csprng(), 0, 1)


# --- noise to add -----------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(st.floats(1e-3, 1e6), st.integers(0, 2**32))
def test_gaussian(scale, seed):
    generator = Csprng(seed.to_bytes(8, "big"))
    drawn = mechanism.gaussian(generator, scale, COUNT)
    agrees(drawn, 0.0, scale**2, 3 * scale**4)
    assert abs(np.mean(np.abs(drawn) < scale) - 0.682689) < 6 * math.sqrt(0.22 / COUNT)


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_as_many_gaussians_as_asked_for(count):
    assert mechanism.gaussian(Csprng(b"g"), 1.0, count).shape == (count,)


# --- one value in [-1, 1] ---------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(units, epsilons, st.integers(0, 2**32))
def test_local_mechanisms_are_unbiased_with_the_stated_variance(value, epsilon, seed):
    values = np.full(COUNT, value)
    for draw, variance in (
        (mechanism.duchi, duchi_variance),
        (mechanism.piecewise, piecewise_variance),
        (mechanism.hybrid, hybrid_variance),
    ):
        drawn = draw(Csprng(seed.to_bytes(8, "big")), values, epsilon)
        agrees(drawn, value, float(variance(values[:1], epsilon)[0]))


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_no_output_tells_two_inputs_apart_by_more_than_epsilon(epsilon):
    """Counted in cells, the likelihoods of the two extreme inputs differ by e^eps at most."""
    for draw in (mechanism.duchi, mechanism.piecewise, mechanism.hybrid):
        low = draw(Csprng(b"low"), np.full(200_000, -1.0), epsilon)
        high = draw(Csprng(b"high"), np.full(200_000, 1.0), epsilon)
        edges = np.linspace(min(low.min(), high.min()) - 1e-9, max(low.max(), high.max()) + 1e-9, 21)
        first, second = np.histogram(low, edges)[0], np.histogram(high, edges)[0]
        both = (first + second) > 500
        ratio = (first[both] + 1) / (second[both] + 1)
        slack = 6 * np.sqrt(1 / (first[both] + 1) + 1 / (second[both] + 1))
        assert np.all(np.abs(np.log(ratio)) <= epsilon + slack)


def test_hybrid_starts_where_the_two_mechanisms_meet():
    assert pytest.approx(0.60935, abs=1e-5) == mechanism.HYBRID_FROM
    assert mechanism.piecewise_share(0.6) == 0.0
    drawn = mechanism.hybrid(Csprng(b"h"), np.zeros(100), 0.6)
    assert len(set(np.abs(drawn))) == 1  # Duchi's two points
    # Above it the variance does not depend on the value.
    spread = hybrid_variance(np.array([0.0, 0.5, 1.0]), 2.0)
    assert spread == pytest.approx(np.full(3, spread[0]))


@pytest.mark.parametrize("bad", [1.0001, -2.0, math.nan, math.inf])
def test_values_out_of_range_are_refused(bad):
    for draw in (mechanism.duchi, mechanism.piecewise, mechanism.hybrid):
        with pytest.raises(InvalidParameter):
            draw(Csprng(), np.array([0.0, bad]), 1.0)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_an_impossible_epsilon_is_refused(bad):
    for draw in (mechanism.duchi, mechanism.piecewise, mechanism.hybrid):
        with pytest.raises(InvalidParameter):
            draw(Csprng(), np.zeros(2), bad)
    with pytest.raises(InvalidParameter):
        mechanism.randomized_response(Csprng(), np.zeros(2, dtype=np.int64), 3, bad)
    with pytest.raises(InvalidParameter):
        mechanism.exponential(Csprng(), np.zeros(2), bad, 1.0)


# --- one of several ---------------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 20), epsilons, st.data())
def test_randomized_response_keeps_and_moves_as_often_as_it_should(categories, epsilon, data):
    value = data.draw(st.integers(0, categories - 1))
    drawn = mechanism.randomized_response(Csprng(b"r"), np.full(COUNT, value, dtype=np.int64), categories, epsilon)
    for category in range(categories):
        p = math.exp(epsilon * (category == value)) / (math.exp(epsilon) + categories - 1)
        assert abs(int(np.sum(drawn == category)) - COUNT * p) <= 6 * math.sqrt(COUNT * p * (1 - p)) + 1
    assert set(drawn.tolist()) <= set(range(categories))


@pytest.mark.parametrize(("values", "categories"), [([0, 3], 3), ([-1, 0], 3), ([0, 0], 1)])
def test_categories_out_of_range_are_refused(values, categories):
    with pytest.raises(InvalidParameter):
        mechanism.randomized_response(Csprng(), np.array(values), categories, 1.0)


def test_the_exponential_mechanism_selects_with_the_stated_probabilities():
    utilities, epsilon, sensitivity = np.array([0.0, 1.0, 2.5, -math.inf]), 1.2, 0.7
    drawn = mechanism.exponential(Csprng(b"e"), np.tile(utilities, (COUNT, 1)), epsilon, sensitivity)
    weights = np.exp(epsilon * utilities / (2 * sensitivity))
    for at, p in enumerate(weights / weights.sum()):
        assert abs(int(np.sum(drawn == at)) - COUNT * p) <= 6 * math.sqrt(COUNT * p * (1 - p))
    for nothing in (np.array([]), np.array([-math.inf]), np.array([math.nan])):
        with pytest.raises(InvalidParameter):
            mechanism.exponential(Csprng(), nothing, 1.0, 1.0)
    with pytest.raises(InvalidParameter):
        mechanism.exponential(Csprng(), utilities, 1.0, 0.0)


# --- integers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.3, 1.0, 2.7])
def test_the_law_of_integer_noise(scale):
    law_agrees(discrete_laplace(Csprng(b"l"), scale, 200_000), lambda x: math.exp(-abs(x) / scale), 12)
    law_agrees(discrete_gaussian(Csprng(b"g"), scale, 200_000), lambda x: math.exp(-(x**2) / (2 * scale**2)), 10)


@pytest.mark.parametrize("scale", [5.0, 1e3, 5e6, 2.0**34])
def test_the_variance_of_wide_integer_noise(scale):
    count = COUNT if scale < 2**30 else 2000
    laplace = discrete_laplace(Csprng(b"l"), scale, count).astype(float)
    agrees(laplace / scale, 0.0, discrete_laplace_variance(scale) / scale**2, 24.0)
    agrees(discrete_gaussian(Csprng(b"g"), scale, count) / scale, 0.0, 1.0, 3.0)


def test_exact_arithmetic_decides_as_floats_do(monkeypatch):
    """With floats never trusted every draw goes the exact way, and gives the same numbers."""
    quick = discrete_gaussian(Csprng(b"same"), 6.5, 400)

    class Doubtful:
        """NumPy, but all distances are small."""

        def __getattr__(self, name):
            return getattr(np, name)

        @staticmethod
        def flatnonzero(flags):
            return np.arange(len(flags))

    # The exact way draws further bits where it needs them, from another generator so that the main one goes on alike.
    spare = Csprng(b"spare")
    words = discrete.words
    monkeypatch.setattr(discrete, "np", Doubtful())
    monkeypatch.setattr(discrete._Uniform, "_extend", _extend_from(spare, words))
    assert np.array_equal(discrete_gaussian(Csprng(b"same"), 6.5, 400), quick)


def _extend_from(generator, words):
    def extend(self):
        self._value = self._value << 64 | int(words(generator, 1)[0])
        self._bits += 64

    return extend


@pytest.mark.parametrize("exponent", [Fraction(1, 3), Fraction(7, 2), Fraction(40), Fraction(1, 10**9)])
def test_a_uniform_number_is_compared_exactly(exponent):
    """Next to exp(-x) the first 64 bits do not decide: the bits that follow do."""
    at = int(Fraction(math.exp(-exponent)) * 2**64)
    assert discrete._Uniform(max(0, at - 2**20), Fixed()).is_below_exp(exponent) is True
    assert discrete._Uniform(at + 2**20, Fixed()).is_below_exp(exponent) is False
    from decimal import Decimal, localcontext

    with localcontext() as context:
        context.prec = 80
        bits = int((-Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp() * 2**128)
    first, second = divmod(bits, 2**64)
    assert discrete._Uniform(first, Fixed(second - 9)).is_below_exp(exponent) is True
    assert discrete._Uniform(first, Fixed(second + 9)).is_below_exp(exponent) is False


def test_a_draw_of_zero_bits_is_no_infinity():
    """U whose first 64 bits are zero lies far out, and the bits that follow say where."""
    (drawn,) = discrete._geometric(Fixed(0, 2**63), 3.0, 1)
    assert drawn == math.floor(3.0 * 65 * math.log(2))


@pytest.mark.parametrize("guess", [0.0, 2.0, 7.4, 30.0])
def test_a_wrong_first_guess_is_corrected_in_both_directions(monkeypatch, guess):
    monkeypatch.setattr(discrete._Uniform, "minus_log", lambda self: guess)
    word = int(2**64 * math.exp(-7.4))
    assert discrete._exact_geometric(word, Fraction(2), Fixed()) == 14


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, 2.0**41])
def test_an_impossible_scale_is_refused(bad):
    for draw in (discrete_laplace, discrete_gaussian):
        with pytest.raises(InvalidParameter):
            draw(Csprng(), bad, 1)
