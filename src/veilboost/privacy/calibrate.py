"""Calibration: the noise of each mechanism such that all releases stay within a budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from veilboost.config import UNSET_ROUNDS
from veilboost.errors import InvalidParameter
from veilboost.privacy.accountant import bisect, compose, gaussian_delta
from veilboost.privacy.event import Adjacency, Duchi, Event, Exponential
from veilboost.privacy.mechanism import check_epsilon


@dataclass(frozen=True)
class CalibrationRequest:
    """Privacy budgets for a job of this size. A protocol's `calibrate` returns matching options.

    `epsilon_active` and `delta_active` are the active party's budget (its labels), `epsilon_passive` and
    `delta_passive` a passive party's (its features); None means no budget. `guess` is the probability with which a
    label may be guessed from one release, for protocols that are calibrated by it. `features` and `bins` are those of
    the passive party. `options` are protocol options set by the user.
    """

    rows: int
    features: int
    bins: int
    trees: int
    depth: int
    epsilon_active: float | None = None
    delta_active: float | None = None
    epsilon_passive: float | None = None
    delta_passive: float | None = None
    guess: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        for name in ("rows", "features", "bins", "trees", "depth"):
            if getattr(self, name) < 1 and (name, getattr(self, name)) != ("trees", UNSET_ROUNDS):
                raise InvalidParameter(f"{name} is {getattr(self, name)}", "give a number of at least 1")
        for role in ("active", "passive"):
            epsilon, delta = getattr(self, f"epsilon_{role}"), getattr(self, f"delta_{role}")
            if epsilon is not None:
                check_epsilon(epsilon, f"the {role} party's epsilon")
            if delta is not None:
                check_delta(delta, f"the {role} party's delta")
        if self.epsilon_active is None and self.epsilon_passive is None and self.guess is None:
            raise InvalidParameter(
                "no budget is given", "give an epsilon for the active party, a passive party or both"
            )


def check_delta(delta: float, name: str = "delta") -> None:
    if not 0 < delta < 1:
        raise InvalidParameter(f"{name} is {delta}", "give a number between 0 and 1, well below one over the rows")


def gaussian_sigma(epsilon: float, delta: float, sensitivity: float = 1.0, releases: int = 1) -> float:
    """The smallest sigma by the analytic Gaussian (Balle and Wang, 2018); k releases need sqrt(k) times as much."""
    check_epsilon(epsilon)
    check_delta(delta)
    few = 1.0
    while gaussian_delta(1.0 / few, epsilon) > delta:
        few *= 2.0
    many = few
    while gaussian_delta(1.0 / many, epsilon) <= delta:
        many /= 2.0
    one = bisect(lambda sigma: gaussian_delta(1.0 / sigma, epsilon) <= delta, many, few)
    return one * sensitivity * math.sqrt(releases)


def local_epsilon(epsilon: float, releases: int = 1, delta: float | None = None) -> float:
    """The epsilon of each of `releases` draws of Duchi, piecewise, hybrid or randomized response.

    Without a delta, epsilons add up; with one, the best of basic, advanced and Renyi composition is used.
    """
    return _each(epsilon, releases, delta, lambda each, count: Duchi(each, **_FIELDS, count=count))


def exponential_epsilon(epsilon: float, releases: int = 1, delta: float | None = None) -> float:
    """The epsilon of each of `releases` private selections, which compose better than other pure mechanisms."""
    return _each(epsilon, releases, delta, lambda each, count: Exponential(each, **_FIELDS, count=count))


_FIELDS: dict[str, Any] = {
    "what": "calibration",
    "adjacency": Adjacency.LABEL,
    "adversary": "",
    "protocol": "",
    "release": "",
}


def _each(epsilon: float, releases: int, delta: float | None, event: Callable[[float, int], Event]) -> float:
    check_epsilon(epsilon)
    if releases < 1:
        raise InvalidParameter(f"{releases} releases", "count at least one")
    if delta is None:
        return epsilon / releases
    check_delta(delta)
    # An equal share is always allowed; twice the budget is more than delta allows, or hardly less.
    low, high = epsilon / releases, 2.0 * epsilon

    def too_much(each: float) -> bool:
        return compose([event(each, releases)], delta, convolve=False).noised > epsilon

    return low if too_much(low) else math.nextafter(bisect(too_much, low, high), 0.0)
