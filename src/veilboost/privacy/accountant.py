"""The cost of composed events: an epsilon at a delta, by four composition methods.

Events are composed within one adjacency and one adversary: an epsilon holds for one kind of change of the data. For
colluding parties, call `compose` with all of their events. All four methods give upper bounds; quote the smallest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np

from veilboost.errors import InvalidParameter
from veilboost.privacy.event import Adjacency, Event, ExactRelease, Exponential, Gaussian, Laplace, Pure, assignments_of
from veilboost.types import Float64Array

_Key = TypeVar("_Key")
_ORDERS: Float64Array = 1.0 + np.geomspace(1e-3, 1e6, 4000)  # orders of Renyi divergence
DEFAULT_DELTA = 1e-5  # for policies without a delta, and for jobs without a policy
LARGEST_PLD = 2000.0  # a larger epsilon is no protection, and a loss distribution not worth its memory


@dataclass(frozen=True)
class Composed:
    """The cost of one adversary's view under one adjacency, at `delta`.

    `releases` counts releases with noise, `exact` those without; an exact release has no finite epsilon, whatever noise
    other releases have. `basic`, `advanced`, `renyi` and `pld` (privacy loss distributions) cover only the releases
    with noise.
    """

    delta: float
    releases: int
    exact: int
    basic: float
    advanced: float
    renyi: float
    pld: float

    @property
    def noised(self) -> float:
        """The smallest bound for the releases with noise."""
        return min(self.basic, self.advanced, self.renyi, self.pld)

    @property
    def epsilon(self) -> float:
        """The smallest bound for the whole view."""
        return math.inf if self.exact else self.noised


def by_adversary(events: Iterable[Event]) -> dict[tuple[Adjacency, str], list[Event]]:
    """Events by adjacency and adversary, in order of first appearance."""
    found: dict[tuple[Adjacency, str], list[Event]] = {}
    for event in events:
        found.setdefault((event.adjacency, event.adversary), []).append(event)
    return found


def compose(events: Iterable[Event], delta: float, *, convolve: bool = True) -> Composed:
    """Compose events of one adjacency adaptively: each may depend on the earlier ones.

    `convolve=False` skips the slow method, loss distributions of different mechanisms.
    """
    if not 0 <= delta < 1:
        raise InvalidParameter(f"delta is {delta}", "give a number below 1, well below one over the rows")
    every = tuple(events)
    if len({event.adjacency for event in every}) > 1:
        raise InvalidParameter("events of several adjacencies have no common epsilon", "compose each separately")
    exact = sum(event.count for event in every if isinstance(event, ExactRelease))
    noised = [event for event in every if not isinstance(event, ExactRelease)]
    # Gaussians compose in closed form: squared Mahalanobis distances add up.
    distances = _counted((event.mahalanobis, event) for event in noised if isinstance(event, Gaussian))
    total_distance = math.sqrt(math.fsum(count * distance**2 for distance, count in distances.items()))
    others = _counted((_Cost.of(event), event) for event in noised if not isinstance(event, Gaussian))
    releases = sum(event.count for event in noised)
    if delta == 0:  # only pure mechanisms have a finite epsilon there, and epsilons add up
        pure = math.inf if total_distance else _basic({}, others, delta)
        return Composed(delta, releases, exact, pure, math.inf, math.inf, math.inf)
    basic, advanced = _basic(distances, others, delta), _advanced(distances, others, delta)
    renyi = _renyi(total_distance, others, delta)
    if not others:
        pld = gaussian_epsilon(total_distance, delta)
    elif not convolve or min(basic, advanced, renyi) > LARGEST_PLD:
        pld = math.inf
    else:
        laplaces = [(cost.epsilon, count) for cost, count in others.items() if cost.law is Laplace]
        pures = [(cost.epsilon, count) for cost, count in others.items() if cost.law is not Laplace]
        pld = convolved_epsilon(total_distance, laplaces, pures, delta)
    return Composed(delta, releases, exact, basic, advanced, renyi, pld)


@dataclass(frozen=True)
class _Cost:
    """The cost of a release without Gaussian noise: its pure epsilon, and the law of its losses."""

    law: type[Event]
    epsilon: float

    @staticmethod
    def of(event: Event) -> _Cost:
        if isinstance(event, Laplace):
            return _Cost(Laplace, 1.0 / event.scale_over_sensitivity)
        if isinstance(event, Exponential):
            return _Cost(Exponential, event.epsilon)
        # The worst mechanism of a pure epsilon is randomized response between two answers.
        return _Cost(Pure, event.epsilon if isinstance(event, Pure) else math.inf)


def _counted(pairs: Iterable[tuple[_Key, Event]]) -> dict[_Key, int]:
    """Count releases of the same cost, so that each cost is computed once."""
    counts: dict[_Key, int] = {}
    for key, event in pairs:
        counts[key] = counts.get(key, 0) + event.count
    return counts


# --- Gaussian, exactly (Balle and Wang, 2018) -------------------------------------------------------------


def gaussian_delta(mahalanobis: float, epsilon: float) -> float:
    """Phi(m/2 - eps/m) - e^eps Phi(-m/2 - eps/m), with m the sensitivity over sigma."""
    if mahalanobis == 0:
        return 0.0
    half, shift = mahalanobis / 2.0, epsilon / mahalanobis
    first, second = _log_phi(half - shift), epsilon + _log_phi(-half - shift)
    return max(0.0, -math.exp(first) * math.expm1(min(0.0, second - first)))


def _log_phi(x: float) -> float:
    """The logarithm of the normal distribution function, accurate far into the tail."""
    if x > -30.0:
        return math.log(math.erfc(-x / math.sqrt(2.0)) / 2.0)
    inverse = 1.0 / (x * x)  # the asymptotic series; its relative error is below 1e-11
    series = 1.0 - inverse * (1.0 - 3.0 * inverse * (1.0 - 5.0 * inverse * (1.0 - 7.0 * inverse)))
    return -x * x / 2.0 - math.log(-x * math.sqrt(2.0 * math.pi)) + math.log(series)


def gaussian_epsilon(mahalanobis: float, delta: float) -> float:
    """The epsilon of Gaussian noise at `delta`."""
    if gaussian_delta(mahalanobis, 0.0) <= delta:
        return 0.0
    high = 1.0
    while gaussian_delta(mahalanobis, high) > delta:
        high *= 2.0
    return bisect(lambda epsilon: gaussian_delta(mahalanobis, epsilon) <= delta, 0.0, high)


def bisect(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The point where `holds` changes from false (at `low`) to true (at `high`); `holds` is true there."""
    for _ in range(200):
        middle = (low + high) / 2.0
        if not low < middle < high:
            break
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


