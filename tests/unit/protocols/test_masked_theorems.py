"""The theorems of MaskedXGBoost as functions: against Monte Carlo, matrices and the paper's own figures."""

from __future__ import annotations

import math

import numpy as np
import pytest

from veilboost.protocols.masked.theorems import (
    PAPER_MU,
    advanced_share,
    chi_square_tail,
    circulant_means,
    energy_allowed,
    energy_of,
    epsilon_of,
    kappa,
    label_energy,
    largest_ratio,
    loss_eigenvalues,
    mask_delta,
    printed_delta,
    score_error_bound,
)


def covariance(member: np.ndarray, variance1: float, variance2: float) -> np.ndarray:
    """Eqs. (12) and (13) with C = 1."""
    sigma = np.eye(len(member)) * (2 * variance1 + variance2)
    active = np.flatnonzero(member)
    for here, after in zip(active, np.roll(active, -1), strict=True):
        sigma[here, after] -= variance1
        sigma[after, here] -= variance1
    return sigma


# --- Theorem 1 --------------------------------------------------------------------------------------------

LEFT, RIGHT, LAMBDA = (12.0, 9.0), (-7.0, 11.0), 1.0


def simulated_error(alpha: float, kappa: float, vectors: int | None, draws: int = 400_000) -> tuple[float, float]:
    """How often the score is off by alpha, and the sum of how often each side alone is."""
    rng = np.random.default_rng(5)
    x, y = rng.normal(scale=kappa, size=(2, draws))
    if vectors is not None:
        c, d = rng.normal(size=(2, draws, vectors))
        together = (c * d).sum(axis=1) / np.linalg.norm(c, axis=1) / np.linalg.norm(d, axis=1)
        y = together * x + np.sqrt(np.maximum(1 - together**2, 0)) * y
    left = (LEFT[0] + x) ** 2 / (LEFT[1] + LAMBDA + y) - LEFT[0] ** 2 / (LEFT[1] + LAMBDA)
    right = (RIGHT[0] - x) ** 2 / (RIGHT[1] + LAMBDA - y) - RIGHT[0] ** 2 / (RIGHT[1] + LAMBDA)
    return (np.abs(left + right) / 2 >= alpha).mean(), (np.abs(left) >= alpha).mean() + (np.abs(right) >= alpha).mean()


