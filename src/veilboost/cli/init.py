"""`veilboost init`: write the settings of a party, or a training job, with comments that explain every key."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from veilboost.cli.console import AsJson, command_group, tell, writing
from veilboost.errors import ImpossibleSetting, InvalidParameter, UnsupportedCombination

if TYPE_CHECKING:
    from veilboost.party.job import Job
    from veilboost.protocols.spec import ProtocolSpec

init = command_group()

Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="The file to write.", show_default="NAME.toml")]
Replace = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]
VERTICAL, HORIZONTAL = "lattice", "secagg"  # the protocols of a job that names none
ALIGNMENT = "ecdh"


@init.callback()
def about() -> None:
    """Write the settings of a party, or a training job, with every key explained.

    Each party writes and keeps its own settings. All parties use the same job
    file. Lines marked EDIT are those that you may have to change.

    Examples:

        [bold]veilboost init party bank[/]

        [bold]veilboost init job credit[/]
    """


@init.command()
def party(
    name: Annotated[str, typer.Argument(help="Name of the party, as in its certificate.")],
    data: Annotated[
        str | None, typer.Option(metavar="FILE", help="The party's table.", show_default="NAME.parquet")
    ] = None,
    no_data: Annotated[
        bool, typer.Option("--no-data", help="The party has no table: a server, an authority, a csp or a comparer.")
    ] = False,
    id: Annotated[str | None, typer.Option(metavar="COLUMN", help="Record-id column.")] = None,
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="Label column, the target to predict.")] = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Address to listen on.", show_default="127.0.0.1:7400")
    ] = None,
    certs: Annotated[Path, typer.Option(metavar="DIR", help="Folder with the party's certificates.")] = Path("certs"),
    peer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=HOST:PORT]",
            help="Another party, which the policy admits. With an address, this party connects to it; without one, "
            "the peer connects to this party. Repeatable.",
        ),
    ] = None,
    protocol: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A protocol that the policy allows. Repeatable.")
    ] = None,
    allow_unprotected: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A protocol that the policy allows although it leaves data of this party unprotected "
            "(veilboost protocols). Repeatable.",
        ),
    ] = None,
    out: Out = None,
    force: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Write the settings of a party: its table, certificates, peers and policy.

    The policy allows nothing by default: without --peer and --protocol it
    refuses every job. Paths in the file are relative to the file.

    Examples:

        [bold]veilboost init party bank --id customer_id --label default[/]

        [bold]veilboost init party shop --id customer_id --peer bank --protocol lattice[/]
    """
    from veilboost.party.policy import ANY, Policy
    from veilboost.party.settings import CertificateSettings, DataSettings, PartySettings, PeerSettings

    peers = {each.name: each.address for each in _parties(peer or (), "--peer")}
    given = [flag for flag, value in (("--data", data), ("--id", id), ("--label", label)) if value is not None]
    if no_data and given:
        raise UnsupportedCombination(
            f"--no-data and {', '.join(given)} are both given", f"remove --no-data, or {', '.join(given)}"
        )
    try:
        settings = PartySettings(
            name=name,
            data=None if no_data else DataSettings(path=Path(data or f"{name}.parquet"), id=id, label=label),
            certificates=CertificateSettings(
                certs / f"{name}.crt", certs / f"{name}.key", certs / "ca.crt", certs / "revoked.crl"
            ),
            peers={who: PeerSettings(where, "out" if where else "in") for who, where in peers.items()},
            policy=Policy(
                protocols=tuple(protocol or ()),
                allow_unprotected=tuple(allow_unprotected or ()),
                peers=dict.fromkeys(peers, (ANY,)),
            ),
        )
        settings = settings if listen is None else dataclasses.replace(settings, listen=listen)
    except ImpossibleSetting as error:
        raise InvalidParameter(error.what, error.remedy) from None
    edits = {
        "data.path": (data is None, "the path of your table."),
        "data.id": (id is None, "name the record-id column. Entity alignment (PSI) matches records by it."),
        "data.label": (label is None, "name the label column, at the active party and at every participant."),
        "policy.protocols": (not protocol, "name the protocols that you allow. With none, every job is refused."),
        "policy.peers": (not peers, "name the parties that you admit. With none, every job is refused."),
    }
    title = f"The settings of party {name}. Relative paths start at the folder of this file."
    notes = {key: text for key, (missing, text) in edits.items() if missing and not (no_data and "data." in key)}
    _write(settings, title, notes, out or Path(f"{name}.toml"), force, as_json)


