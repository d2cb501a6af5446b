"""The parameters of `mal` alone. The number of buckets is `max_bin`."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from veilboost.config import ProtocolOptions, TrainingConfig
from veilboost.crypto.ore.schemes import SCHEMES, scheme_named
from veilboost.errors import UnsupportedCombination
from veilboost.fields import param
from veilboost.protocols.horizontal.roles import refuse_sampling
from veilboost.protocols.mal.stumps import LOSSES

MOST_SLOTS = 256  # buckets travel as bytes
GUARDS = ("merge", "drop", "refuse", "allow")
FIXED = {"max_depth": 1, "binning": "width", "proposal": "global"}


@dataclass(frozen=True)
class MalOptions(ProtocolOptions):
    """Noise on buckets, masks on labels, and how extremes are compared."""

    epsilon: float = param(
        4.0, "privacy of one column's bucket by randomized response; 0: no noise, buckets as they are", low=0
    )
    mask_scale: float = param(10.0, "size of the label masks, in units of the labels' spread", low=0, low_open=True)
    guard: str = param(
        "merge",
        "rows whose label the masks cannot hide: merge their buckets, drop them, refuse the job, or allow it",
        choices=GUARDS,
    )
    max_leverage: float = param(
        0.3, "most of a label that the bucket sums may determine by themselves", low=0, high=0.99, low_open=True
    )
    ore: str = param("lewi_wu", "order-revealing encryption of extremes", choices=SCHEMES)
    ore_bits: int = param(64, "bits of an extreme that are compared: 64, or to save time 32 or 16", low=16, high=64)
    largest: float = param(
        3e38, "agreed range: no value of a numeric column may be larger in size", low=0, high=sys.float_info.max
    )
    least_participants: int = param(1, "participants that must be left for a model to be trained", low=1, high=100_000)


def refuse(config: TrainingConfig) -> None:
    """What masks that cancel per bucket cannot do."""
    options = MalOptions.from_dict(config.options)
    scheme_named(options.ore, options.ore_bits)
    if config.objective not in ("auto", *LOSSES):
        raise UnsupportedCombination(
            f"mal needs hessians without labels, and objective {config.objective!r} has others",
            f"use {', '.join(LOSSES)}",
        )
    if config.max_bin > MOST_SLOTS - 1:
        raise UnsupportedCombination(f"mal has at most {MOST_SLOTS - 1} buckets", "lower max_bin")
    refuse_sampling(config, "mal")
    if config.scale_pos_weight != 1.0:
        raise UnsupportedCombination("mal takes every row alike", "leave scale_pos_weight out")
    if config.early_stopping_rounds is not None:
        raise UnsupportedCombination(
            "mal has no validation rows, and early_stopping_rounds needs them", "set n_estimators alone"
        )
