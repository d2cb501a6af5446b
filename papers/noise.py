"""The papers' methods with noise, for a budget: which protocol, with which options.

The papers do not say what their epsilon adds up over, so a budget can be interpreted in three ways:

per release   every release has the whole budget
composed      the budget covers all k = trees x depth releases, fresh noise at every level as published
label         the budget covers the whole job for a change of one person's label: noise once per tree
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from papers.law import LAW
from veilboost.privacy.calibrate import gaussian_sigma, local_epsilon

DELTA = 1e-3  # delta_AP of MaskedXGBoost
NO_EPSILON = "none"


@dataclass(frozen=True)
class Method:
    """A protocol under one reading of epsilon; `settings` are training parameters that it needs."""

    name: str
    reading: str
    protocol: str
    options: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])


NON_PRIVATE = Method("XGBoost-NonPrivate", NO_EPSILON, "plain", {})
# Nothing but noise: random splits, with leaf weights from true gradients.
RANDOM_SPLITS = Method("splits by noise alone", NO_EPSILON, "ldp", {"noise_multiplier": 1e6})


def ldp(mechanism: str, score: str, reading: str, epsilon: float, trees: int, depth: int) -> Method:
    """XGBoost-LDP is Gaussian and of second order; FedXGBoost-LDP is any local mechanism and of first order."""
    channels = 2 if score == "second" else 1
    levels = reading == "composed"
    releases = {"per release": 1, "composed": trees * depth, "label": trees}[reading]
    options: dict[str, Any] = {"mechanism": mechanism, "score": score, "per_node": levels}
    if mechanism == "gaussian":
        options["noise_multiplier"] = gaussian_sigma(epsilon, DELTA, releases=releases)
        if reading == "label":  # of g's range of 2 a label changes 1, and it changes no hessian
            options["noise_multiplier"] /= 2 * math.sqrt(channels)
    else:
        each = local_epsilon(epsilon, releases * channels, DELTA if releases > 1 else None) * channels
        options["epsilon"] = 2 * each if reading == "label" and mechanism == "laplace" else each
    name = "XGBoost-LDP" if score == "second" else "FedXGBoost-LDP"
    return Method(f"{name} ({mechanism})", reading, "ldp", options)


def masked(reading: str, epsilon: float, **options: Any) -> Method:
    """MaskedXGBoost by the law of its noisy sums, without masks: the same outcome, sooner."""
    budget = "release" if reading == "per release" else reading
    own = {"eps_ap": epsilon, "delta_ap": DELTA, "budget": budget, **options}
    return Method("MaskedXGBoost", reading, LAW.name, own)


def federboost(reading: str, epsilon: float, columns: int) -> Method:
    """Its epsilon is the passive party's: of every value by itself, or ("record") of all its columns of a person."""
    each = epsilon / columns if reading == "record" else epsilon
    return Method("FederBoost (eps_PP)", reading, "federboost", {"epsilon": each})