# --- four composition methods -----------------------------------------------------------------------------


def _basic(distances: Mapping[float, int], others: Mapping[_Cost, int], delta: float) -> float:
    """Sum of the epsilons; Gaussians share delta evenly."""
    return math.fsum(epsilon * count for epsilon, count in _each(distances, others, delta))


def _advanced(distances: Mapping[float, int], others: Mapping[_Cost, int], delta: float) -> float:
    """Dwork, Rothblum and Vadhan, for different epsilons: sqrt(2 ln(1/d') sum e^2) + sum e (exp(e) - 1)."""
    spare = delta / 2.0 if distances else delta
    each = _each(distances, others, delta - spare)
    if any(epsilon > 100.0 for epsilon, _ in each):
        return math.inf  # useless there, and the exponential would overflow
    squares = math.fsum(count * epsilon**2 for epsilon, count in each)
    drift = math.fsum(count * epsilon * math.expm1(epsilon) for epsilon, count in each)
    return math.sqrt(2.0 * math.log(1.0 / spare) * squares) + drift


def _each(distances: Mapping[float, int], others: Mapping[_Cost, int], delta: float) -> list[tuple[float, int]]:
    share = delta / max(1, sum(distances.values()))
    gaussians = [(gaussian_epsilon(distance, share), count) for distance, count in distances.items()]
    return gaussians + [(cost.epsilon, count) for cost, count in others.items()]


def _renyi(total_distance: float, others: Mapping[_Cost, int], delta: float) -> float:
    """Renyi divergences add up order by order; the best order gives epsilon."""
    total = _ORDERS * total_distance**2 / 2.0
    for cost, count in others.items():
        total = total + count * _divergence(cost)
    # Canonne, Kamath and Steinke 2020, Proposition 12.
    epsilon = total + np.log1p(-1.0 / _ORDERS) - (math.log(delta) + np.log(_ORDERS)) / (_ORDERS - 1.0)
    return max(0.0, float(epsilon.min()))


