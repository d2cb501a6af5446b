"""A job's file (`job.toml`), vertical or horizontal: its parties by role, the protocol, every parameter of boosting."""

# `param` makes a dataclass field, which the linter cannot know:
# ruff: noqa: RUF009

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from typing import Any, cast

from veilboost.align.api import all_alignments
from veilboost.config import TrainingConfig
from veilboost.errors import ImpossibleSetting, UnreadableSettings
from veilboost.fields import param
from veilboost.party.sections import Section, commented_toml, read_section, read_toml
from veilboost.party.settings import CONNECTS
from veilboost.protocols.registry import protocol_named
from veilboost.protocols.spec import ProtocolSpec
from veilboost.types import PartyName

RECORDS = ("none", "types", "payload")
ALIGNMENT_HELPERS = tuple(dict.fromkeys(role for spec in all_alignments().values() for role in spec.helpers))
PRESHARED = "prealigned"


@dataclass(frozen=True)
class JobParty(Section):
    """A party of a job, as the party that drives it reaches it."""

    address: str | None = param(
        None, "where it listens; needed unless it dials the driver", form="address", example='"shop.example:7400"'
    )
    connect: str = param(
        "out", "who dials: out is the driver, in is this one (which may be behind a firewall)", choices=CONNECTS
    )
    role: str | None = param(
        None,
        "active (has the label and drives) or passive; server (drives) or participant; or a helper of the protocol or "
        "the alignment. Unset: passive or participant",
        example='"passive"',
    )


@dataclass(frozen=True)
class Job(Section):
    """A training job, as all its parties read it. The order of the parties is the order of their columns."""

    name: str = param(MISSING, "the job; its run folder has this name at every party", form="party")
    parties: Mapping[PartyName, JobParty] = param(
        MISSING, "The parties, the driver too; columns count in this order.", keys="party"
    )
    protocol: str = param(
        "plain",
        "one of those that `veilboost protocols` lists, with whom each protects; where a party has the role server or "
        "participant the default is secagg",
    )
    alignment: str = param(
        PRESHARED,
        "how rows of the same people find each other; prealigned: they are in the same order already, or are of "
        "different people",
        choices=tuple(all_alignments()),
    )
    validation: float = param(0.0, "share of the rows kept to validate on", low=0, high=0.9)
    classes: tuple[str, ...] | None = param(
        None,
        "the label's classes, where they may not come from the labels (sealed); never sent to another party",
        example='["no", "yes"]',
    )
    record: str = param(
        "types", "what each party writes down of its messages: nothing, kind and size, or all of it", choices=RECORDS
    )
    training: TrainingConfig = param(TrainingConfig, "Boosting, with XGBoost's names.")

    def __post_init__(self) -> None:
        super().__post_init__()
        spec = self.spec
        parties = {
            name: party if party.role else replace(party, role=spec.data_role) for name, party in self.parties.items()
        }
        object.__setattr__(self, "parties", parties)
        self._check_roles(spec)
        self._check_channels()
        if self.training.early_stopping_rounds is not None and self.validation == 0:
            raise ImpossibleSetting("early_stopping_rounds needs validation rows", "set validation, as in 0.2")

    def _check_roles(self, spec: ProtocolSpec) -> None:
        vertical = spec.setting == "vertical"
        known = (*spec.roles, *ALIGNMENT_HELPERS) if vertical else tuple(spec.roles)
        for name, party in self.parties.items():
            if party.role not in known:
                raise ImpossibleSetting(
                    f"{name} has role = {party.role!r}, and {spec.name} has {', '.join(known)}", "give it one of these"
                )
        drivers = [name for name, party in self.parties.items() if party.role == spec.driver]
        if len(drivers) != 1:
            raise ImpossibleSetting(
                f"{len(drivers)} parties have role = {str(spec.driver)!r}, and one drives the job",
                "name it under [parties]",
            )
        if not self.owners:
            raise ImpossibleSetting(f"there is no {spec.data_role}", "name those that have rows under [parties]")
        if not vertical and self.alignment != PRESHARED:
            raise ImpossibleSetting(
                f"alignment = {self.alignment!r} finds rows of the same people, and {spec.name} has different people",
                "leave alignment out",
            )
        helped = {f"protocol = {spec.name!r}": spec.helpers}
        if vertical:
            helped[f"alignment = {self.alignment!r}"] = tuple(all_alignments()[self.alignment].helpers)
        for what, roles in helped.items():
            for role in roles:
                if sum(party.role == role for party in self.parties.values()) != 1:
                    raise ImpossibleSetting(
                        f"{what} needs one party with role = {role!r}", "name it under [parties], or choose another"
                    )

    def _check_channels(self) -> None:
        for name in self.others:
            party = self.parties[name]
            if party.connect == "out" and party.address is None:
                raise ImpossibleSetting(f"{name} has no address to dial", 'give address, or say connect = "in"')
            if party.connect == "in" and self.parties[self.driver].address is None:
                raise ImpossibleSetting(f"{name} dials {self.driver}, which has no address", "give it one")

    @property
    def spec(self) -> ProtocolSpec:
        return protocol_named(self.protocol)

    @property
    def driver(self) -> PartyName:
        """The party that drives: the active one, or the server."""
        return next(name for name, party in self.parties.items() if party.role == self.spec.driver)

    @property
    def others(self) -> tuple[PartyName, ...]:
        return tuple(name for name in self.parties if name != self.driver)

    @property
    def owners(self) -> tuple[PartyName, ...]:
        """Those that have a table, in the job's order."""
        roles = self.spec.data_roles
        return tuple(name for name, party in self.parties.items() if party.role in roles)

    @property
    def helpers(self) -> dict[str, PartyName]:
        """Those that have neither a table nor the lead, by their role."""
        spec = self.spec
        known = (spec.driver, *spec.data_roles)
        return {str(party.role): name for name, party in self.parties.items() if party.role not in known}

    def role_of(self, name: PartyName) -> str:
        return str(self.parties[name].role)

    def shared(self) -> Job:
        """The job as other parties may read it: class names are the active party's own data."""
        return replace(self, classes=None)

    def text(self) -> str:
        """The job's file, which reads back as this job."""
        return commented_toml(self, f"The job {self.name}.")


