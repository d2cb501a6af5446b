"""A job file (`job.toml`), vertical or horizontal: the parties with their roles, the protocol, and the parameters."""

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
from veilboost.crypto.fingerprint import HASHES
from veilboost.errors import ImpossibleSetting, UnknownRun, UnreadableSettings
from veilboost.fields import FORMS, closest, param
from veilboost.party.sections import Section, commented_toml, read_section, read_toml
from veilboost.party.settings import CONNECTS, PeerSettings
from veilboost.protocols.constraints import without_constraints
from veilboost.protocols.registry import protocol_named
from veilboost.protocols.spec import ProtocolSpec
from veilboost.protocols.validation import check_start
from veilboost.types import PartyName

RECORDS = ("none", "types", "payload")
ALIGNMENT_HELPERS = tuple(dict.fromkeys(role for spec in all_alignments().values() for role in spec.helpers))
PREALIGNED = "prealigned"


@dataclass(frozen=True)
class JobParty(Section):
    """A party of a job: its role, and how the driver connects to it."""

    address: str | None = param(
        None,
        "address that the party listens on; required unless it connects to the driver",
        form="address",
        example='"shop.example:7400"',
    )
    connect: str = param(
        "out",
        "who opens the connection: out: the driver; in: this party, which may be behind a firewall",
        choices=CONNECTS,
    )
    role: str | None = param(
        None,
        "vertical: active (holds the label and drives the job) or passive; horizontal: server (drives the job) or "
        "participant; or a helper of the protocol or the alignment: authority, csp, comparer. Unset: passive or "
        "participant",
        example='"passive"',
    )


@dataclass(frozen=True)
class Job(Section):
    """A training job. The order of the parties is the order of their columns."""

    name: str = param(MISSING, "name of the job, and of its run folder at every party", form="run")
    parties: Mapping[PartyName, JobParty] = param(
        MISSING, "The parties, including the driver. Columns are numbered in this order.", keys="party"
    )
    protocol: str = param(
        "plain",
        "name of the protocol; `veilboost protocols` lists them and what each protects. The default is secagg if a "
        "party is a server or a participant",
    )
    alignment: str = param(
        PREALIGNED,
        "entity alignment, which finds the records that all parties have: ecdh (private set intersection between the "
        "parties), hmac_csp (private set intersection with an authority and a csp), or prealigned (all tables have the "
        "same records in the same order; also for horizontal jobs)",
        choices=tuple(all_alignments()),
    )
    id_hash: str = param(
        HASHES[0], "alignment = hmac_csp: the keyed hash of ids; hmac-sha512 is ELXGB's", choices=HASHES
    )
    validation: float = param(0.0, "fraction of the rows held out for validation", low=0, high=0.9)
    classes: tuple[str, ...] | None = param(
        None,
        "class names, if the protocol may not derive them from the labels (sealed); not sent to other parties",
        example='["no", "yes"]',
    )
    continues: str | None = param(
        None,
        "a finished run of the same parties on the same rows: the job adds n_estimators rounds to its model (vertical)",
        form="run",
        example='"credit-1"',
    )
    record: str = param(
        "types",
        "what each party records of its messages: none, types (type and size) or payload (everything)",
        choices=RECORDS,
    )
    training: TrainingConfig = param(TrainingConfig, "Training parameters, with XGBoost's names.")

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
            raise ImpossibleSetting(
                "early_stopping_rounds needs validation rows", "set validation to a value in (0, 0.9], such as 0.2"
            )

        if self.continues is not None:
            check_start(spec, self.training)
            if self.continues == self.name:
                raise ImpossibleSetting(
                    f"the job {self.name!r} continues itself",
                    "set another name; --resume continues a stopped run",
                )

        if self.id_hash != HASHES[0] and not all_alignments()[self.alignment].hashes_ids:
            raise ImpossibleSetting(
                f"id_hash = {self.id_hash!r}, and alignment = {self.alignment!r} hashes no ids",
                "remove the key id_hash, or set alignment to hmac_csp",
            )

    def _check_roles(self, spec: ProtocolSpec) -> None:
        vertical = spec.setting == "vertical"
        known = (*spec.roles, *ALIGNMENT_HELPERS) if vertical else tuple(spec.roles)
        for name, party in self.parties.items():
            if party.role not in known:
                close = closest(str(party.role), known)
                raise ImpossibleSetting(
                    f"{name} has role = {party.role!r}, and the roles of {spec.name} are {', '.join(known)}",
                    f"set role of {name} to {f'{close!r}' if close else 'one of these'}",
                )
        drivers = [name for name, party in self.parties.items() if party.role == spec.driver]
        if len(drivers) != 1:
            raise ImpossibleSetting(
                f"{len(drivers)} parties have role = {str(spec.driver)!r}, and exactly one drives the job",
                f'write role = "{spec.driver}" for one party under [parties]',
            )
        if not self.owners:
            raise ImpossibleSetting(
                f"no party has role = {str(spec.data_role)!r}", "add the parties that hold rows under [parties]"
            )
        if not vertical and self.alignment != PREALIGNED:
            raise ImpossibleSetting(
                f"alignment = {self.alignment!r} is for vertical jobs, and {spec.name} is horizontal",
                "remove the key alignment",
            )
        helped = {f"protocol = {spec.name!r}": spec.helpers}
        if vertical:
            helped[f"alignment = {self.alignment!r}"] = tuple(all_alignments()[self.alignment].helpers)
        for what, roles in helped.items():
            for role in roles:
                if sum(party.role == role for party in self.parties.values()) != 1:
                    raise ImpossibleSetting(
                        f"{what} needs exactly one party with role = {role!r}",
                        f'write role = "{role}" for one party under [parties]',
                    )

    def _check_channels(self) -> None:
        for name in self.others:
            party = self.parties[name]
            if party.connect == "out" and party.address is None:
                raise ImpossibleSetting(
                    f'{name} has connect = "out" and no address',
                    f'add address under [parties.{name}], or set connect = "in" there',
                )
            if party.connect == "in" and self.parties[self.driver].address is None:
                raise ImpossibleSetting(
                    f"{name} connects to {self.driver}, which has no address",
                    f"add address under [parties.{self.driver}]",
                )

    @property
    def spec(self) -> ProtocolSpec:
        return protocol_named(self.protocol)

    @property
    def driver(self) -> PartyName:
        """The party that drives the job: the active party, or the server."""
        return next(name for name, party in self.parties.items() if party.role == self.spec.driver)

    @property
    def others(self) -> tuple[PartyName, ...]:
        return tuple(name for name in self.parties if name != self.driver)

    @property
    def owners(self) -> tuple[PartyName, ...]:
        """The parties with a table, in the job's order."""
        roles = self.spec.data_roles
        return tuple(name for name, party in self.parties.items() if party.role in roles)

    @property
    def helpers(self) -> dict[str, PartyName]:
        """The parties that neither hold a table nor drive the job, by their role."""
        spec = self.spec
        known = (spec.driver, *spec.data_roles)
        return {str(party.role): name for name, party in self.parties.items() if party.role not in known}

    def role_of(self, name: PartyName) -> str:
        return str(self.parties[name].role)

    def shared(self) -> Job:
        """The job as it is sent to other parties: without what names classes or columns of the active party.

        All parties of a horizontal job have the same columns.
        """
        vertical = self.spec.setting == "vertical"
        return replace(self, classes=None, training=without_constraints(self.training) if vertical else self.training)

    def text(self) -> str:
        """The text of the job file. Reading it gives this job."""
        return commented_toml(self, f"The job {self.name}.")


