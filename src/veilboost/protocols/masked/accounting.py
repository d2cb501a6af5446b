"""The releases of `masked` as privacy events, and the noise that results from budgets.

Events hold the true cost of each release, and what the paper's formulas claim.

The noise does not count against the passive party that made the masks: it projects off their span, and vectors under
two masks together give the gradients exactly. So that release is booked as exact, with the paper's claim beside it. It
is booked as Gaussian only against an outsider that sees the vectors but not the masks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from veilboost.config import TrainingConfig
from veilboost.privacy.calibrate import CalibrationRequest
from veilboost.privacy.event import Adjacency, Event, ExactRelease, Gaussian
from veilboost.protocols.masked.parameters import MaskedOptions, Noise, check_passive_budget
from veilboost.protocols.masked.theorems import advanced_share, epsilon_of, kappa, score_error_bound
from veilboost.types import Role

_SUMS = "exact sums of gradients and hessians of every node of a level"
_STACKED = "gradients under masks, to the party that made them: projection and stacking off span(B) reveal them"
_NOISED = "gradients and hessians under masks, one vector for each candidate"
OUTSIDER = "an outsider who sees the noised vectors but not the masks"
_EVERYONE = ""


def _about(what: str, adjacency: Adjacency, adversary: str, **release: Any) -> dict[str, Any]:
    adversary = adversary or "every passive party"
    return {"what": what, "adjacency": adjacency, "adversary": adversary, "protocol": "masked", **release}


def sums_event(maker: str, number: int, depth: int, content: str = "", count: int = 1) -> Event:
    """G and H of a level's nodes, exact (Alg. 2, line 5)."""
    release = f"round {number} level {depth} sums to {maker}"
    return ExactRelease(**_about(_SUMS, Adjacency.LABEL, maker, release=release, content=content, count=count))


def vectors_events(
    noise: Noise,
    config: TrainingConfig,
    maker: str,
    number: int,
    depth: int,
    rows: int,
    candidates: int,
    content: str = "",
    count: int = 1,
    first: bool = True,
) -> list[Event]:
    """The noised vectors of a level, or of one of its messages, of which the first holds the paper's claim.

    `rows`: of the largest node. `candidates`: of one node; nodes in several messages count as if each contained the
    record.
    """
    release = {"release": f"round {number} level {depth} vectors to {maker}", "content": content, "count": count}
    claim = _claim(noise, config, rows, count) if first else {}
    exact = ExactRelease(**_about(_STACKED, Adjacency.LABEL, maker, **release, **claim))
    if noise.options.noise_off:
        return [exact]
    label, one = noise.options.budget == "label", noise.options.budget in ("entry", "label")
    vectors = candidates * (1 if label or config.order == "first" else 2)  # a label does not change its own hessian
    about = _about(_NOISED, Adjacency.LABEL if one else Adjacency.VECTOR, OUTSIDER, **release)
    return [exact, Gaussian(math.sqrt(noise.energy_of(rows) * vectors), **about)]


def masks_event(noise: Noise, number: int, depth: int, candidates: int, content: str = "", count: int = 1) -> Event:
    """The masks of a level: Theorem 3 bounds what one mask reveals about one bit; a record has no bound."""
    what = (
        f"noise vectors for up to {candidates} candidates of each node; their distribution depends on which rows are "
        "left of a split"
    )
    release = {"release": f"round {number} level {depth} masks", "content": content, "count": count}
    claim = {"paper_epsilon": noise.options.eps_pp * count, "paper_delta": noise.delta_pp * count}
    unclaimed = noise.options.noise_off or noise.options.by_hand
    about = _about(what, Adjacency.PASSIVE_RECORD, "the active party", **release, **({} if unclaimed else claim))
    return ExactRelease(**about)


def _claim(noise: Noise, config: TrainingConfig, rows: int, count: int) -> dict[str, Any]:
    """Theorem 2's epsilon and delta for `count` steps, all entries of a vector changed, by basic composition."""
    options = noise.options
    if noise.options.noise_off or options.budget == "label":
        return {}
    epsilon, delta = options.eps_ap, options.delta_ap
    if options.by_hand or options.budget == "entry":
        epsilon = epsilon_of(noise.energy_of_all(rows), delta)
    elif options.budget == "composed":
        epsilon, delta = advanced_share(epsilon, delta, config.n_estimators * config.max_depth)
    return {"paper_epsilon": epsilon * count, "paper_delta": min(delta * count, 1.0)}


def plan(config: TrainingConfig, rows: int, role: Role, columns: int = 1) -> Sequence[Event]:
    """The releases of a party of this role over the whole job, to or by one passive party with this many columns."""
    noise = Noise.of(config, rows, config.max_bin * columns)
    levels = config.n_estimators * config.max_depth
    if role == Role.PASSIVE:
        return [masks_event(noise, 0, 0, noise.candidates, count=levels)]
    vectors = vectors_events(noise, config, _EVERYONE, 0, 0, rows, noise.candidates, count=levels)
    return [sums_event(_EVERYONE, 0, 0, count=levels), *vectors]


def numbers_per_node(rows: int, candidates: int, vectors: int) -> int:
    """The numbers sent for the split of a node: (l W + 2 l) n + l (appendix F)."""
    return (candidates * vectors + 2 * candidates) * rows + candidates


def calibrate(request: CalibrationRequest) -> Mapping[str, Any]:
    """Return the noise at the root of a job's first tree, for a candidate that sends half of the rows left."""
    budgets = {
        "eps_ap": request.epsilon_active,
        "delta_ap": request.delta_active,
        "eps_pp": request.epsilon_passive,
        "delta_pp": request.delta_passive,
    }
    given = {name: value for name, value in budgets.items() if value is not None}
    options = {**given, **request.options}
    checked = MaskedOptions.from_dict(options)
    if not checked.by_hand:
        check_passive_budget(checked)
    config = TrainingConfig(
        n_estimators=request.trees, max_depth=request.depth, max_bin=max(request.bins, 2), options=options
    )
    candidates = request.features * request.bins
    noise = Noise.of(config, request.rows, candidates)
    half = max(request.rows // 2, 1)
    sigma2 = float(noise.sigma2([half], request.rows)[0])
    spread = kappa(half, sigma2, checked.c)
    # The first root of a balanced binary job, and a split that divides the labels three to one in each child.
    left, right = (0.25 * half, 0.25 * half), (-0.25 * half, 0.25 * half)
    score = 0.5 * sum(g * g / (h + config.reg_lambda) for g, h in (left, right))
    off_by = {
        f"{share:g}": score_error_bound(share * score, spread, left, right, config.reg_lambda, noise.vectors)
        for share in (0.1, 0.5, 1.0)
    }
    return {
        "options": options,
        "budget": checked.budget,
        "C": checked.c,
        "W": noise.vectors,
        "sigma1": math.sqrt(noise.ratio) * sigma2,
        "sigma2": sigma2,
        "sigma1_squared_over_sigma2_squared": noise.ratio,
        "mu": noise.mu,
        "rows_left": half,
        "kappa": spread,
        "largest_sum_of_gradients": 0.5 * half,
        "score": score,
        "probability_that_the_score_is_off_by_this_share": off_by,
        "numbers_sent_at_the_root": numbers_per_node(request.rows, candidates, noise.vectors),
        "label_protection": "broken against the passive party, which made the masks",
    }
