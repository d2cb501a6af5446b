"""The releases of a participant of `secagg`: sums without noise, but only summed over all participants."""

from __future__ import annotations

from collections.abc import Sequence

from veilboost.config import TrainingConfig
from veilboost.privacy.event import Adjacency, Event, ExactRelease
from veilboost.types import Role

_SUMS = "sums of gradients per node and bin"
_ONCE = ("counts of values", "the sum of labels")
_METRIC = "the metric of validation rows"


def releases(
    config: TrainingConfig, validates: bool, rows: int | None = None, columns: int = 0, content: str = ""
) -> Sequence[Event]:
    """All releases of a job; sums and, if it `validates` on held-out rows, the metric are released in every round.

    `content` is the digest of the participant's table.
    """
    every_round = (_SUMS, *((_METRIC,) if validates else ()))
    return [
        ExactRelease(
            what=f"{what}, summed over all participants",
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
    """The releases of a participant, for any number of columns; the rows held out are not known yet."""
    return releases(config, validates=True)