@init.command()
def job(
    name: Annotated[str, typer.Argument(help="Name of the job.")],
    party: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:ROLE][=HOST:PORT]",
            help="A party, its role and the address that it listens on. Without an address, the party connects to the "
            "driver. Roles: active and passive; server and participant; authority, csp and comparer for helpers. The "
            "first party without a role is the driver (active or server), the others hold data. Repeatable.",
            show_default="example parties on this machine",
        ),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The protocol (veilboost protocols).",
            show_default="lattice; secagg with a server or participants; mal with a comparer",
        ),
    ] = None,
    alignment: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Entity alignment of a vertical job: ecdh (PSI between the parties), hmac_csp (PSI with an authority "
            "and a csp) or prealigned (tables with the same records in the same order).",
            show_default="ecdh; hmac_csp with a csp",
        ),
    ] = None,
    out: Out = None,
    force: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Write a training job: the parties, the protocol, the alignment and all training parameters.

    Protocol and alignment follow from the roles of the parties unless you name
    them.

    Examples:

        [bold]veilboost init job credit[/]

        [bold]veilboost init job credit --party bank=bank.example:7400 --party shop[/]

        [bold]veilboost init job credit --party bank --party shop=s:74 --party ta:authority=t:74 --party csp:csp=c:74[/]

        [bold]veilboost init job trial --party hub:server --party north=n.io:7400 --party south=s.io:7400[/]
    """
    from veilboost.party.sections import commented_fields

    given = _parties(party or (), "--party", roles=True)
    spec = _protocol_for(given, protocol)
    way = _alignment_for(given, spec, alignment)
    chosen = _with_roles(given or _example(spec, way), spec)
    settings = _job(name, chosen, spec, way)
    notes: dict[str, str | Sequence[str]] = {}
    if not party:
        notes["parties"] = "the names and addresses of your parties."
    if spec.declared_classes:
        notes["training.objective"] = (
            f"{spec.name} needs the objective before it sees the labels: binary or multiclass. Unless the labels are 0 "
            "and 1, name the classes above as well."
        )
    for parameter in spec.fixed:
        notes[f"training.{parameter}"] = [f"# {spec.name} supports this value only."]
    options = commented_fields(spec.options)
    if options:
        notes["training.options"] = options
    file = out or Path(f"{name}.toml")
    _write(settings, f"The training job {name}.", notes, file, force, as_json, _next_steps(settings, file))


@dataclass(frozen=True)
class _Party:
    name: str
    role: str | None
    address: str | None


def _parties(values: Sequence[str], option: str, roles: bool = False) -> list[_Party]:
    """Parse `NAME[:ROLE][=HOST:PORT]`."""
    found: dict[str, _Party] = {}
    form = f"{option} NAME{'[:ROLE]' if roles else ''}[=HOST:PORT]"
    for value in values:
        match = re.fullmatch(r"([^=:]+)(?::([^=]+))?(?:=(.+))?" if roles else r"([^=]+)()?(?:=(.+))?", value)
        if match is None:
            raise InvalidParameter(f"{option} {value} does not name a party", f"write {form}")
        if match[1] in found:
            raise InvalidParameter(f"{option} names {match[1]} twice", f"remove one {option} {match[1]}")
        found[match[1]] = _Party(match[1], match[2] or None, match[3])
    return list(found.values())


def _protocol_for(given: Sequence[_Party], name: str | None) -> ProtocolSpec:
    """The named protocol, or the one whose roles the parties have."""
    from veilboost.fields import closest
    from veilboost.party.job import ALIGNMENT_HELPERS
    from veilboost.protocols.registry import all_protocols, protocol_named, protocols_of

    wanted = {each.role for each in given if each.role is not None}
    known = dict.fromkeys([*(role for spec in all_protocols().values() for role in spec.roles), *ALIGNMENT_HELPERS])
    for role in sorted(wanted - set(known)):
        close = closest(role, known)
        raise InvalidParameter(
            f"there is no role {role!r}", f"did you mean {close}?" if close else f"the roles are {', '.join(known)}"
        )
    if name is not None:
        return protocol_named(name)
    horizontal = protocols_of("horizontal")
    if not any(
        wanted & {spec.driver, spec.data_role, *(set(spec.helpers) - set(ALIGNMENT_HELPERS))}
        for spec in horizontal.values()
    ):
        return protocol_named(VERTICAL)
    default = protocol_named(HORIZONTAL)
    return next((spec for spec in (default, *horizontal.values()) if wanted <= set(spec.roles)), default)


def _alignment_for(given: Sequence[_Party], spec: ProtocolSpec, name: str | None) -> str:
    """The named alignment, or the one whose helpers the parties are."""
    from veilboost.align.api import alignment_named, all_alignments
    from veilboost.party.job import PREALIGNED

    if name is not None:
        return alignment_named(name).name
    if spec.setting == "horizontal":
        return PREALIGNED
    helpers = {each.role for each in given} - set(spec.roles) - {None}
    return next((way.name for way in all_alignments().values() if helpers and helpers <= set(way.helpers)), ALIGNMENT)


def _example(spec: ProtocolSpec, alignment: str) -> list[_Party]:
    """Parties on this machine: the driver, parties with data, and the helpers of protocol and alignment."""
    from veilboost.align.api import all_alignments

    vertical = spec.setting == "vertical"
    helpers = (*spec.helpers, *(all_alignments()[alignment].helpers if vertical else ()))
    driver, data = ("bank", ("shop",)) if vertical else ("hub", ("north", "south", "east"))
    others = [*((name, None) for name in data), *((role, role) for role in helpers)]
    return [
        _Party(driver, None, "127.0.0.1:7400"),
        *(_Party(name, role, f"127.0.0.1:{7401 + at}") for at, (name, role) in enumerate(others)),
    ]


def _with_roles(parties: Sequence[_Party], spec: ProtocolSpec) -> list[_Party]:
    """Every party with its role: the first one without a role drives, unless another has the driver's role."""
    free = [each.name for each in parties if each.role is None]
    driver = next((each.name for each in parties if each.role == spec.driver), free[0] if free else None)
    return [
        dataclasses.replace(each, role=each.role or (spec.driver if each.name == driver else str(spec.data_role)))
        for each in parties
    ]


