"""Who is protected from whom, how well, and by what evidence: a protocol's claim, as data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """How a protocol stands for one victim."""

    SOUND = "sound"  # proved, under named assumptions
    HEURISTIC = "heuristic"  # no attack known at the stated sizes
    BROKEN = "broken"  # an attack in the test suite succeeds
    OPEN = "open"  # no protection is claimed


@dataclass(frozen=True)
class Protection:
    """What happens to one victim's data against one adversary."""

    victim: str
    data: str
    adversary: str
    status: Status
    why: str

    @property
    def subject(self) -> str:
        """What `data` is about: all before its first comma. What follows says under which circumstances."""
        return self.data.split(",")[0]


@dataclass(frozen=True)
class Statement:
    """All that a protocol claims."""

    protections: tuple[Protection, ...]

    def worst_for(self, victim: str, subject: str | None = None) -> Status:
        """The weakest status among this victim's protections; of one subject, if it is named."""
        order = (Status.SOUND, Status.HEURISTIC, Status.BROKEN, Status.OPEN)
        return max(
            (p.status for p in self.protections if p.victim == victim and subject in (None, p.subject)),
            key=order.index,
        )

    @property
    def directions(self) -> tuple[tuple[str, str], ...]:
        """Each victim with each subject, once."""
        return tuple(dict.fromkeys((p.victim, p.subject) for p in self.protections))