def _divergence(cost: _Cost) -> Float64Array:
    """The Renyi divergence of one release, at every order."""
    a, epsilon = _ORDERS, cost.epsilon
    if cost.law is Exponential:
        return np.minimum(a * epsilon**2 / 8.0, epsilon)  # bounded range: eps^2/8 in zCDP (Cesar and Rogers, 2021)
    if cost.law is Laplace:  # Mironov 2017, Table II
        up = np.log(a / (2 * a - 1)) + (a - 1) * epsilon
        down = np.log((a - 1) / (2 * a - 1)) - a * epsilon
        return np.logaddexp(up, down) / (a - 1)
    stay, leave = -math.log1p(math.exp(-epsilon)), -epsilon - math.log1p(math.exp(-epsilon))
    return np.logaddexp(a * stay + (1 - a) * leave, a * leave + (1 - a) * stay) / (a - 1)


# --- distributions of privacy losses -------------------------------------------------------------------------------
#
# A typed wrapper of `dp_accounting`, imported on first use. The distributions are composed by hand: its own event
# accountants do not support a Gaussian with randomized response, and for replaced records they double a Gaussian's
# sensitivity, which our events already state.


_INTERVAL = 1e-4  # the grid of losses; coarser if a finer one would not fit into memory
_CELLS = 8e6


def convolved_epsilon(
    mahalanobis: float, laplaces: Sequence[tuple[float, int]], pures: Sequence[tuple[float, int]], delta: float
) -> float:
    """Epsilon at `delta` of a Gaussian (0: none) with Laplace and other pure mechanisms, (epsilon, count) each."""
    from dp_accounting.pld import privacy_loss_distribution  # pyright: ignore[reportMissingTypeStubs]
    from dp_accounting.pld.common import DifferentialPrivacyParameters  # pyright: ignore[reportMissingTypeStubs]

    losses: Any = privacy_loss_distribution
    widest = math.fsum(epsilon * count for epsilon, count in (*laplaces, *pures))
    grid = {"value_discretization_interval": max(_INTERVAL, widest / _CELLS)}
    parts: list[Any] = []
    if mahalanobis > 0:
        parts.append(losses.from_gaussian_mechanism(1.0 / mahalanobis, **grid))
    for epsilon, count in laplaces:
        parts.append(losses.from_laplace_mechanism(1.0 / epsilon, **grid).self_compose(count))
    for epsilon, count in pures:  # the worst mechanism of a pure epsilon
        two_points: Any = losses.from_privacy_parameters(DifferentialPrivacyParameters(epsilon, 0.0), **grid)
        parts.append(two_points.self_compose(count))
    composed = parts[0]
    for part in parts[1:]:
        composed = composed.compose(part)
    return cast(float, composed.get_epsilon_for_delta(delta))


# --- spending, by the papers' own formulas and composed, for reports -----------------------------------------------


def spending(events: Iterable[Event], delta: float) -> dict[str, Any]:
    """The spending of events: `paper` is the paper's claim for each kind of release, `composed` the cost of each view.

    An infinite epsilon is a float, which JSON writers replace by null; `exact_releases` then gives the reason.
    """
    every = tuple(events)
    return {"delta": delta, "paper": _claims(every), "composed": _composed(every, delta)}


def _claims(events: tuple[Event, ...]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str, Adjacency, str], list[Event]] = {}
    for event in events:
        if event.paper_epsilon is not None:
            groups.setdefault((event.protocol, event.what, event.adjacency, event.adversary), []).append(event)
    return [
        {
            "protocol": protocol,
            "what": what,
            "adjacency": str(adjacency),
            "adversary": adversary,
            "releases": len(group),
            # The largest claim: releases of one kind mostly claim the same.
            "epsilon_per_release": max(event.paper_epsilon or 0.0 for event in group),
            "delta_per_release": max(event.paper_delta or 0.0 for event in group),
        }
        for (protocol, what, adjacency, adversary), group in groups.items()
    ]


def _composed(events: tuple[Event, ...], delta: float) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for (adjacency, adversary), seen in by_adversary(events).items():
        cost = compose(seen, delta)
        rows.append(
            {
                "adjacency": str(adjacency),
                "adversary": adversary,
                "releases": cost.releases,
                "exact_releases": cost.exact,
                "exact": sorted({event.what for event in seen if isinstance(event, ExactRelease)}),
                "assignments": assignments_of(seen),
                "epsilon": cost.epsilon,
                "epsilon_of_noised": cost.noised,
                "basic": cost.basic,
                "advanced": cost.advanced,
                "renyi": cost.renyi,
                "pld": cost.pld,
            }
        )
    return rows
