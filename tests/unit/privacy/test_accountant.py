"""What events cost together, against closed forms and published figures."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilboost.errors import InvalidParameter
from veilboost.privacy.accountant import by_adversary, compose, gaussian_delta, gaussian_epsilon, spending
from veilboost.privacy.calibrate import (
    CalibrationRequest,
    exponential_epsilon,
    gaussian_sigma,
    local_epsilon,
)
from veilboost.privacy.event import (
    Adjacency,
    Duchi,
    ExactRelease,
    Exponential,
    Gaussian,
    Laplace,
    Piecewise,
    RandomizedResponse,
)

ABOUT = {
    "what": "gradients",
    "adjacency": Adjacency.LABEL,
    "adversary": "passive parties",
    "protocol": "test",
    "release": "all",
}


def test_sixty_gaussians_of_multiplier_five():
    cost = compose([Gaussian(0.2, **ABOUT, count=60)], 1e-5)
    assert cost.pld == pytest.approx(7.3294, abs=1e-4)
    assert cost.renyi == pytest.approx(7.884, abs=1e-3)
    assert cost.epsilon == cost.pld
    single = [Gaussian(0.2, **ABOUT | {"release": f"round {at}"}) for at in range(60)]
    assert compose(single, 1e-5) == cost


@pytest.mark.parametrize(
    ("epsilon", "count", "basic", "advanced", "pld"), [(0.1, 60, 6.0, 4.35, 3.17), (0.05, 360, 18.0, 5.48, 4.10)]
)
def test_pure_releases(epsilon, count, basic, advanced, pld):
    for event in (Duchi(epsilon, **ABOUT, count=count), RandomizedResponse(epsilon, 2, **ABOUT, count=count)):
        cost = compose([event], 1e-5)
        assert cost.basic == pytest.approx(basic)
        assert cost.advanced == pytest.approx(advanced, abs=5e-3)
        assert cost.pld == pytest.approx(pld, abs=6e-3)


def test_randomized_response_over_many_features_is_hardly_better_than_the_sum():
    cost = compose([RandomizedResponse(4.0, 16, **ABOUT, count=18)], 1e-5)
    assert cost.basic == 72.0
    assert cost.epsilon == pytest.approx(72.0, abs=0.01)


@pytest.mark.parametrize("event", [Gaussian(0.7, **ABOUT), Laplace(1.5, **ABOUT), Piecewise(0.8, **ABOUT)])
def test_the_losses_of_one_release_are_its_own(event):
    """A Gaussian beside a negligible other one goes through the convolution and must come out the same."""
    alone = compose([event], 1e-6)
    beside = compose([event, Duchi(1e-9, **ABOUT), Laplace(1e9, **ABOUT)], 1e-6)
    assert beside.pld == pytest.approx(alone.pld, abs=2e-3)
    if isinstance(event, Gaussian):
        assert alone.pld == gaussian_epsilon(0.7, 1e-6)


def test_unlike_mechanisms_cost_more_than_each_and_less_than_the_sum():
    events = [Gaussian(0.2, **ABOUT, count=60), Laplace(10.0, **ABOUT, count=60)]
    parts = [compose([event], 1e-5).pld for event in events]
    whole = compose(events, 1e-5)
    assert max(parts) < whole.pld < sum(parts)
    assert whole.pld < whole.renyi < whole.basic


def test_private_selections_compose_by_their_bounded_range():
    """eps^2 / 8 in zCDP: a quarter of what other pure mechanisms cost."""
    cost = compose([Exponential(0.1, **ABOUT, count=60)], 1e-5)
    rho = 60 * 0.1**2 / 8
    assert cost.epsilon == cost.renyi < 0.6 * cost.pld
    assert cost.renyi <= rho + 2 * math.sqrt(rho * math.log(1e5))


@pytest.mark.parametrize("scale", [0.5, 1.0, 4.0])
def test_renyi_of_laplace_and_of_two_points_by_integration(scale):
    """The accountant's Renyi bound may not be below the exact epsilon, which one release has in closed form."""
    epsilon = 1.0 / scale
    # Laplace: delta(e) = 1 - exp((e - epsilon) / 2).
    delta = 1.0 - math.exp((0.5 * epsilon - epsilon) / 2)
    laplace = compose([Laplace(scale, **ABOUT)], delta)
    assert laplace.pld == pytest.approx(0.5 * epsilon, rel=2e-3)
    assert laplace.renyi >= 0.5 * epsilon
    # Two points: delta(e) = (exp(epsilon) - exp(e)) / (1 + exp(epsilon)).
    delta = (math.exp(epsilon) - math.exp(0.5 * epsilon)) / (1 + math.exp(epsilon))
    points = compose([Duchi(epsilon, **ABOUT)], delta)
    assert points.pld == pytest.approx(0.5 * epsilon, rel=2e-3)
    assert points.renyi >= 0.5 * epsilon


def test_an_exact_release_has_no_finite_epsilon_but_the_rest_is_told():
    cost = compose([ExactRelease(**ABOUT, count=3), Gaussian(1.0, **ABOUT)], 1e-5)
    assert cost.epsilon == math.inf
    assert (cost.exact, cost.releases) == (3, 1)
    assert cost.noised == pytest.approx(gaussian_epsilon(1.0, 1e-5))


