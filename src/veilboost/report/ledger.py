"""How the totals of a privacy ledger grew."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from veilboost.privacy.event import Event, ExactRelease, event_from_dict
from veilboost.privacy.ledger import Ledger, worst_epsilon


@dataclass(frozen=True)
class Spending:
    """What was released to one receiver: pairs of the time and the total until then, after each job."""

    epsilon: Sequence[tuple[float, float]]
    exact: Sequence[tuple[float, float]]


def spending_over_time(book: Ledger, delta: float) -> dict[str, Spending]:
    """The epsilon of releases with noise, at `delta` for each job, and the number of exact releases, by receiver."""
    found: dict[str, dict[str, tuple[float, list[Event]]]] = {}
    for row in book.rows():
        if row.entry == "spent":
            event = event_from_dict(json.loads(row.body))
            jobs = found.setdefault(event.adversary, {})
            jobs[row.job] = row.at, [*(jobs[row.job][1] if row.job in jobs else ()), event]
    return {peer: _cumulated(sorted(jobs.values(), key=lambda each: each[0]), delta) for peer, jobs in found.items()}


def _cumulated(jobs: Sequence[tuple[float, Sequence[Event]]], delta: float) -> Spending:
    times = [at for at, _ in jobs]
    noised = [[event for event in events if not isinstance(event, ExactRelease)] for _, events in jobs]
    exact = [sum(event.count for event in events if isinstance(event, ExactRelease)) for _, events in jobs]
    epsilons = accumulate(worst_epsilon(events, delta) for events in noised)
    return Spending(
        list(zip(times, epsilons, strict=True)), list(zip(times, map(float, accumulate(exact)), strict=True))
    )
