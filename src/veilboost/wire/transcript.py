"""What a party sent and received: message type, bytes, time. Joined with what the types reveal, it is the leakage."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Literal, NamedTuple

from veilboost.types import PartyName

Direction = Literal["sent", "received"]


class Entry(NamedTuple):
    """One message that crossed."""

    when: float
    direction: Direction
    peer: PartyName
    message: str
    size: int


class Transcript:
    """One party's record of a job, in order."""

    def __init__(self, owner: PartyName) -> None:
        self.owner = owner
        self.entries: list[Entry] = []

    def record(self, direction: Direction, peer: PartyName, message: str, size: int) -> None:
        self.entries.append(Entry(time.time(), direction, peer, message, size))

    def bytes_sent(self) -> int:
        return sum(entry.size for entry in self.entries if entry.direction == "sent")

    def messages_sent(self) -> int:
        return sum(entry.direction == "sent" for entry in self.entries)

    def by_type(self) -> dict[tuple[Direction, str], tuple[int, int]]:
        """Count and bytes of each (direction, message type)."""
        totals: dict[tuple[Direction, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
        for entry in self.entries:
            count, size = totals[entry.direction, entry.message]
            totals[entry.direction, entry.message] = count + 1, size + entry.size
        return dict(totals)
