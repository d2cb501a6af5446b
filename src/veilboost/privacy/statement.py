"""Who is protected from whom, how well, and by what evidence: a protocol's claim, as data."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import StrEnum


class Status(StrEnum):
    """How a protocol stands for one victim."""

    SOUND = "sound"  # proved, under named assumptions
    HEURISTIC = "heuristic"  # no attack known at the stated sizes
    BROKEN = "broken"  # an attack in the test suite succeeds
    UNPROTECTED = "unprotected"  # no protection is claimed


class Noise(StrEnum):
    """Where the noise, masks and keys of a run came from."""

    SYSTEM = "system"  # the operating system's generator
    REPRODUCIBLE = "reproducible"  # a number that a test chose
    UNKNOWN = "unknown"  # an earlier release may have derived them from the seed that is stored in the model

    @property
    def warning(self) -> str | None:
        """Why a model of this kind is not protected; None where it is."""
        return _WARNINGS.get(self)


_WARNINGS = {
    Noise.REPRODUCIBLE: "its noise, masks and keys came from a number that a test chose, so they protect nothing",
    Noise.UNKNOWN: "an earlier release saved it, and its noise may follow from the seed that is stored in it; "
    "train it again",
}


@dataclass(frozen=True)
class Protection:
    """What happens to one victim's data against one adversary.

    `needs_secrets`: it rests on noise, masks or keys, and is void where others can compute them.
    """

    victim: str
    data: str
    adversary: str
    status: Status
    why: str
    needs_secrets: bool = True

    def to_dict(self) -> dict[str, str]:
        """What a reader is shown."""
        return {item.name: str(getattr(self, item.name)) for item in fields(self) if item.name != "needs_secrets"}

    @property
    def subject(self) -> str:
        """What `data` is about: all before its first comma. What follows says under which circumstances."""
        return self.data.split(",")[0]


@dataclass(frozen=True)
class Statement:
    """All that a protocol claims."""

    protections: tuple[Protection, ...]

    def given(self, noise: Noise) -> Statement:
        """The statement of one model: what rests on secrets is unprotected where these may be known."""
        why = noise.warning
        if why is None:
            return self
        return Statement(
            tuple(
                replace(each, status=Status.UNPROTECTED, why=why)
                if each.needs_secrets and each.status != Status.UNPROTECTED
                else each
                for each in self.protections
            )
        )

    def worst_for(self, victim: str, subject: str | None = None) -> Status:
        """The weakest status among this victim's protections; of one subject, if it is named."""
        order = (Status.SOUND, Status.HEURISTIC, Status.BROKEN, Status.UNPROTECTED)
        return max(
            (p.status for p in self.protections if p.victim == victim and subject in (None, p.subject)),
            key=order.index,
        )

    @property
    def status(self) -> dict[str, str]:
        """The worst status of each victim."""
        return {victim: str(self.worst_for(victim)) for victim in dict.fromkeys(p.victim for p in self.protections)}

    @property
    def unprotected(self) -> tuple[Protection, ...]:
        """What is not protected."""
        return tuple(each for each in self.protections if each.status in (Status.BROKEN, Status.UNPROTECTED))

    def to_list(self) -> list[dict[str, str]]:
        return [each.to_dict() for each in self.protections]

    @property
    def directions(self) -> tuple[tuple[str, str], ...]:
        """Each victim with each subject, once."""
        return tuple(dict.fromkeys((p.victim, p.subject) for p in self.protections))
