"""The parameters of `mal`, and what leaves a participant under them, as privacy events. `max_bin` is its buckets."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from veilboost.boost.bins import equal_width
from veilboost.boost.columns import category_cuts
from veilboost.config import ProtocolOptions, TrainingConfig
from veilboost.crypto.csprng import JobRandomness
from veilboost.crypto.ore.schemes import SCHEMES, scheme_named
from veilboost.errors import UnsupportedCombination
from veilboost.fields import param
from veilboost.privacy.event import Adjacency, Event, ExactRelease, RandomizedResponse
from veilboost.privacy.mechanism import randomized_response
from veilboost.protocols.horizontal.roles import refuse_sampling
from veilboost.protocols.horizontal.schema import Schema
from veilboost.protocols.mal.stumps import LOSSES
from veilboost.types import Float32Array, Float64Array, Role, UInt8Array

MOST_SLOTS = 256  # buckets travel as bytes
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
        choices=("merge", "drop", "refuse", "allow"),
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


def _about(what: str, release: str, adjacency: Adjacency, adversary: str = "the server") -> dict[str, Any]:
    return {"what": what, "release": release, "adjacency": adjacency, "adversary": adversary, "protocol": "mal"}


def bucket_event(column: int, categories: int, epsilon: float, content: str = "", rows: int | None = None) -> Event:
    """One column's buckets. A record has one in every column, so its epsilon is that of all columns together."""
    about = _about("the bucket of every row in one column", f"buckets of column {column}", Adjacency.RECORD)
    if epsilon == 0:
        return ExactRelease(**about, content=content, rows=rows, bins=categories)
    about["paper_epsilon"] = epsilon  # Corollary 1
    return RandomizedResponse(**about, content=content, epsilon=epsilon, categories=categories)


def label_event(content: str = "", rows: int | None = None, bins: int | None = None) -> Event:
    """Masks cancel in the sums, so no noise covers these."""
    about = _about("the sum of labels in every bucket", "masked labels", Adjacency.LABEL)
    return ExactRelease(**about, content=content, rows=rows, bins=bins)


def extremes_event(content: str = "") -> Event:
    """The ends of columns, which no noise covers."""
    what = "lowest and highest values, where they are this participant's"
    return ExactRelease(**_about(what, "extremes", Adjacency.RECORD, "everybody who takes part"), content=content)


def plan(config: TrainingConfig, rows: int, role: Role, columns: int = 1) -> Sequence[Event]:
    """What a participant would release of so many columns."""
    epsilon = MalOptions.from_dict(config.options).epsilon
    buckets = (bucket_event(column, config.max_bin, epsilon) for column in range(columns))
    return (*buckets, label_event(), extremes_event())


def perturb(
    buckets: UInt8Array, widths: Sequence[int], epsilon: float, randomness: JobRandomness, content: bytes
) -> UInt8Array:
    """MAL Alg. 1, line 15: a bucket stays with probability e^eps / (e^eps + q - 1). The same rows draw alike."""
    if epsilon == 0:
        return buckets
    noisy = buckets.copy()
    for column, width in enumerate(widths):
        if width > 1:
            generator = randomness.for_request("mal", "buckets", column, content)
            noisy[:, column] = randomized_response(generator, buckets[:, column].astype(np.int64), width, epsilon)
    return noisy


def numeric_columns(schema: Schema) -> list[int]:
    """Those that have a lowest and a highest value; categories have one bucket each instead."""
    return [at for at, info in enumerate(schema.columns) if info.categories is None]


def cuts_of(schema: Schema, low: Float64Array, high: Float64Array, buckets: int) -> Sequence[Float32Array]:
    """Cuts of all columns; a numeric column without any value (its low is NaN) has none."""
    cuts: list[Float32Array] = []
    place = 0
    for info in schema.columns:
        if info.categories is not None:
            cuts.append(category_cuts(len(info.categories or ())))
            continue
        empty = np.isnan(low[place])
        cuts.append(np.empty(0, np.float32) if empty else equal_width(float(low[place]), float(high[place]), buckets))
        place += 1
    return cuts
