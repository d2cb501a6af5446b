"""Parameters of `elxgb`, their privacy cost, and the noise for a budget or for a probability of guessing a label."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist
from typing import Any

from veilboost.config import TrainingConfig
from veilboost.errors import InvalidParameter, UnsupportedCombination
from veilboost.fields import param
from veilboost.privacy.accountant import DEFAULT_DELTA, gaussian_epsilon
from veilboost.privacy.calibrate import CalibrationRequest, gaussian_sigma
from veilboost.privacy.event import Adjacency, Event, ExactRelease, Gaussian
from veilboost.protocols.paillier.messages import PaillierOptions
from veilboost.protocols.vertical import perturb
from veilboost.types import Role


@dataclass(frozen=True)
class ElxgbOptions(perturb.NoiseOptions, PaillierOptions):
    """Encryption of the first tree and noise on later gradients. All defaults except the key are the paper's."""

    backend: str = param("paillier", "encryption of the first tree", choices=("paillier", "lattice"))
    mechanism: str = param("gaussian", "noise on the gradients of later trees", choices=("gaussian", "none"))
    epsilon: float = param(10.0, "epsilon of one release of one number of a record", low=0, low_open=True)
    delta: float = param(
        1e-4,
        "delta of one number of a record, as in the paper; totals are composed at the policy's delta",
        low=0,
        high=1,
        low_open=True,
    )
    noise_multiplier: float = param(
        0.0, "sigma divided by the range of a number; 0: computed from epsilon and delta", low=0
    )
    clip: float = param(0.5, "gradients are clipped to plus and minus this before noise", low=0, low_open=True)
    private_leaves: bool = param(False, "also add noise to the sums from which leaf weights are computed")
    clock: float = param(
        0.0,
        "seconds to wait for other parties after a level's first answer, before going on without them; 0: wait for all",
        low=0,
    )


def ranges_of(config: TrainingConfig, options: ElxgbOptions, trees_per_round: int = 1) -> perturb.Ranges:
    """The ranges that noise must hide: clipped gradients, and hessians within their clipping or the loss's range."""
    _, h = perturb.loss_ranges(config, trees_per_round)
    # Hessians of 1 (first-order boosting, squared error) reveal nothing and are not sent.
    sent = config.order == "second" and config.objective != "regression"
    return perturb.Ranges(options.clip, (options.clip_hessian or h) if sent else None)


def leaf_ranges(config: TrainingConfig, trees_per_round: int = 1) -> perturb.Ranges:
    """As `ranges_of`, for leaf sums: gradients without clipping."""
    g, h = perturb.loss_ranges(config, trees_per_round)
    return perturb.Ranges(g, h if config.order == "second" else None)


def refuse(config: TrainingConfig) -> None:
    """Raise for unsupported parameters, before anything is sent or spent."""
    options = ElxgbOptions.from_dict(config.options)
    if config.categories == "sets":
        raise UnsupportedCombination(
            "a node of elxgb's encrypted model compares one number, not a set of categories",
            "set categories to ordinal or onehot",
        )
    if options.backend == "lattice" and options.key_bits != ElxgbOptions.key_bits:
        raise UnsupportedCombination("key_bits applies only to backend='paillier'", "remove key_bits")
    if options.mechanism == "none":
        return
    perturb.refuse_void_noise(config, options, "elxgb")
    if ranges_of(config, options).h == 0:
        raise InvalidParameter(
            f"elxgb knows no bound on the hessians of objective {config.objective!r}, and noise must hide their whole "
            "range",
            "set clip_hessian to a bound above 0",
        )
    if options.private_leaves:
        if leaf_ranges(config).g == 0:
            raise UnsupportedCombination(
                "private_leaves needs bounded gradients", "use a classification objective, or set private_leaves=False"
            )
        perturb.refuse_true_sums(config)


_NOISY = "gradients and hessians of a tree, with noise that hides their whole ranges"
_CLEAN = "gradients and hessians of a tree, without noise"
_LEAVES = "noisy sums of the leaves of a tree, from which later gradients are computed"
_common = partial(perturb.released_to_passive, "elxgb")


def gradient_event(options: ElxgbOptions, ranges: perturb.Ranges, vectors: int, release: str) -> Event:
    """The release of `vectors` noisy vectors, one per tree; both numbers of a record have their own noise (Alg. 3)."""
    if options.mechanism == "none":
        return ExactRelease(**_common(_CLEAN, release), count=vectors)
    common = _common(_NOISY, release)
    if not options.noise_multiplier:
        common |= {"paper_epsilon": options.epsilon * vectors, "paper_delta": min(1.0, options.delta * vectors)}
    return Gaussian(mahalanobis=_distance(options, ranges), count=vectors, **common)


def leaf_event(options: ElxgbOptions, ranges: perturb.Ranges, vectors: int, release: str) -> Event:
    """Leaf sums with noise: a record is in one leaf of each tree."""
    return Gaussian(mahalanobis=_distance(options, ranges), count=vectors, **_common(_LEAVES, release))


def _distance(options: ElxgbOptions, ranges: perturb.Ranges) -> float:
    return math.sqrt(ranges.channels) / perturb.multiplier(options)


def plan(config: TrainingConfig, rows: int, role: Role, columns: int = 1) -> Sequence[Event]:
    """The releases of a whole job with one tree per round; with K classes there are K times as many."""
    options = ElxgbOptions.from_dict(config.options)
    later = config.n_estimators - 1
    if role is not Role.ACTIVE or not later:
        return ()
    events = [gradient_event(options, ranges_of(config, options), later, "all later trees")]
    if options.private_leaves and options.mechanism != "none":
        # No gradients that are sent depend on the leaves of the last tree.
        events.append(leaf_event(options, leaf_ranges(config), later, "leaves of all trees but the last"))
    return events


def guess_probability(noise_multiplier: float, trees: int = 1) -> float:
    """Probability that the noisy sign of a gradient of size C, or of the sum over trees, is right: 1 - eq. (7)."""
    return NormalDist().cdf(math.sqrt(trees) / (2.0 * noise_multiplier))


def calibrate(request: CalibrationRequest) -> Mapping[str, Any]:
    """Options that keep the active party's budget over all later trees, or that bound the label guess per tree."""
    options = ElxgbOptions.from_dict({**request.options, "mechanism": "gaussian"})
    channels, later = 2, max(request.trees - 1, 1)
    releases = later * (2 if options.private_leaves else 1)
    delta = DEFAULT_DELTA if request.delta_active is None else request.delta_active  # of all releases together
    if request.guess is not None:
        if not 0.5 < request.guess < 1:
            raise InvalidParameter(
                f"guess, the probability of a right guess, is {request.guess}", "give a value between 0.5 and 1"
            )
        found = 1.0 / (2.0 * NormalDist().inv_cdf(request.guess))
    elif request.epsilon_active is not None:
        found = gaussian_sigma(request.epsilon_active, delta, releases=releases * channels)
    else:
        raise InvalidParameter("elxgb protects the active party's labels", "give the active party's epsilon or a guess")
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