def test_nothing_costs_nothing_and_delta_zero_is_for_pure_mechanisms():
    assert compose([], 1e-5).epsilon == 0.0
    assert compose([Duchi(0.5, **ABOUT, count=4)], 0.0).epsilon == 2.0
    assert compose([Gaussian(0.5, **ABOUT)], 0.0).epsilon == math.inf


@pytest.mark.parametrize("delta", [-1e-9, 1.0, math.nan, math.inf])
def test_an_impossible_delta_is_refused(delta):
    with pytest.raises(InvalidParameter):
        compose([], delta)


def test_adjacencies_are_never_mixed():
    label, record = Gaussian(1.0, **ABOUT), Gaussian(1.0, **ABOUT | {"adjacency": Adjacency.PASSIVE_RECORD})
    with pytest.raises(InvalidParameter, match="adjacenc"):
        compose([label, record], 1e-5)
    assert [adjacency for adjacency, _ in by_adversary([label, record, label])] == [
        Adjacency.LABEL,
        Adjacency.PASSIVE_RECORD,
    ]


@settings(max_examples=60, deadline=None)
@given(st.floats(0.01, 30), st.floats(-10, -2).map(lambda power: 10.0**power))
def test_epsilon_and_delta_of_a_gaussian_are_each_others_inverse(mahalanobis, delta):
    epsilon = gaussian_epsilon(mahalanobis, delta)
    assert gaussian_delta(mahalanobis, epsilon) <= delta
    if epsilon > 1e-6:
        assert gaussian_delta(mahalanobis, epsilon * (1 - 1e-6)) > delta * (1 - 1e-9)


def test_far_tails_do_not_break():
    assert gaussian_epsilon(400.0, 1e-9) == pytest.approx(400**2 / 2 + 400 * 6, rel=0.01)
    assert gaussian_epsilon(1e-9, 1e-5) == 0.0
    assert compose([Duchi(700.0, **ABOUT, count=100)], 1e-5).epsilon <= 70_000


# --- calibration ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "sigma"), [(0.5, 4.61), (1, 2.58), (2, 1.45), (4, 0.82), (8, 0.48)])
def test_the_least_sigma(epsilon, sigma):
    """Figures at delta 1e-3, rounded."""
    assert gaussian_sigma(epsilon, 1e-3) == pytest.approx(sigma, abs=6e-3)


@settings(max_examples=25, deadline=None)
@given(st.floats(0.05, 20), st.integers(1, 400), st.floats(-9, -2).map(lambda power: 10.0**power))
def test_calibrated_noise_spends_the_budget_and_no_more(epsilon, releases, delta):
    sigma = gaussian_sigma(epsilon, delta, sensitivity=3.0, releases=releases)
    cost = compose([Gaussian(3.0 / sigma, **ABOUT, count=releases)], delta)
    assert epsilon * 0.999 <= cost.epsilon <= epsilon * (1 + 1e-9)
    for event in (
        Piecewise(local_epsilon(epsilon, releases, delta), **ABOUT, count=releases),
        Exponential(exponential_epsilon(epsilon, releases, delta), **ABOUT, count=releases),
    ):
        assert compose([event], delta, convolve=False).epsilon <= epsilon * (1 + 1e-9)
    assert local_epsilon(epsilon, releases, delta) >= local_epsilon(epsilon, releases) * (1 - 1e-12)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_impossible_budgets_are_refused(bad):
    size = {"rows": 100, "features": 2, "bins": 8, "trees": 3, "depth": 2}
    for make in (
        lambda: gaussian_sigma(bad, 1e-5),
        lambda: gaussian_sigma(1.0, bad if bad != 0 else 1.0),
        lambda: local_epsilon(bad),
        lambda: local_epsilon(1.0, 0),
        lambda: CalibrationRequest(**size, epsilon_active=bad),
        lambda: CalibrationRequest(**size, epsilon_passive=bad),
        lambda: CalibrationRequest(**size, epsilon_active=1.0, delta_active=bad),
        lambda: CalibrationRequest(**size, epsilon_active=1.0, delta_passive=1.0),
        lambda: CalibrationRequest(**size | {"rows": 0}, epsilon_active=1.0),
        lambda: CalibrationRequest(**size),
    ):
        with pytest.raises(InvalidParameter):
            make()


# --- both accountings -------------------------------------------------------------------------------------


def test_both_accountings_stand_side_by_side():
    events = [
        Gaussian(0.2, **ABOUT | {"release": f"round {at}"}, paper_epsilon=1.0, paper_delta=1e-3) for at in range(60)
    ]
    events.append(ExactRelease(**ABOUT | {"what": "the sum of all gradients", "adversary": "a clerk"}))
    told = spending(events, 1e-5)
    (claim,) = told["paper"]
    assert (claim["releases"], claim["epsilon_per_release"], claim["delta_per_release"]) == (60, 1.0, 1e-3)
    noised, exact = told["composed"]
    assert noised["adversary"] == "passive parties"
    assert noised["epsilon"] == pytest.approx(7.3294, abs=1e-4)
    assert exact["epsilon"] == math.inf
    assert exact["exact"] == ["the sum of all gradients"]


def test_the_heavy_library_is_loaded_only_for_unlike_mechanisms():
    code = """
import sys, veilboost, veilboost.cli.main, veilboost.party.vertical, veilboost.privacy.accountant
from veilboost.privacy.accountant import compose
from veilboost.privacy.event import Adjacency, Gaussian
compose([Gaussian(1.0, what="", adjacency=Adjacency.LABEL, adversary="", protocol="", release="")], 1e-5)
assert "dp_accounting" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
