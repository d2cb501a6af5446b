"""What `secagg` fixes, and what it cannot do."""

from __future__ import annotations

from veilboost.config import TrainingConfig
from veilboost.protocols.horizontal import refuse_sampling

FIXED = {"proposal": "global"}


def refuse(config: TrainingConfig) -> None:
    refuse_sampling(config, "secagg")
