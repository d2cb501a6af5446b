"""What a participant of `secagg` releases: sums that no noise covers, though only together with everybody's."""

from __future__ import annotations

from collections.abc import Sequence

from veilboost.config import TrainingConfig
from veilboost.privacy.event import Adjacency, Event, ExactRelease

_SUMS = ("sums of gradients per node and bin", "counts of values", "the sum of labels")
_METRIC = "the metric of validation rows"


def releases(watched: bool, content: str = "") -> Sequence[Event]:
    """All of a job; `watched`: rows are kept for validation. `content`: the digest of the participant's table."""
    return [
        ExactRelease(
            what=f"{what}, added up over all participants",
            adjacency=Adjacency.RECORD,
            adversary="the server",
            protocol="secagg",
            release=what,
            content=content,
        )
        for what in (*_SUMS, *((_METRIC,) if watched else ()))
    ]


def plan(config: TrainingConfig, columns: int) -> Sequence[Event]:
    """What a participant would release, of however many columns; which rows are kept apart is not known yet."""
    return releases(watched=True)
