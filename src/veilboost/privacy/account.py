"""Where releases are booked. Every draw of noise is spent here before the release leaves its party."""

from __future__ import annotations

from typing import Protocol

from veilboost.privacy.event import Event


class Account(Protocol):
    """One party's book for one job."""

    def spend(self, *events: Event) -> None:
        """Book releases, before they leave.

        The same event again (a retry, a resumed job) is the same release and costs nothing: its noise is drawn from
        the same key. An event that differs in anything, under the same release name too, is booked beside it: what
        was seen twice is counted twice.
        """
        ...


class MemoryAccount:
    """A book in memory, for simulations and tests."""

    def __init__(self) -> None:
        self._events: dict[Event, None] = {}  # in order, each once

    @property
    def events(self) -> tuple[Event, ...]:
        """What was spent, in order."""
        return tuple(self._events)

    def spend(self, *events: Event) -> None:
        for event in events:
            self._events.setdefault(event)
