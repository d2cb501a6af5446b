"""Parameters of `ldp`, their limits and privacy cost, and the scoring of noisy sums that both roles share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from veilboost.boost.bins import KIND_CODES, BinLayout
from veilboost.boost.split import Candidates, candidates_from_sums
from veilboost.config import TrainingConfig
from veilboost.errors import InvalidParameter, UnsupportedCombination
from veilboost.fields import param
from veilboost.fixedpoint import Scale
from veilboost.privacy.accountant import DEFAULT_DELTA
from veilboost.privacy.calibrate import CalibrationRequest, gaussian_sigma, local_epsilon
from veilboost.privacy.event import Adjacency, Duchi, Event, ExactRelease, Gaussian, Hybrid, Laplace, Piecewise
from veilboost.protocols.vertical import perturb
from veilboost.types import ColumnKind, Float64Array, Int64Array, Role


@dataclass(frozen=True)
class LdpOptions(perturb.NoiseOptions):
    """How gradients are perturbed and how noisy sums are scored."""

    score: str = param(
        "second",
        "score splits by sums of gradients and hessians, or by gradients alone (FedXGBoost eq. 12)",
        choices=("second", "first"),
    )
    per_node: bool = param(False, "fresh noise at every level, as published, instead of once per tree")
    paper_form: bool = param(False, "as published: send exact sums of each node, and derive right sums from them")


def ranges_of(config: TrainingConfig, options: LdpOptions, trees_per_round: int = 1) -> perturb.Ranges:
    """The ranges that noise must hide: the clipping, or the range of the loss."""
    g, h = perturb.loss_ranges(config, trees_per_round)
    # Hessians of 1 (first-order boosting, squared error) reveal nothing and cost nothing.
    sent = options.score == "second" and config.order == "second" and config.objective != "regression"
    return perturb.Ranges(options.clip or g, (options.clip_hessian or h) if sent else None)


def refuse(config: TrainingConfig) -> None:
    """Raise for unsupported parameters, before anything is sent or spent."""
    options = LdpOptions.from_dict(config.options)
    if config.categories == "sets":
        raise UnsupportedCombination(
            "ldp has no noisy sums per category to order sets by", "set categories to ordinal or onehot"
        )
    if options.score == "first" and config.reg_lambda == 0:
        raise UnsupportedCombination("the first-order score divides by reg_lambda", "set reg_lambda above 0")
    if options.private_leaves:
        if options.per_node or options.paper_form:
            raise UnsupportedCombination(
                "private_leaves excludes per_node and paper_form", "set per_node and paper_form to False"
            )
        perturb.refuse_true_sums(config)
    if options.mechanism == "none":
        return
    if options.noise_multiplier and options.mechanism != "gaussian":
        raise UnsupportedCombination("noise_multiplier applies only to mechanism='gaussian'", "set epsilon instead")
    perturb.refuse_void_noise(config, options, "ldp")
    ranges = ranges_of(config, options)
    if ranges.g == 0 or ranges.h == 0:
        raise InvalidParameter(
            f"ldp knows no bound on the gradients of objective {config.objective!r}, and noise must hide their whole "
            "range",
            "set clip (and clip_hessian, unless objective is regression) to a bound above 0",
        )


_PURE = {"duchi": Duchi, "piecewise": Piecewise, "hybrid": Hybrid}
_ONE = "gradients, with noise that hides their whole range"
_BOTH = "gradients and hessians, with noise that hides their whole ranges"
_common = partial(perturb.released_to_passive, "ldp")


def gradient_event(options: LdpOptions, ranges: perturb.Ranges, vectors: int, release: str) -> Event:
    """The release of `vectors` noisy vectors (one per tree), each of which contains every record.

    Pure epsilons of the gradient and the hessian of a row are counted separately; a Gaussian release covers both.
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
        return Gaussian(mahalanobis=1.0 / perturb.multiplier(options), count=vectors, **common)
    each, count = options.epsilon / ranges.channels, vectors * ranges.channels
    if options.mechanism == "laplace":
        return Laplace(scale_over_sensitivity=1.0 / each, count=count, **common)
    return _PURE[options.mechanism](epsilon=each, count=count, **common)


