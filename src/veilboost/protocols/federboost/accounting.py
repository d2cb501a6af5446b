"""The parameters of `federboost`: buckets shown become events, and a budget becomes an epsilon per value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from veilboost.boost.bins import BinLayout
from veilboost.config import ProtocolOptions, TrainingConfig
from veilboost.errors import ImpossibleParameter
from veilboost.fields import param
from veilboost.privacy.calibrate import CalibrationRequest, local_epsilon
from veilboost.privacy.event import Adjacency, Event, ExactRelease, RandomizedResponse
from veilboost.privacy.mechanism import keep_probability
from veilboost.types import Role


@dataclass(frozen=True)
class FederBoostOptions(ProtocolOptions):
    """How buckets are perturbed."""

    mechanism: str = param("response", "randomized response, or buckets as they are", choices=("response", "none"))
    epsilon: float = param(
        4.0, "what the bucket of one value costs; a person of d columns spends d times as much", low=0, low_open=True
    )


def bucket_events(options: FederBoostOptions, layout: BinLayout, content: str) -> list[Event]:
    """One event per column: a person stands in all of them, so a record costs the sum."""
    return [
        _event(options, int(width), f"column {column} buckets", content)
        for column, width in enumerate(layout.widths)
        if width > 1  # a single bucket tells nothing
    ]


def _event(options: FederBoostOptions, buckets: int, release: str, content: str = "") -> Event:
    common: dict[str, Any] = {
        "adjacency": Adjacency.PASSIVE_RECORD,
        "adversary": "the active party",
        "protocol": "federboost",
        "release": release,
        "content": content,
    }
    if options.mechanism == "none":
        return ExactRelease(what="buckets of values", **common)
    return RandomizedResponse(
        what="buckets of values, under randomized response",
        epsilon=options.epsilon,
        categories=buckets,
        paper_epsilon=options.epsilon,
        **common,
    )


def plan(config: TrainingConfig, rows: int, role: Role, columns: int = 1) -> Sequence[Event]:
    """What a passive party releases: the buckets of each of its columns, once."""
    if role is not Role.PASSIVE:
        return ()
    options = FederBoostOptions.from_dict(config.options)
    return [_event(options, config.max_bin, f"buckets of column {number}") for number in range(columns)]


def calibrate(request: CalibrationRequest) -> Mapping[str, Any]:
    """The epsilon of each value so that all columns of a person keep to the passive party's budget."""
    if request.epsilon_passive is None:
        raise ImpossibleParameter("federboost protects a passive party's features", "give a passive party's epsilon")
    epsilon = local_epsilon(request.epsilon_passive, request.features, request.delta_passive)
    return {
        "options": {"mechanism": "response", "epsilon": epsilon},
        "noise": {"kept": keep_probability(max(request.bins, 2), epsilon)},
        "releases": request.features,
        "adjacency": str(Adjacency.PASSIVE_RECORD),
    }