@pytest.mark.parametrize("alpha", [0.5, 2.0, 5.0, 20.0])  # both sides in eq. (17), then one, then none
@pytest.mark.parametrize("noise", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("vectors", [None, 1, 3])
def test_theorem_1_bounds_and_equals_its_two_sides(alpha, noise, vectors):
    bound = score_error_bound(alpha, noise, LEFT, RIGHT, LAMBDA, vectors)
    whole, sides = simulated_error(alpha, noise, vectors)
    assert whole <= bound + 0.005
    # The bound is the union of two sides; each is an integral, not an estimate.
    assert bound == pytest.approx(min(sides, 1.0), abs=0.006)


def test_theorem_1_goes_to_zero_with_the_noise():
    bounds = [score_error_bound(1.0, noise, LEFT, RIGHT, LAMBDA) for noise in (2.0, 0.5, 0.2, 0.05, 0.0)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[-2] < 1e-9  # as printed, without the "- 1" of each side, it would go to 2
    assert bounds[-1] == 0.0


def test_the_published_independence_of_g_and_h_does_not_hold_for_one_vector():
    """With W = 1 the noise of h is that of g or its negative; the published integral misses that."""
    assert score_error_bound(2.0, 1.0, LEFT, RIGHT, LAMBDA) != pytest.approx(
        score_error_bound(2.0, 1.0, LEFT, RIGHT, LAMBDA, 1), rel=0.05
    )


def test_kappa_has_the_root_over_c():
    assert kappa(400, 0.5, 9.0) == pytest.approx(math.sqrt(400 * 9.0) * 0.5)


# --- Theorem 2 --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "energy"), [(0.5, 0.0175), (1, 0.0676), (2, 0.254), (4, 0.910), (8, 3.04)])
def test_theorem_2_allows_what_the_tail_bound_gives(epsilon, energy):
    allowed = energy_allowed(epsilon, 1e-3)
    assert allowed == pytest.approx(energy, rel=5e-3)
    log = math.log(1e-3)
    assert allowed == pytest.approx(2 * (epsilon - 2 * log - 2 * math.sqrt(log * (log - epsilon))), rel=1e-9)
    assert math.exp(-((epsilon - allowed / 2) ** 2) / (2 * allowed)) == pytest.approx(1e-3)
    assert epsilon_of(allowed, 1e-3) == pytest.approx(epsilon)


@pytest.mark.parametrize("member", [[0, 1, 1, 1, 0, 1], [1, 1, 1, 0], [0, 0, 1, 1, 1, 1, 1, 1]])
def test_theorem_2_bounds_every_change_of_the_vector(member):
    member = np.array(member)
    inverse = np.linalg.inv(covariance(member, 0.7, 0.2))
    bound = energy_of(member.sum(), (1 - member).sum(), 1.5, math.sqrt(0.7), math.sqrt(0.2))
    rng = np.random.default_rng(0)
    for _ in range(200):
        v = rng.uniform(-1.5, 1.5, size=len(member))
        assert v @ inverse @ v <= bound + 1e-9
    v = np.full(len(member), 1.5)
    assert v @ inverse @ v == pytest.approx(bound)  # all entries alike is the worst


@pytest.mark.parametrize("n", [3, 4, 7, 40])
@pytest.mark.parametrize("ratio", [0.03, 1.0, 50.0])
def test_label_energy_is_the_largest_diagonal_entry(n, ratio):
    member = np.r_[np.ones(n, dtype=int), 0]
    inverse = np.linalg.inv(covariance(member, ratio * 0.4, 0.4))
    expected = 9.0 * inverse.diagonal().max()
    assert label_energy(n, 3.0, math.sqrt(ratio * 0.4), math.sqrt(0.4)) == pytest.approx(expected)


def test_advanced_composition_spends_the_budget():
    epsilon, delta = advanced_share(4.0, 1e-3, 360)
    total = epsilon * math.sqrt(2 * 360 * math.log(2e3)) + 360 * epsilon * math.expm1(epsilon)
    assert total == pytest.approx(4.0)
    assert 360 * delta + 5e-4 == pytest.approx(1e-3)
    assert pytest.approx(1.462, abs=1e-3) == PAPER_MU


# --- Theorem 3 --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [4, 5, 9, 30])
@pytest.mark.parametrize("ratio", [0.03, 1.0, 20.0])
def test_eigenvalues_and_determinants_are_those_of_the_matrices(n, ratio):
    all_active = covariance(np.ones(n), ratio, 1.0)
    one_less = covariance(np.r_[0, np.ones(n - 1)], ratio, 1.0)
    exact = np.linalg.eigvals(np.linalg.solve(all_active, one_less) - np.eye(n)).real
    largest = exact[np.argsort(-np.abs(exact))][:3]
    np.testing.assert_allclose(np.sort(loss_eigenvalues(ratio, n)), np.sort(largest), atol=1e-9)
    a, b, c = circulant_means(ratio, n)
    block = np.array([[b - c, a + c, b - a], [a - b, 2 * b, a - b], [b - a, a + c, b - c]])
    np.testing.assert_allclose(np.sort(np.linalg.eigvals(block).real), np.sort(loss_eigenvalues(ratio, n)), atol=1e-9)
    np.testing.assert_allclose(block @ [1, 0, -1], (a - c) * np.array([1, 0, -1]), atol=1e-12)  # the sign of erratum 9
    logs = np.linalg.slogdet(all_active)[1] - np.linalg.slogdet(one_less)[1]
    assert -np.log1p(loss_eigenvalues(ratio, n)).sum() == pytest.approx(logs)
    assert 0.25 < math.exp(logs) < 2  # appendix E


@pytest.mark.parametrize(
    ("weights", "degrees", "x"),
    [((1.0, 0.5, -0.3), 1, 2.0), ((5.0, 1.0, -0.6), 3, 20.0), ((1.0, 0.5, -0.3), 2, -0.1), ((0.3, -0.9, -0.6), 1, 0.1)],
)
def test_the_tail_of_weighted_chi_squares(weights, degrees, x):
    draws = np.random.default_rng(3).chisquare(degrees, size=(1_000_000, 3))
    simulated = ((draws * weights).sum(axis=1) / 2 > x).mean()
    assert chi_square_tail(np.array(weights), degrees, x) == pytest.approx(simulated, abs=5 * math.sqrt(0.25e-6))


def test_the_tail_of_one_chi_square_is_exact_far_out():
    for x in (0.5, 5.0, 30.0):  # two degrees: an exponential
        assert chi_square_tail(np.array([2.0]), 2, x) == pytest.approx(math.exp(-x / 2), rel=1e-7)
    assert chi_square_tail(np.array([-1.0]), 1, 0.1) == 0.0


@pytest.mark.parametrize(("n", "ratio", "epsilon", "vectors"), [(4, 2.0, 1.0, 1), (6, 1.0, 1.5, 2), (12, 4.0, 3.0, 1)])
def test_delta_is_that_of_the_two_gaussians(n, ratio, epsilon, vectors):
    """Direct simulation: draw noise vectors of both splitting vectors and compare their densities."""
    rng = np.random.default_rng(1)
    sigmas = covariance(np.r_[0, np.ones(n - 1)], ratio, 1.0), covariance(np.ones(n), ratio, 1.0)
    deltas = []
    for own, other in (sigmas, sigmas[::-1]):
        draws = rng.normal(size=(150_000, vectors, n)) @ np.linalg.cholesky(own).T
        quadratic = [np.einsum("dvi,ij,dvj->d", draws, np.linalg.inv(s), draws, optimize=True) for s in (own, other)]
        logs = vectors * (np.linalg.slogdet(other)[1] - np.linalg.slogdet(own)[1])
        loss = 0.5 * (logs + quadratic[1] - quadratic[0])
        deltas.append(np.maximum(0, 1 - np.exp(epsilon - loss)).mean())
    assert mask_delta(epsilon, ratio, n, vectors) == pytest.approx(max(deltas), abs=0.004)


@pytest.mark.parametrize(
    ("epsilon", "printed", "true"), [(5, 4.2e-4, 6.7e-4), (6, 8.3e-5, 2.4e-4), (7, 2.0e-5, 8.4e-5)]
)
def test_the_printed_bound_does_not_hold_in_the_other_direction(epsilon, printed, true):
    assert printed_delta(epsilon, 1.0, 1000, 1) == pytest.approx(printed, rel=0.1)
    assert mask_delta(epsilon, 1.0, 1000, 1) == pytest.approx(true, rel=0.02)
    assert mask_delta(epsilon, 1.0, 1000, 1) > printed_delta(epsilon, 1.0, 1000, 1)


@pytest.mark.parametrize(("vectors", "epsilon", "ratio"), [(1, 1, 0.033), (1, 4, 0.46), (1, 8, 1.32), (3, 8, 0.22)])
def test_the_ratio_that_the_printed_theorem_allows(vectors, epsilon, ratio):
    assert largest_ratio(epsilon, 1 / 32_651, vectors, (2000,), True) == pytest.approx(ratio, rel=0.03)


def test_the_corrected_ratio_uses_up_delta_and_small_sets_bind():
    ratio = largest_ratio(4.0, 1e-4, 1, (4, 64))
    assert max(mask_delta(4.0, ratio, n, 1) for n in (4, 64)) == pytest.approx(1e-4, rel=1e-3)
    assert largest_ratio(4.0, 1e-4, 1, (64,)) > ratio
    assert largest_ratio(1.0, 1e-4, 3, (64,), True) == 0.0  # eps_PP below W ln 2: the printed theorem is silent
