"""What `secagg` fixes, and what it cannot do."""

from __future__ import annotations

from veilboost.boost.metrics import Metric, metric_named
from veilboost.boost.objective import Objective
from veilboost.config import TrainingConfig
from veilboost.errors import UnsupportedCombination
from veilboost.protocols.horizontal.roles import refuse_sampling

FIXED = {"proposal": "global"}


def refuse(config: TrainingConfig) -> None:
    refuse_sampling(config, "secagg")
    if config.eval_metric != "auto" and metric_named(config.eval_metric).terms is None:
        raise UnsupportedCombination(
            f"secagg adds metrics up, and {config.eval_metric} ranks rows", "use one that is a mean, as logloss"
        )


def metric_of(objective: Objective, config: TrainingConfig) -> Metric:
    """How validation rows are measured: as asked, or by the loss's own metric, if that is a mean."""
    found = metric_named(objective.default_metric if config.eval_metric == "auto" else config.eval_metric)
    return found if found.terms is not None else metric_named("logloss")
