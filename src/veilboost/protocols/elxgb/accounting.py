"""Noise drawn becomes events; a budget, or how well a label may be guessed, becomes noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import NormalDist
from typing import Any

from veilboost.config import TrainingConfig
from veilboost.errors import ImpossibleParameter
from veilboost.privacy.accountant import DEFAULT_DELTA, gaussian_epsilon
from veilboost.privacy.calibrate import CalibrationRequest, gaussian_sigma
from veilboost.privacy.event import Adjacency, Event, ExactRelease, Gaussian
from veilboost.protocols.elxgb.options import ElxgbOptions, leaf_ranges, ranges_of
from veilboost.protocols.vertical.perturb import Ranges, multiplier, released_to_passive
from veilboost.types import Role

_NOISY = "gradients and hessians of a tree, with noise that hides all of their ranges"
_CLEAN = "gradients and hessians of a tree, without noise"
_LEAVES = "sums of the leaves of a tree, with noise, of which later gradients are made"
_common = partial(released_to_passive, "elxgb")


def gradient_event(options: ElxgbOptions, ranges: Ranges, vectors: int, release: str) -> Event:
    """The release of `vectors` noisy vectors, one for each tree that grows.

    As in Algorithm 3 each number of a person has noise for (epsilon, delta) by itself; a person's gradient and
    hessian are two such numbers, and the event counts both.
    """
    if options.mechanism == "none":
        return ExactRelease(**_common(_CLEAN, release), count=vectors)
    common = _common(_NOISY, release)
    if not options.noise_multiplier:
        common |= {"paper_epsilon": options.epsilon * vectors, "paper_delta": min(1.0, options.delta * vectors)}
    return Gaussian(mahalanobis=_distance(options, ranges), count=vectors, **common)


def leaf_event(options: ElxgbOptions, ranges: Ranges, vectors: int, release: str) -> Event:
    """Leaf sums with noise: a person stands in one leaf of each tree."""
    return Gaussian(mahalanobis=_distance(options, ranges), count=vectors, **_common(_LEAVES, release))


def _distance(options: ElxgbOptions, ranges: Ranges) -> float:
    return math.sqrt(ranges.channels) / multiplier(options)


def plan(config: TrainingConfig, rows: int, role: Role, columns: int = 1) -> Sequence[Event]:
    """What a whole job releases, for one tree per round: with K classes, K times as much."""
    options = ElxgbOptions.from_dict(config.options)
    later = config.n_estimators - 1
    if role is not Role.ACTIVE or not later:
        return ()
    events = [gradient_event(options, ranges_of(config, options), later, "all later trees")]
    if options.private_leaves and options.mechanism != "none":
        # The last tree's leaves shape no gradients that anybody sees.
        events.append(leaf_event(options, leaf_ranges(config), later, "leaves of all trees but the last"))
    return events


def guess_probability(noise_multiplier: float, trees: int = 1) -> float:
    """How often the sign of a clipped gradient, or of the sum over trees, shows through the noise: 1 - eq. (7).

    At |g| = C, noise of sigma = 2 C m: Phi(C / sigma). In the first trees nearly all gradients are that large.
    """
    return NormalDist().cdf(math.sqrt(trees) / (2.0 * noise_multiplier))


def calibrate(request: CalibrationRequest) -> Mapping[str, Any]:
    """Options that keep the active party's budget over all later trees, or let labels be guessed no better per tree."""
    options = ElxgbOptions.from_dict({**request.options, "mechanism": "gaussian"})
    channels, later = 2, max(request.trees - 1, 1)
    releases = later * (2 if options.private_leaves else 1)
    delta = DEFAULT_DELTA if request.delta_active is None else request.delta_active  # of all releases together
    if request.guess is not None:
        if not 0.5 < request.guess < 1:
            raise ImpossibleParameter(
                f"a guess is right with probability {request.guess}", "give one between 0.5 and 1"
            )
        found = 1.0 / (2.0 * NormalDist().inv_cdf(request.guess))
    elif request.epsilon_active is not None:
        found = gaussian_sigma(request.epsilon_active, delta, releases=releases * channels)
    else:
        raise ImpossibleParameter("elxgb protects the active party's labels", "give its epsilon, or a guess")
    return {
        "options": {**request.options, "mechanism": "gaussian", "noise_multiplier": found},
        "noise": {"sigma_g": 2.0 * options.clip * found, "sigma_h": (options.clip_hessian or 0.25) * found},
        "releases": releases,
        "epsilon_of_each_number": gaussian_epsilon(1.0 / found, options.delta),
        "delta_of_each_number": options.delta,
        "epsilon_of_all": gaussian_epsilon(math.sqrt(releases * channels) / found, delta),
        "delta": delta,
        "guess_by_one_tree": guess_probability(found),
        "guess_by_all_trees": guess_probability(found, later),
        "adjacency": str(Adjacency.LABEL),
    }
