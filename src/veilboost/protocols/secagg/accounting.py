"""What a participant of `secagg` releases: sums that no noise covers, though only together with everybody's."""

from __future__ import annotations

from collections.abc import Sequence

from veilboost.config import TrainingConfig
from veilboost.privacy.event import Adjacency, Event, ExactRelease
from veilboost.types import Role

_SUMS = "sums of gradients per node and bin"
_ONCE = ("counts of values", "the sum of labels")
_METRIC = "the metric of validation rows"


def releases(
    config: TrainingConfig, watched: bool, rows: int | None = None, columns: int = 0, content: str = ""
) -> Sequence[Event]:
    """All of a job; `watched`: rows are kept for validation. Sums and the metric leave in every round.

    `content` is the digest of the participant's table.
    """
    every_round = (_SUMS, *((_METRIC,) if watched else ()))
    return [
        ExactRelease(
            what=f"{what}, added up over all participants",
            adjacency=Adjacency.RECORD,
            adversary="the server",
            protocol="secagg",
            release=what,
            content=content,
            count=config.n_estimators if what in every_round else 1,
            rows=rows,
            bins=columns * config.max_bin if columns and what == _SUMS else None,
        )
        for what in (*every_round, *_ONCE)
    ]


def plan(config: TrainingConfig, rows: int, role: Role, columns: int = 1) -> Sequence[Event]:
    """What a participant would release, of however many columns; which rows are kept apart is not known yet."""
    return releases(config, watched=True)
