"""A protocol's claims as data: whose data is protected from whom, how well, and on what evidence."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import StrEnum


class Status(StrEnum):
    """How well a protocol protects one victim's data."""

    SOUND = "sound"  # proved under stated assumptions
    HEURISTIC = "heuristic"  # no attack known at the stated sizes
    BROKEN = "broken"  # an attack in the test suite succeeds
    UNPROTECTED = "unprotected"  # no protection is claimed


class Noise(StrEnum):
    """The source of the noise, masks and keys of a run."""

    SYSTEM = "system"  # the operating system's generator
    REPRODUCIBLE = "reproducible"  # a number that a test chose
    UNKNOWN = "unknown"  # an earlier release may have derived them from the seed stored in the model

    @property
    def warning(self) -> str | None:
        """Why a model with such noise is not protected; None if it is."""
        return _WARNINGS.get(self)


_WARNINGS = {
    Noise.REPRODUCIBLE: "its noise, masks and keys came from a number that a test chose, so they protect nothing",
    Noise.UNKNOWN: "an earlier release saved it, and its noise may follow from the seed that is stored in it; "
    "train it again",
}


@dataclass(frozen=True)
class Protection:
    """The protection of one victim's data against one adversary.

    `needs_secrets`: the protection relies on noise, masks or keys, and is void if others can compute them.
    """

    victim: str
    data: str
    adversary: str
    status: Status
    why: str
    needs_secrets: bool = True

    def to_dict(self) -> dict[str, str]:
        """The fields for readers."""
        return {item.name: str(getattr(self, item.name)) for item in fields(self) if item.name != "needs_secrets"}

    @property
    def subject(self) -> str:
        """The subject of `data`: the text before its first comma. The rest states the circumstances."""
        return self.data.split(",")[0]


@dataclass(frozen=True)
class Statement:
    """All claims of a protocol."""

    protections: tuple[Protection, ...]

    def given(self, noise: Noise) -> Statement:
        """The statement for one model: protections that need secrets are void if the secrets may be known."""
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
        """The weakest status among this victim's protections, or among those of one subject."""
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
        """The claims with status broken or unprotected."""
        return tuple(each for each in self.protections if each.status in (Status.BROKEN, Status.UNPROTECTED))

    def to_list(self) -> list[dict[str, str]]:
        return [each.to_dict() for each in self.protections]

    @property
    def directions(self) -> tuple[tuple[str, str], ...]:
        """Each pair of victim and subject, once."""
        return tuple(dict.fromkeys((p.victim, p.subject) for p in self.protections))