def _job(name: str, parties: Sequence[_Party], spec: ProtocolSpec, alignment: str) -> Job:
    from veilboost.config import AUTO_ROUNDS, ROUNDS, TrainingConfig
    from veilboost.party.job import Job, JobParty

    driver = next((each for each in parties if each.role == spec.driver), None)
    for each in parties:
        if driver is not None and each is not driver and each.address is None and driver.address is None:
            raise InvalidParameter(
                f"neither {each.name} nor {driver.name} has an address, so they cannot connect",
                f"write --party {each.name}=HOST:PORT, or --party {driver.name}=HOST:PORT",
            )
    entries = {
        each.name: JobParty(each.address, "out" if each.address or each is driver else "in", each.role)
        for each in parties
    }
    objective = "binary" if spec.declared_classes else "auto"
    rounds = AUTO_ROUNDS if spec.chooses_rounds else ROUNDS
    training = TrainingConfig(objective=objective, n_estimators=rounds, **spec.fixed)
    try:
        return Job(name=name, parties=entries, protocol=spec.name, alignment=alignment, training=training)
    except ImpossibleSetting as error:
        raise InvalidParameter(error.what, error.remedy.replace("under [parties]", "with --party NAME:ROLE")) from None


def _next_steps(job: Job, file: Path) -> Iterator[str]:
    """The commands that each party runs next."""
    from veilboost.party.policy import unprotected_for

    roles = ", ".join(f"{name} ({job.role_of(name)})" for name in job.parties)
    way = "" if job.spec.setting == "horizontal" else f", alignment {job.alignment}"
    yield f"protocol {job.protocol}{way}; {roles}"
    yield "next, at each party:"
    for name, party in job.parties.items():
        words = ["veilboost init party", name]
        if name in job.owners:
            words.append("--id COLUMN")
            words += ["--label COLUMN"] if name == job.driver or job.spec.setting == "horizontal" else []
        else:
            words.append("--no-data")
        words += [f"--listen {party.address}"] if party.address else []
        words.append(f"--protocol {job.protocol}")
        for other, entry in job.parties.items():
            if other == name:
                continue
            dials = (other in job.helpers.values() and name != job.driver) or (
                other == job.driver and party.connect == "in"
            )
            words.append(f"--peer {other}={entry.address}" if dials and entry.address else f"--peer {other}")
        yield f"  {' '.join(words)}"
    for role in job.spec.data_roles:
        exposed = unprotected_for(job.spec, role)
        if exposed:
            yield f"{job.protocol} does not protect these data of the {role} party: {'; '.join(exposed)}"
            yield f"  each {role} party that accepts this adds --allow-unprotected {job.protocol} to its command"
    yield f"then, at {job.driver}, in the folder of both files: veilboost check {file.name} --config {job.driver}.toml"


def _write(
    settings: Any,
    title: str,
    notes: Mapping[str, str | Sequence[str]],
    file: Path,
    force: bool,
    as_json: bool,
    more: Iterable[str] = (),
) -> None:
    from veilboost.party.identity import write_private
    from veilboost.party.sections import commented_toml, edit_note

    lines = {key: edit_note(text) if isinstance(text, str) else text for key, text in notes.items()}
    with writing(file):
        write_private(file, commented_toml(settings, title, lines).encode(), force=force)
    tell({"file": str(file)}, as_json, f"wrote {escape(str(file))}", *(escape(line) for line in more))
