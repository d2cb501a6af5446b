"""Epsilon from below: `sealed` stays under its claim, a `sealed` with a thirtieth of the noise does not.

Noise is drawn anew in every run. A claim that holds is found broken with probability 1 - `SURE`. With a thirtieth of
the noise the two tables lie more than ten deviations apart, so only the place of the threshold is left to chance: it is
the least of thirty values, and the bound falls below 1 only if 41 of the other 60 lie below it too, which happens
with probability C(60, 41) / C(90, 41) < 1e-9.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from veilboost.audit.lower_bound import feature_lower_bound, label_lower_bound, lower_bound
from veilboost.errors import ImpossibleParameter
from veilboost.protocols.sealed import parameters

SURE = 1 - 1e-6


def test_a_gaussian_of_known_epsilon_is_not_overstated() -> None:
    rng = np.random.default_rng(3)
    bounds = [lower_bound(rng.normal(size=600), rng.normal(1.0, size=600), 1e-5) for _ in range(20)]
    # mu = 1 is (4.38, 1e-5) private: no bound may lie above, and most should say something.
    assert max(bounds) < 4.38
    assert np.median(bounds) > 0.5


def test_nothing_is_told_apart_where_nothing_differs() -> None:
    rng = np.random.default_rng(4)
    bounds = [lower_bound(rng.normal(size=300), rng.normal(size=300), 0.01) for _ in range(40)]
    assert sum(bound > 0 for bound in bounds) <= 4


def test_too_few_runs_are_refused() -> None:
    with pytest.raises(ImpossibleParameter, match="repeats"):
        lower_bound(np.zeros(3), np.ones(3), 0.01)


def test_labels_cost_no_more_than_claimed() -> None:
    assert label_lower_bound(1.0, 150, confidence=SURE).holds


def test_a_thirtieth_of_the_noise_on_labels_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    calibrated = parameters.label_noise

    def little(*args: Any, **kwargs: Any) -> Any:
        noise = calibrated(*args, **kwargs)
        return dataclasses.replace(noise, leaf_sigma=noise.leaf_sigma / 30)

    monkeypatch.setattr(parameters, "label_noise", little)
    found = label_lower_bound(1.0, 90)
    assert found.epsilon > 1.0
    assert not found.holds
    assert found.to_dict()["holds"] is False


def test_features_cost_no_more_than_claimed_where_cuts_stay() -> None:
    assert feature_lower_bound(1.0, 150, delta=0.05, confidence=SURE).holds


def test_a_thirtieth_of_the_noise_on_features_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    calibrated = parameters.cell_sigmas
    monkeypatch.setattr(parameters, "cell_sigmas", lambda *args: tuple(sigma / 30 for sigma in calibrated(*args)))
    assert feature_lower_bound(1.0, 90, delta=0.05).epsilon > 1.0


def test_features_cost_no_more_than_claimed_where_cuts_move() -> None:
    """Quantiles of the data would take a row of every bin along with one record that moves; noisy cuts hide it."""
    assert feature_lower_bound(1.0, 120, cuts_move=True, confidence=SURE).holds