def totals_event(release: str, content: str = "") -> Event:
    """The exact sums that `paper_form` sends: not private at any epsilon."""
    return ExactRelease(**_common("exact sums of gradients and hessians of every node", release, content))


def plan(config: TrainingConfig, rows: int, role: Role, columns: int = 1) -> Sequence[Event]:
    """The releases of a whole job with one tree per round; with K classes there are K times as many."""
    options = LdpOptions.from_dict(config.options)
    if role is not Role.ACTIVE:
        return ()
    levels = config.n_estimators * config.max_depth
    vectors = levels if options.per_node else config.n_estimators
    events = [gradient_event(options, ranges_of(config, options), vectors, "all rounds")]
    return [*events, totals_event("all rounds")] if options.paper_form else events


def calibrate(request: CalibrationRequest) -> Mapping[str, Any]:
    """Return options whose releases together stay within the active party's budget, and the resulting noise."""
    options = LdpOptions.from_dict(request.options)
    if request.epsilon_active is None:
        raise InvalidParameter("ldp protects the active party's labels", "give the active party's epsilon")
    if options.mechanism == "none" or options.paper_form:
        raise InvalidParameter(
            "exact releases have no finite epsilon", "choose a mechanism other than none, and leave paper_form off"
        )
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


def score(
    sums: Int64Array, layout: BinLayout, totals: Int64Array, scale: Scale, config: TrainingConfig, threads: int
) -> Candidates:
    """The best candidate of each node from noisy bin sums (nodes, slots, 2) and node totals (nodes, 2).

    With totals of the same noisy values the noise on the right is independent of that on the left, as FedXGBoost's
    appendix A requires. With exact totals (Algorithm 6, line 8) it is minus the noise on the left, and the product
    gains +Var(G_L)/lambda.
    """
    if LdpOptions.from_dict(config.options).score == "second":
        # A split with a child whose noisy hessian sum is too small is no candidate.
        return candidates_from_sums(sums, layout, totals, scale, config, threads)
    gain = first_order(sums, layout, totals, scale, config)
    handle = gain.argmax(axis=1) if layout.slots else np.zeros(len(sums), dtype=np.int64)
    best = gain.max(axis=1, initial=-np.inf)
    return Candidates(handle.astype(np.int32), best)


def first_order(
    sums: Int64Array, layout: BinLayout, totals: Int64Array, scale: Scale, config: TrainingConfig
) -> Float64Array:
    """FedXGBoost eq. (12): -G_L G_R / lambda of every handle, minus infinity if a child has too few rows."""
    g, count = sums[..., 0] * scale.g_unit, sums[..., 1] * scale.h_unit
    all_g, all_count = totals[:, :1] * scale.g_unit, totals[:, 1:] * scale.h_unit
    gain = np.full((len(sums), layout.slots, 2), -np.inf)
    least = max(config.min_child_weight, 1.0)
    for feature, (start, end) in enumerate(zip(layout.offsets[:-1].tolist(), layout.offsets[1:].tolist(), strict=True)):
        values = slice(start, end - int(layout.missing[feature]))
        left_g, left_count = g[:, values], count[:, values]
        if layout.kind[feature] == KIND_CODES[ColumnKind.NUMERIC]:
            left_g, left_count = left_g.cumsum(axis=1), left_count.cumsum(axis=1)
        for direction in range(1 + int(layout.missing[feature])):
            if direction:  # missing values go left
                left_g, left_count = left_g + g[:, end - 1 : end], left_count + count[:, end - 1 : end]
            fits = (left_count >= least) & (all_count - left_count >= least)
            product = -left_g * (all_g - left_g) / config.reg_lambda
            gain[:, values, direction] = np.where(fits, product, -np.inf)
    return gain.reshape(len(sums), 2 * layout.slots)
