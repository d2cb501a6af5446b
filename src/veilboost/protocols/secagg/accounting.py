"""The releases of a participant of `secagg`: only summed over all participants, without noise unless epsilon is set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from veilboost.boost.metrics import metric_named
from veilboost.config import TrainingConfig
from veilboost.privacy.event import Adjacency, Event, ExactRelease
from veilboost.protocols.secagg.noise import Distances, options_of
from veilboost.types import Role

_SUMS = "sums of gradients per node and bin"
_ONCE = ("counts of values", "the sum of labels")
_METRIC = "the metric of validation rows"
_OWN = "its own sums, as the difference of rounds with it and without it"
_SCORES = "the distribution of scores of validation rows, by class"


def releases(
    config: TrainingConfig, validates: bool, rows: int | None = None, columns: int = 0, content: str = ""
) -> Sequence[Event]:
    """All releases of a job; sums and, if it `validates` on held-out rows, the metric are released in every round.

    `content` is the digest of the participant's table.
    """
    if options_of(config).epsilon > 0:
        return Distances.of(config).events(config, content)
    ranks = config.eval_metric != "auto" and metric_named(config.eval_metric).terms is None
    every_round = (_SUMS, *((_SCORES if ranks else _METRIC,) if validates else ()))

    def event(release: str, what: str, count: int, bins: int | None = None) -> Event:
        return ExactRelease(
            what=what,
            adjacency=Adjacency.RECORD,
            adversary="the server",
            protocol="secagg",
            release=release,
            content=content,
            count=count,
            rows=rows,
            bins=bins,
        )

    bins = columns * config.max_bin if columns else None
    found = [
        event(
            what,
            f"{what}, summed over all participants",
            config.n_estimators if what in every_round else 1,
            bins if what == _SUMS else None,
        )
        for what in (*every_round, *_ONCE)
    ]
    if options_of(config).dropouts:
        found.append(event(_OWN, f"{_OWN}, if it is lost or returns", 1, bins))
    return found


def repetition(events: Sequence[Event], number: int, again: int) -> Sequence[Event]:
    """The releases of a round that is begun again: the server may ask other questions then."""
    return [
        replace(event, release=f"{event.release}, round {number}, repetition {again}", count=1)
        for event in events
        if event.release in (_SUMS, _METRIC, _SCORES)
    ]


def plan(config: TrainingConfig, rows: int, role: Role, columns: int = 1) -> Sequence[Event]:
    """The releases of a participant, for any number of columns; the rows held out are not known yet."""
    return releases(config, validates=True)


def delta_option(config: TrainingConfig, role: Role) -> str | None:
    return "delta" if options_of(config).epsilon > 0 else None
