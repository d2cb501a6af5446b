"""From budgets to the numbers a person wants to see before a job: sigma1, sigma2, C, W, and what scores suffer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from veilboost.config import TrainingConfig
from veilboost.protocols.masked.options import MaskedOptions, check_passive_budget
from veilboost.protocols.masked.parameters import Noise
from veilboost.protocols.masked.theorem1 import kappa, score_error_bound

if TYPE_CHECKING:
    from veilboost.privacy.calibrate import CalibrationRequest


def numbers_per_node(rows: int, candidates: int, vectors: int) -> int:
    """How many numbers a node's split costs: (l W + 2 l) n + l (appendix F)."""
    return (candidates * vectors + 2 * candidates) * rows + candidates


def calibrate(request: CalibrationRequest) -> Mapping[str, Any]:
    """The noise at the root of a job's first tree, for a candidate that sends half of the rows left."""
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
    spread = kappa(half, sigma2)
    # The first root of a balanced binary job, and a cut that divides the labels three to one on either side.
    left, right = (0.25 * half, 0.25 * half), (-0.25 * half, 0.25 * half)
    score = 0.5 * sum(g * g / (h + config.reg_lambda) for g, h in (left, right))
    off_by = {
        f"{share:g}": score_error_bound(share * score, spread, left, right, config.reg_lambda, noise.vectors)
        for share in (0.1, 0.5, 1.0)
    }
    return {
        "options": options,
        "budget": checked.budget,
        "C": 1.0,
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
