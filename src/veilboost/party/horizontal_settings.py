"""A horizontal job's file: a server, participants with rows, and the helpers that the protocol needs."""

# `setting` makes a dataclass field, which the linter cannot know:
# ruff: noqa: RUF009

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

from veilboost.config import TrainingConfig
from veilboost.errors import ImpossibleSetting, UnreadableSettings
from veilboost.party.declared import Declared, read_section, setting
from veilboost.party.settings import CONNECTS, LARGEST_FILE, RECORDS
from veilboost.protocols.registry import protocol_named, protocols_of
from veilboost.types import PartyName

_ROLES = tuple(dict.fromkeys(role for spec in protocols_of("horizontal").values() for role in spec.roles))


@dataclass(frozen=True)
class HorizontalParty(Declared):
    """A party of a job, as the server reaches it."""

    address: str | None = setting(
        None, "where it listens; needed unless it dials the server", form="address", example='"north.example:7400"'
    )
    connect: str = setting(
        "out", "who dials: out is the server, in is this one (which may be behind a firewall)", choices=CONNECTS
    )
    role: str = setting("participant", "participant (it has rows), server, or a helper", choices=_ROLES)


@dataclass(frozen=True)
class HorizontalJob(Declared):
    """A training job over rows in different hands, as all its parties read it."""

    name: str = setting(MISSING, "the job; its run folder has this name at every party", form="party")
    server: PartyName = setting(MISSING, "the party that drives the job and trains", form="party")
    parties: Mapping[PartyName, HorizontalParty] = setting(MISSING, "The parties, the server too.", keys="party")
    validation: float = setting(
        0.0, "share of its rows that each participant keeps to validate on (secagg)", low=0, high=0.9
    )
    protocol: str = setting("mal", "how rows are protected", choices=tuple(protocols_of("horizontal")))
    record: str = setting(
        "types", "what each party writes down of its messages: nothing, kind and size, or all of it", choices=RECORDS
    )
    training: TrainingConfig = setting(TrainingConfig, "Boosting, with XGBoost's names.")

    def __post_init__(self) -> None:
        super().__post_init__()
        servers = [name for name, party in self.parties.items() if party.role == "server"]
        if servers != [self.server]:
            raise ImpossibleSetting(
                f"server = {self.server!r} is not the one party with role = 'server'", "name it once under [parties]"
            )
        if not self.participants:
            raise ImpossibleSetting("there is no participant", "name those that have rows under [parties]")
        if self.training.early_stopping_rounds is not None and self.validation == 0:
            raise ImpossibleSetting("early_stopping_rounds needs validation rows", "set validation, as in 0.2")
        spec = protocol_named(self.protocol, "horizontal")
        for role in spec.helpers:
            if sum(party.role == role for party in self.parties.values()) != 1:
                raise ImpossibleSetting(
                    f"protocol = {self.protocol!r} needs one party with role = {role!r}", "name it under [parties]"
                )
        for name, party in self.parties.items():
            if party.role not in spec.roles:
                raise ImpossibleSetting(f"{name} has a role that {self.protocol} does not know", "leave it out")
            if name != self.server and party.connect == "out" and party.address is None:
                raise ImpossibleSetting(f"{name} has no address to dial", 'give address, or say connect = "in"')

    @property
    def active(self) -> PartyName:
        """Who drives."""
        return self.server

    @property
    def participants(self) -> tuple[PartyName, ...]:
        return tuple(name for name, party in self.parties.items() if party.role == "participant")

    @property
    def helpers(self) -> dict[str, PartyName]:
        """The helpers by role."""
        return {party.role: name for name, party in self.parties.items() if party.role not in ("server", "participant")}


def is_horizontal_job(file: str | Path) -> bool:
    """Whether a job's file names a server; a file that cannot be read is left to whoever reads it next."""
    try:
        with Path(file).open("rb") as opened:
            return "server" in tomllib.load(opened)
    except (OSError, ValueError, RecursionError):
        return False


def load_horizontal_job(file: str | Path) -> HorizontalJob:
    """Read a job's file; raises as `veilboost.party.settings.load_job`."""
    path = Path(file)
    try:
        with path.open("rb") as opened:
            text = opened.read(LARGEST_FILE)
    except OSError as error:
        raise UnreadableSettings(f"{path} cannot be read ({error.strerror or type(error).__name__})") from None
    return read_horizontal_job(text.decode("utf-8", "replace"), path)


def read_horizontal_job(text: str, path: Path = Path("job.toml")) -> HorizontalJob:
    """A job as it travels: TOML."""
    try:
        values: dict[str, Any] = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UnreadableSettings(f"{path} is not TOML") from error
    return read_section(HorizontalJob, values, path)
