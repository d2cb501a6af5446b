"""What a run's messages would take on a slower line: bandwidth and latency, and nothing else of a real network."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from veilboost.errors import ImpossibleParameter
from veilboost.wire.transcript import Entry

_FORM = re.compile(r"(\d+(?:\.\d+)?)(k|m|g)bit,(\d+(?:\.\d+)?)(ms|s)")
_BITS = {"k": 1e3, "m": 1e6, "g": 1e9}
_SECONDS = {"ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class Network:
    """One party's line: bits per second, and seconds that a message is under way whatever its size."""

    bandwidth: float
    latency: float

    @staticmethod
    def parse(text: str) -> Network:
        """From text as `20mbit,100ms`."""
        found = _FORM.fullmatch(text.strip().lower())
        if found is None or float(found[1]) == 0:
            raise ImpossibleParameter(f"{text!r} is no network", "write it as 20mbit,100ms")
        return Network(float(found[1]) * _BITS[found[2]], float(found[3]) * _SECONDS[found[4]])

    def seconds(self, rounds: int, size: int) -> float:
        """So many times there and back, and so many bytes over the one line."""
        return 2 * self.latency * rounds + 8 * size / self.bandwidth

    def replay(self, entries: Iterable[Entry]) -> float:
        """A party's own transcript over its own line."""
        entries = list(entries)
        return self.latency * turns(entries) + 8 * sum(entry.size for entry in entries) / self.bandwidth


def turns(entries: Sequence[Entry]) -> int:
    """How often a party's messages change direction: those of one direction with none between them go together."""
    return sum(at == 0 or entry.direction != entries[at - 1].direction for at, entry in enumerate(entries))
