"""What `secagg` cannot do."""

from __future__ import annotations

from veilboost.config import TrainingConfig
from veilboost.errors import UnsupportedCombination

FIXED = {"proposal": "global"}


def refuse(config: TrainingConfig) -> None:
    if config.scale_pos_weight != 1.0 or config.weighted_bins:
        raise UnsupportedCombination("secagg takes every row alike", "leave weights out")
    if config.subsample < 1.0 or config.sampling != "uniform":
        raise UnsupportedCombination("secagg takes every row of every participant", "leave row sampling out")
    if config.early_stopping_rounds is not None:
        raise UnsupportedCombination(
            "secagg has no validation rows, and early_stopping_rounds needs them", "set n_estimators alone"
        )