def load_job(file: str | Path) -> Job:
    """Read a job's file; raises as `veilboost.party.settings.load_party`."""
    path = Path(file)
    return _job(read_toml(path), path)


def read_job(text: str) -> Job:
    """A job as it travels: TOML."""
    try:
        values = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UnreadableSettings("the proposed job is not TOML") from error
    return _job(values, Path("job.toml"))


def _job(values: Mapping[str, Any], file: Path) -> Job:
    for key, role in (("active", "active"), ("server", "server")):
        if key in values:
            raise ImpossibleSetting(
                f"{file}: the key {key!r} is renamed to role", f'say role = "{role}" under [parties.{values[key]}]'
            )
    if isinstance(values.get("protocol"), Mapping):
        raise ImpossibleSetting(
            f"{file}: [protocol] name is renamed to the key protocol",
            f'say protocol = "{values["protocol"].get("name", "lattice")}" above the first table',
        )
    parties = cast("dict[str, Any]", values["parties"] if isinstance(values.get("parties"), dict) else {})
    roles = {name: cast("dict[str, Any]", each).get("role") for name, each in parties.items() if isinstance(each, dict)}
    if "protocol" not in values and {"server", "participant"} & set(roles.values()):
        values = {**values, "protocol": "secagg"}
    for name, role in roles.items():
        if role == "data":
            raise ImpossibleSetting(
                f'{file}, [parties.{name}]: role = "data" is renamed to "passive", or "active" for the one that drives',
                "say which it is",
            )
    return read_section(Job, values, file)
