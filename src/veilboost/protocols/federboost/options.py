"""The parameters of `federboost`, and what they cannot be combined with."""

from __future__ import annotations

from dataclasses import dataclass

from veilboost.config import ProtocolOptions, TrainingConfig
from veilboost.errors import UnsupportedCombination
from veilboost.fields import param


@dataclass(frozen=True)
class FederBoostOptions(ProtocolOptions):
    """How buckets are perturbed."""

    mechanism: str = param("response", "randomized response, or buckets as they are", choices=("response", "none"))
    epsilon: float = param(
        4.0, "what the bucket of one value costs; a person of d columns spends d times as much", low=0, low_open=True
    )


def refuse(config: TrainingConfig) -> None:
    """What `federboost` cannot do, before anything is sent or spent."""
    if config.categories == "sets":
        raise UnsupportedCombination("federboost takes no sets of categories", "set categories to ordinal or onehot")
    if config.proposal == "local":
        raise UnsupportedCombination("federboost makes its buckets once", "set proposal to global")
