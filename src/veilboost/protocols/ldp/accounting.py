"""Noise drawn becomes events, and a budget becomes noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from veilboost.config import TrainingConfig
from veilboost.errors import ImpossibleParameter
from veilboost.privacy.accountant import DEFAULT_DELTA
from veilboost.privacy.calibrate import CalibrationRequest, gaussian_sigma, local_epsilon
from veilboost.privacy.event import Adjacency, Duchi, Event, ExactRelease, Gaussian, Hybrid, Laplace, Piecewise
from veilboost.protocols.ldp.options import LdpOptions, Ranges, ranges_of, refuse
from veilboost.protocols.vertical.perturb import multiplier, released_to_passive
from veilboost.types import Role

_PURE = {"duchi": Duchi, "piecewise": Piecewise, "hybrid": Hybrid}
_ONE = "gradients, with noise that hides all of their range"
_BOTH = "gradients and hessians, with noise that hides all of their ranges"
_common = partial(released_to_passive, "ldp")


def gradient_event(options: LdpOptions, ranges: Ranges, vectors: int, release: str) -> Event:
    """The release of `vectors` noisy vectors, in all of which a person stands (one per tree that grows).

    Gradient and hessian of a row are numbers of the same person: pure epsilons are counted one by one, a Gaussian
    release holds both.
    """
    if options.mechanism == "none":
        exact = _common("gradients and hessians, without noise", release)
        return ExactRelease(**exact, count=vectors)
    common = _common(_ONE if ranges.h is None else _BOTH, release)
    common["paper_epsilon"] = options.epsilon * vectors  # FedXGBoost Alg. 6: M(g) costs epsilon, whatever came before
    if options.mechanism == "gaussian":
        if options.noise_multiplier:
            del common["paper_epsilon"]
        else:
            common["paper_delta"] = min(1.0, options.delta * vectors)
        return Gaussian(mahalanobis=1.0 / multiplier(options), count=vectors, **common)
    each, count = options.epsilon / ranges.channels, vectors * ranges.channels
    if options.mechanism == "laplace":
        return Laplace(scale_over_sensitivity=1.0 / each, count=count, **common)
    return _PURE[options.mechanism](epsilon=each, count=count, **common)


def totals_event(release: str, content: str = "") -> Event:
    """The exact sums that `paper_form` sends: not private at any epsilon."""
    return ExactRelease(**_common("exact sums of gradients and hessians of every node", release, content))


def plan(config: TrainingConfig, rows: int, role: Role, columns: int = 1) -> Sequence[Event]:
    """What a whole job releases, for one tree per round: with K classes, K times as much."""
    options = LdpOptions.from_dict(config.options)
    if role is not Role.ACTIVE:
        return ()
    levels = config.n_estimators * config.max_depth
    vectors = levels if options.per_node else config.n_estimators
    events = [gradient_event(options, ranges_of(config, options), vectors, "all rounds")]
    return [*events, totals_event("all rounds")] if options.paper_form else events


def calibrate(request: CalibrationRequest) -> Mapping[str, Any]:
    """Options whose releases together keep to the active party's budget, and the noise that follows."""
    options = LdpOptions.from_dict(request.options)
    if request.epsilon_active is None:
        raise ImpossibleParameter("ldp protects the active party's labels", "give the active party's epsilon")
    if options.mechanism == "none" or options.paper_form:
        raise ImpossibleParameter("exact releases have no finite epsilon", "choose a mechanism, without paper_form")
    config = TrainingConfig(
        objective="binary",
        n_estimators=request.trees,
        max_depth=request.depth,
        categories="ordinal",
        min_child_weight=0.0,
        base_score=0.5,
        options=dict(request.options),
    )
    refuse(config)
    releases = request.trees * (request.depth if options.per_node else 1)
    ranges = ranges_of(config, options)
    chosen = {"mechanism": options.mechanism, "per_node": options.per_node, "score": options.score}
    found: dict[str, Any] = {**request.options, **chosen}
    if options.mechanism == "gaussian":
        delta = DEFAULT_DELTA if request.delta_active is None else request.delta_active
        found["noise_multiplier"] = gaussian_sigma(request.epsilon_active, delta, releases=releases)
        each = found["noise_multiplier"] * math.sqrt(ranges.channels)
        noise = {"sigma_g": 2 * ranges.g * each} | ({} if ranges.h is None else {"sigma_h": ranges.h * each})
    else:
        share = local_epsilon(request.epsilon_active, releases * ranges.channels, request.delta_active)
        found["epsilon"] = share * ranges.channels
        noise = {"epsilon_of_each_number": share}
    return {"options": found, "noise": noise, "releases": releases, "adjacency": str(Adjacency.LABEL)}
