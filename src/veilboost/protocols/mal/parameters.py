"""Parameters of `mal`, and the releases of a participant as privacy events. `max_bin` is the number of buckets."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from veilboost.boost.bins import equal_width
from veilboost.boost.columns import category_cuts
from veilboost.boost.metrics import metric_named
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

MOST_SLOTS = 256  # buckets are sent as bytes
MOST_WEIGHTS = 16  # different sample weights of a participant
FIXED = {"max_depth": 1, "binning": "width", "proposal": "global"}


@dataclass(frozen=True)
class MalOptions(ProtocolOptions):
    """Noise on buckets, masks on labels, and the comparison of extremes."""

    epsilon: float = param(
        4.0, "epsilon of randomized response on one column's bucket; 0: no noise, true buckets", low=0
    )
    mask_scale: float = param(10.0, "size of the label masks, in units of the labels' spread", low=0, low_open=True)
    guard: str = param(
        "merge",
        "what to do with rows whose label the masks cannot hide: merge their buckets, drop them, refuse the job, or "
        "allow it",
        choices=("merge", "drop", "refuse", "allow"),
    )
    max_leverage: float = param(
        0.3, "largest share of a label that the bucket sums may determine", low=0, high=0.99, low_open=True
    )
    ore: str = param("lewi_wu", "order-revealing encryption of extremes", choices=SCHEMES)
    ore_bits: int = param(64, "bits of an extreme that are compared: 64, or to save time 32 or 16", low=16, high=64)
    largest: float = param(
        3e38, "agreed bound on the absolute value of numeric columns", low=0, high=sys.float_info.max
    )
    least_participants: int = param(
        1, "participants that must be reachable, from the start of the job to its end", low=1, high=100_000
    )


def refuse(config: TrainingConfig) -> None:
    """Raise for parameters that masks which cancel per bucket do not support."""
    options = MalOptions.from_dict(config.options)
    scheme_named(options.ore, options.ore_bits)
    if config.objective not in ("auto", *LOSSES):
        raise UnsupportedCombination(
            f"mal needs hessians that do not depend on labels, unlike those of objective {config.objective!r}",
            f"set objective to one of {', '.join(LOSSES)}",
        )
    if config.max_bin > MOST_SLOTS - 1:
        raise UnsupportedCombination(
            f"mal has at most {MOST_SLOTS - 1} buckets", f"set max_bin to at most {MOST_SLOTS - 1}"
        )
    refuse_sampling(config, "mal")
    if config.scale_pos_weight != 1.0:
        raise UnsupportedCombination("mal does not support scale_pos_weight", "remove scale_pos_weight")


def refuse_ranking(config: TrainingConfig) -> None:
    """Raise for a metric that the server cannot compute from the participants' own."""
    if config.eval_metric != "auto" and metric_named(config.eval_metric).terms is None:
        raise UnsupportedCombination(
            f"mal averages the metric of validation rows over participants, and {config.eval_metric} is no mean over "
            "rows",
            "set eval_metric to auto, logloss or error, or use secagg",
        )


def least_participants(config: TrainingConfig, participants: int) -> int:
    return MalOptions.from_dict(config.options).least_participants


def _about(what: str, release: str, adjacency: Adjacency, adversary: str = "the server") -> dict[str, Any]:
    return {"what": what, "release": release, "adjacency": adjacency, "adversary": adversary, "protocol": "mal"}


def bucket_event(column: int, categories: int, epsilon: float, content: str = "", rows: int | None = None) -> Event:
    """The buckets of one column. A record has one in every column, so its epsilon is the sum over all columns."""
    about = _about("the bucket of every row in one column", f"buckets of column {column}", Adjacency.RECORD)
    if epsilon == 0:
        return ExactRelease(**about, content=content, rows=rows, bins=categories)
    about["paper_epsilon"] = epsilon  # Corollary 1
    return RandomizedResponse(**about, content=content, epsilon=epsilon, categories=categories)


def label_event(content: str = "", rows: int | None = None, bins: int | None = None) -> Event:
    """Sums of labels. Masks cancel in them, so no noise protects them."""
    about = _about("the sum of labels in every bucket", "masked labels", Adjacency.LABEL)
    return ExactRelease(**about, content=content, rows=rows, bins=bins)


def weight_event(content: str = "", rows: int | None = None) -> Event:
    return ExactRelease(
        **_about("the sample weight of every row", "weights", Adjacency.RECORD), content=content, rows=rows
    )


def metric_event(rounds: int, content: str = "", rows: int | None = None) -> Event:
    about = _about("the metric of validation rows", "metric of validation rows", Adjacency.RECORD)
    return ExactRelease(**about, content=content, count=rounds, rows=rows)


def extremes_event(content: str = "") -> Event:
    """The lowest and highest values of columns, without noise."""
    what = "global lowest and highest values, if they are this participant's"
    return ExactRelease(**_about(what, "extremes", Adjacency.RECORD, "everyone who takes part"), content=content)


def plan(config: TrainingConfig, rows: int, role: Role, columns: int = 1) -> Sequence[Event]:
    """The releases of a participant with this number of columns."""
    epsilon = MalOptions.from_dict(config.options).epsilon
    buckets = (bucket_event(column, config.max_bin, epsilon) for column in range(columns))
    return (*buckets, label_event(), extremes_event())


def perturb(
    buckets: UInt8Array, widths: Sequence[int], epsilon: float, randomness: JobRandomness, content: bytes
) -> UInt8Array:
    """MAL Alg. 1, line 15: a bucket stays with probability e^eps / (e^eps + q - 1). The same rows get equal noise."""
    if epsilon == 0:
        return buckets
    noisy = buckets.copy()
    for column, width in enumerate(widths):
        if width > 1:
            generator = randomness.for_request("mal", "buckets", column, content)
            noisy[:, column] = randomized_response(generator, buckets[:, column].astype(np.int64), width, epsilon)
    return noisy


def numeric_columns(schema: Schema) -> list[int]:
    """Indices of the columns with a lowest and a highest value; each category has a bucket of its own instead."""
    return [at for at, info in enumerate(schema.columns) if info.categories is None]


def cuts_of(schema: Schema, low: Float64Array, high: Float64Array, buckets: int) -> Sequence[Float32Array]:
    """Cut points of all columns; a numeric column without any value (its low is NaN) has none."""
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
