"""Noise on gradients: right in the mean, as wide as its formula says, and on the grid whatever the parameters."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from variances import duchi_variance, hybrid_variance, piecewise_variance
from veilboost.crypto.csprng import Csprng
from veilboost.fixedpoint import MAX_BITS, Scale
from veilboost.protocols.ldp.parameters import LdpOptions
from veilboost.protocols.vertical.perturb import Noise, Perturbation, Ranges, multiplier

MECHANISMS = ("gaussian", "laplace", "duchi", "piecewise", "hybrid")
DRAWS = 8000


def variance(noise: Noise, value: float) -> float:
    """Of one released number, by the formulas of the mechanisms."""
    half, middle = (noise.high - noise.low) / 2, (noise.high + noise.low) / 2
    place, epsilon = np.array((value - middle) / half), noise.options.epsilon / noise.channels
    match noise.options.mechanism:
        case "gaussian":
            return (2 * half * multiplier(noise.options)) ** 2 * noise.channels
        case "laplace":
            return 2 * (2 * half / epsilon) ** 2
        case "duchi":
            return half**2 * float(duchi_variance(place, epsilon))
        case "piecewise":
            return half**2 * float(piecewise_variance(place, epsilon))
        case _:
            return half**2 * float(hybrid_variance(place, epsilon))


@pytest.mark.parametrize("mechanism", MECHANISMS)
@settings(max_examples=25, deadline=None)
@given(
    epsilon=st.floats(0.05, 3.0),  # above, rare events make all of the variance
    ranges=st.sampled_from([(-1.0, 1.0), (0.0, 0.25), (-40.0, 40.0), (0.0, 3.0)]),
    share=st.floats(0.0, 1.0),
    channels=st.sampled_from([1, 2]),
    bits=st.integers(14, 30),
    seed=st.integers(0, 2**32),
)
def test_unbiased_with_the_variance_of_the_formula(mechanism, epsilon, ranges, share, channels, bits, seed):
    noise = Noise(LdpOptions(mechanism=mechanism, epsilon=epsilon), *ranges, channels)
    exponent = noise.exponent(bits)
    unit = math.ldexp(1.0, -exponent)
    value = round((ranges[0] + share * (ranges[1] - ranges[0])) / unit) * unit
    drawn = noise.add(np.full(DRAWS, value), exponent, Csprng(str(seed).encode())) * unit
    expected = variance(noise, value) + unit**2 / 12
    # Six standard errors; of the squares those of the heaviest tails here, Laplace's, with room to spare.
    assert abs(drawn.mean() - value) < 6 * math.sqrt(expected / DRAWS) + unit
    assert abs(((drawn - value) ** 2).mean() / expected - 1) < 0.35 + 4 * unit / math.sqrt(expected)


@given(
    mechanism=st.sampled_from(MECHANISMS),
    epsilon=st.floats(1e-4, 50.0),
    g=st.floats(1e-3, 1e6),
    h=st.one_of(st.none(), st.floats(1e-3, 1e6)),
    bits=st.integers(8, 30),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=60, deadline=None)
def test_what_is_sent_fits_the_grid(mechanism, epsilon, g, h, bits, seed):
    perturbation = Perturbation(
        LdpOptions(mechanism=mechanism, epsilon=epsilon, clip=g, clip_hessian=h or 0.0), Ranges(g, h), bits
    )
    rng = np.random.default_rng(seed)
    true = rng.integers(-(2**30), 2**30, size=(2, 50, 2), dtype=np.int32)
    clean = perturbation.clean(true, Scale(20, 20))
    scale = perturbation.scale()
    assert np.abs(clean[..., 0]).max() <= g * 2.0**scale.g_exponent
    if h is not None:
        assert clean[..., 1].min() >= 0
        assert clean[..., 1].max() <= h * 2.0**scale.h_exponent
    released = rng.random((2, 50)) < 0.5
    sent = perturbation.noisy(clean, released, Csprng(b"grid"))
    assert sent.shape == clean.shape
    assert not sent[~released].any()
    assert np.abs(sent.astype(np.int64)).max() <= 2**MAX_BITS
    edge = np.abs(sent.astype(np.int64)) == 2**MAX_BITS
    assert edge.mean() < 0.1, "the grid leaves room for the noise"