def run_name(name: str) -> str:
    """The name of a run, as a peer sent it. Refuses everything else, such as a path, before a file is looked for."""
    if not FORMS["run"].fits(name):
        raise UnknownRun("the request does not name a run", "send the name of a job, not a path", public=True)
    return name


def without_addresses(job: Job) -> Job:
    """The job without the parts that do not affect the model: parties may have new addresses."""
    parties = {name: replace(party, address=None, connect="in") for name, party in job.parties.items()}
    parties[job.driver] = replace(job.parties[job.driver], address="127.0.0.1:1")
    return replace(job, parties=parties, record="types")


def with_addresses(job: Job, peers: Mapping[PartyName, PeerSettings]) -> Job:
    """The job of a finished run with the addresses of its parties that the settings have now, under `[peers]`."""
    addresses = {name: peer.address for name, peer in peers.items()}
    parties = {
        name: replace(party, address=addresses.get(name) or party.address) for name, party in job.parties.items()
    }
    return replace(job, parties=parties)


def load_job(file: str | Path) -> Job:
    """Read a job file; raises the same errors as `veilboost.party.settings.load_party`."""
    path = Path(file)
    return _job(read_toml(path), path)


def read_job(text: str) -> Job:
    """Read a job that a peer sent as TOML."""
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError, OverflowError) as error:
        raise UnreadableSettings("the proposed job is not TOML") from error
    return _job(values, Path("job.toml"))


def _job(values: Mapping[str, Any], file: Path) -> Job:
    for key, role in (("active", "active"), ("server", "server")):
        if key in values:
            raise ImpossibleSetting(
                f"{file}: the key {key!r} was replaced by role", f'write role = "{role}" under [parties.{values[key]}]'
            )
    if isinstance(values.get("protocol"), Mapping):
        raise ImpossibleSetting(
            f"{file}: the table [protocol] was replaced by the key protocol",
            f'write protocol = "{values["protocol"].get("name", "lattice")}" above the first table',
        )
    parties = cast("dict[str, Any]", values["parties"] if isinstance(values.get("parties"), dict) else {})
    roles = {name: cast("dict[str, Any]", each).get("role") for name, each in parties.items() if isinstance(each, dict)}
    if "protocol" not in values and {"server", "participant"} & set(roles.values()):
        values = {**values, "protocol": "secagg"}
    for name, role in roles.items():
        if role == "data":
            raise ImpossibleSetting(
                f'{file}, [parties.{name}]: role = "data" was renamed to "passive", or "active" for the driver',
                f'write role = "passive" or role = "active" under [parties.{name}]',
            )
    return read_section(Job, values, file)
