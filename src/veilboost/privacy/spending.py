"""What was spent, told twice: by the papers' own formulas, and composed. Both are data for people to read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from veilboost.privacy.accountant import by_adversary, compose
from veilboost.privacy.event import Adjacency, Event, ExactRelease


def spending(events: Iterable[Event], delta: float) -> dict[str, Any]:
    """`paper`: what the paper claims for each kind of release, by itself. `composed`: what each adversary's view costs.

    An infinite epsilon is a float; whoever writes JSON turns it into null. `exact_releases` says then why.
    """
    every = tuple(events)
    return {"delta": delta, "paper": _claims(every), "composed": _composed(every, delta)}


def _claims(events: tuple[Event, ...]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str, Adjacency, str], list[Event]] = {}
    for event in events:
        if event.paper_epsilon is not None:
            groups.setdefault((event.protocol, event.what, event.adjacency, event.adversary), []).append(event)
    return [
        {
            "protocol": protocol,
            "what": what,
            "adjacency": str(adjacency),
            "adversary": adversary,
            "releases": len(group),
            # The largest claim: releases of one kind mostly claim the same.
            "epsilon_per_release": max(event.paper_epsilon or 0.0 for event in group),
            "delta_per_release": max(event.paper_delta or 0.0 for event in group),
        }
        for (protocol, what, adjacency, adversary), group in groups.items()
    ]


def _composed(events: tuple[Event, ...], delta: float) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for view in by_adversary(events):
        cost = compose(view.events, delta)
        rows.append(
            {
                "adjacency": str(view.adjacency),
                "adversary": view.adversary,
                "releases": cost.releases,
                "exact_releases": cost.exact,
                "exact": sorted({event.what for event in view.events if isinstance(event, ExactRelease)}),
                "epsilon": cost.epsilon,
                "epsilon_of_noised": cost.noised,
                "basic": cost.basic,
                "advanced": cost.advanced,
                "renyi": cost.renyi,
                "pld": cost.pld,
            }
        )
    return rows
