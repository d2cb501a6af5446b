"""`veilboost certs` and `veilboost init`: what parties need before a job, certificates and settings."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.markup import escape

from veilboost.cli.console import AsJson, command_group, make_table, print_json, stdout, tell, writing
from veilboost.errors import ImpossibleSetting, InvalidParameter, UnsupportedCombination

if TYPE_CHECKING:
    from veilboost.party.identity import CertificateInfo
    from veilboost.protocols.spec import ProtocolSpec

LOOPBACK = ("localhost", "127.0.0.1", "::1")

certs, init = command_group(), command_group()

Folder = Annotated[Path, typer.Option("--folder", metavar="DIR", help="The authority's folder.")]
Force = Annotated[bool, typer.Option("--force", help="Replace files that are there. What they held is lost.")]
Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="The file to write.", show_default="NAME.toml")]
Replace = Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")]
EXAMPLE_PARTIES = ("bank=127.0.0.1:7400", "shop=127.0.0.1:7401")


@certs.callback()
def about() -> None:
    """Make and show the certificates by which parties know each other.

    One party (or somebody all trust) runs the authority: it makes a folder with
    [bold]init[/] and a certificate for each party with [bold]issue[/]. Each party gets its own
    .crt and .key, ca.crt and revoked.crl, and never ca.key.

    Examples:

        [bold]veilboost certs init[/]

        [bold]veilboost certs issue bank --host bank.example[/]

        [bold]veilboost certs show certs[/]
    """


@certs.command("init")
def init_certs(
    folder: Folder = Path("certs"),
    name: Annotated[str, typer.Option(metavar="NAME", help="What the authority is called.")] = "veilboost",
    days: Annotated[int | None, typer.Option(help="How long it is valid.", show_default="ten years")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Make a private authority.

    Writes ca.crt (which all parties need), ca.key (which nobody else may have:
    whoever has it can be any party) and revoked.crl, an empty list. With --force
    the certificates that the old authority issued are worth nothing any more.

    Examples:

        [bold]veilboost certs init[/]

        [bold]veilboost certs init --folder authority --name "Town federation"[/]
    """
    from veilboost.party.certs import CA_DAYS, CA_KEY, REVOKED, init_authority

    with writing(folder):
        file = init_authority(folder, name, CA_DAYS if days is None else days, force=force)
    files = {"certificate": str(file), "key": str(folder / CA_KEY), "revoked": str(folder / REVOKED)}
    tell(files, as_json, *_wrote(files), "next: veilboost certs issue NAME --host HOST, once for each party")


@certs.command()
def issue(
    party: Annotated[str, typer.Argument(help="The party's name, as in its settings.")],
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            help="A name or address under which others reach the party. Repeatable.",
            show_default="this machine only",
        ),
    ] = None,
    folder: Folder = Path("certs"),
    days: Annotated[int | None, typer.Option(help="How long it is valid.", show_default="a year")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Issue a certificate and a key to a party.

    Writes NAME.crt and NAME.key. The party uses them when it is dialled and
    when it dials; who dials it checks that the host is one of those named here.
    Hand the key over by a safe way and delete it here. Without --host they are
    good for a trial on one machine.

    Examples:

        [bold]veilboost certs issue bank --host bank.example --host 10.0.0.7[/]

        [bold]veilboost certs issue bank --host bank.example --force[/]
    """
    from veilboost.party import certs as authority

    days = authority.PARTY_DAYS if days is None else days
    with writing(folder):
        file = authority.issue(folder, party, host or LOOPBACK, days, force=force)
    info = authority.describe(file)
    files = {"certificate": str(file), "key": str(file.with_name(f"{party}.key"))}
    tell({**files, **_facts(info, None)}, as_json, *_wrote(files), f"fingerprint {info.fingerprint}")


@certs.command()
def show(
    path: Annotated[Path, typer.Argument(help="A certificate, or a folder of them.")],
    as_json: AsJson = False,
) -> None:
    """Show whose a certificate is, for which hosts, how long, and its fingerprint.

    The fingerprint is what a party writes into the peers of its policy to let in
    this very certificate and no other. Compare it by telephone before you do.
    In an authority's folder, revoked certificates are told apart.

    Examples:

        [bold]veilboost certs show certs/bank.crt[/]

        [bold]veilboost certs show certs --json[/]
    """
    from veilboost.errors import UnreadableCertificate
    from veilboost.party.certs import CA_CERTIFICATE, REVOKED, describe, load_revoked

    files = sorted(path.glob("*.crt")) if path.is_dir() else [path]
    if not files:
        raise UnreadableCertificate(f"there is no certificate in {path}", "name a .crt file or a folder of them")
    folder = files[0].parent
    revoked = None
    if (folder / REVOKED).exists() and (folder / CA_CERTIFICATE).exists():
        revoked = load_revoked(folder / REVOKED, folder / CA_CERTIFICATE)
    found = {file: describe(file) for file in files}
    if as_json:
        facts = [{"file": str(file), **_facts(info, revoked)} for file, info in found.items()]
        print_json({"certificates": facts})
        return
    for file, info in found.items():
        table = make_table("file", escape(str(file)))
        for key, value in _facts(info, revoked).items():
            table.add_row(key, escape(_text(value)))
        stdout().print(table, "")


@certs.command()
def revoke(
    which: Annotated[str, typer.Argument(help="A party's name, or the fingerprint of one certificate.")],
    folder: Folder = Path("certs"),
    as_json: AsJson = False,
) -> None:
    """Take certificates back: all that a party has so far, or one.

    Adds them to revoked.crl, which the authority signs. It counts at a party
    as soon as its daemon reads the new list, so send it to all of them. Revoke
    first, then issue the party a new certificate with --force.

    Examples:

        [bold]veilboost certs revoke bank[/]

        [bold]veilboost certs revoke 9f86d081884c7d65...[/]
    """
    from veilboost.party import certs as authority

    with writing(folder):
        taken = authority.revoke(folder, which)
    file = folder / authority.REVOKED
    serials = authority.load_revoked(file, folder / authority.CA_CERTIFICATE)
    tell(
        {"list": str(file), "revoked": [_facts(info, serials) for info in taken]},
        as_json,
        *(f"revoked {info.fingerprint} of {escape(str(info.party))}" for info in taken),
        f"now send {escape(str(file))} to every party",
    )


def _text(value: Any) -> str:
    return (", ".join(cast("list[str]", value)) if isinstance(value, list) else str(value or "")) or "-"


def _wrote(files: dict[str, str]) -> list[str]:
    return [f"wrote {escape(file)}" for file in files.values()]


def _facts(info: CertificateInfo, revoked: frozenset[int] | None) -> dict[str, Any]:
    from veilboost.party.identity import age

    taken_back = revoked is not None and info.serial in revoked
    return {
        "subject": info.subject,
        "party": info.party,
        "hosts": list(info.hosts),
        "state": "revoked" if taken_back else age(info.not_before, info.not_after),
        "not_before": info.not_before.isoformat(),
        "not_after": info.not_after.isoformat(),
        "fingerprint": info.fingerprint,
        "issuer": info.issuer,
        "serial": f"{info.serial:x}",
    }


@init.callback()
def about_init() -> None:
    """Write the settings of a party or of a job, every key explained.

    Each party writes its own file and keeps it. The job's file is the same at all.

    Examples:

        [bold]veilboost init party bank[/]

        [bold]veilboost init job credit[/]
    """


@init.command()
def party(
    name: Annotated[str, typer.Argument(help="The party's name, as in its certificate.")],
    data: Annotated[str | None, typer.Option(metavar="FILE", help="Its table.", show_default="NAME.parquet")] = None,
    no_data: Annotated[
        bool, typer.Option("--no-data", help="It has no table: an authority or a computing service.")
    ] = False,
    id: Annotated[str | None, typer.Option(metavar="COLUMN", help="Whose row it is.")] = None,
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="What to predict.")] = None,
    listen: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Where to listen.")] = None,
    certs: Annotated[Path, typer.Option(metavar="DIR", help="Folder of certificates.")] = Path("certs"),
    peer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=HOST:PORT]",
            help="Another party, which the policy then lets in; without address it dials this one. Repeatable.",
        ),
    ] = None,
    protocol: Annotated[list[str] | None, typer.Option(metavar="NAME", help="A protocol to allow. Repeatable.")] = None,
    allow_unprotected: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A protocol to allow although it does not protect this party. Repeatable."),
    ] = None,
    out: Out = None,
    force: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Write a party's settings: its table, its certificates, its peers, its policy.

    Nothing is allowed that is not said: without --peer and --protocol the policy
    refuses every job. Paths in the file are relative to the file.

    Examples:

        [bold]veilboost init party bank --id customer_id --label default[/]

        [bold]veilboost init party shop --peer bank --protocol lattice[/]
    """
    from veilboost.party.policy import ANY, Policy
    from veilboost.party.settings import CertificateSettings, DataSettings, PartySettings, PeerSettings

    peers = _named(peer or (), "--peer")
    if no_data and (data or id or label):
        raise UnsupportedCombination("--no-data goes with none of --data, --id and --label")
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
        raise InvalidParameter(error.what) from None
    title = f"The settings of party {name}. Relative paths start where this file is."
    _write(settings, title, out or Path(f"{name}.toml"), force, as_json)


@init.command()
def job(
    name: Annotated[str, typer.Argument(help="The job's name.")],
    party: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:ROLE][=HOST:PORT]",
            help="A party and where it listens; without address it dials the one that drives. Repeatable; the first "
            "drives (the active party, or the server). ROLE: of a helper of the protocol or of the alignment.",
            show_default="bank and shop on this machine; hub, north, south and helpers",
        ),
    ] = None,
    protocol: Annotated[
        str | None, typer.Option(metavar="NAME", help="How parties talk (veilboost protocols).")
    ] = None,
    out: Out = None,
    force: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Write a training job: the parties, the protocol, every parameter of boosting.

    Every party has a role: active or passive, or, with a horizontal protocol
    (mal, secagg), server, participant or a helper that the protocol needs.

    Examples:

        [bold]veilboost init job credit[/]

        [bold]veilboost init job credit --party bank=bank.example:7400 --party shop[/]

        [bold]veilboost init job credit --protocol secagg --party hub --party north=n.io:7400 --party south=s.io:7400[/]
    """
    from veilboost.party.job import Job, JobParty
    from veilboost.protocols.registry import protocol_named

    spec = protocol_named(protocol or "plain")
    parties: dict[str, JobParty] = {}
    try:
        for named, where in _named(party or _example(spec), "--party").items():
            who, _, role = named.partition(":")
            usual = spec.data_role if parties else spec.driver  # the first one drives
            parties[who] = JobParty(where, "out" if where or not parties else "in", role or usual)
        settings = Job(name=name, parties=parties, protocol=spec.name)
    except ImpossibleSetting as error:
        raise InvalidParameter(error.what, error.remedy) from None
    _write(settings, f"The training job {name}.", out or Path(f"{name}.toml"), force, as_json)


def _example(spec: ProtocolSpec) -> list[str]:
    """Parties on this machine, where none are given: the driver, two with tables, and the protocol's helpers."""
    if spec.setting == "vertical":
        return list(EXAMPLE_PARTIES)
    others = ["north", "south", *(f"{role}:{role}" for role in spec.helpers)]
    return ["hub", *(f"{who}=127.0.0.1:{7401 + at}" for at, who in enumerate(others))]


def _named(values: Sequence[str], option: str) -> dict[str, str | None]:
    """`NAME=HOST:PORT` or `NAME`."""
    found: dict[str, str | None] = {}
    for value in values:
        match = re.fullmatch(r"([^=]+)(?:=(.+))?", value)
        if match is None or match[1] in found:
            raise InvalidParameter(
                f"{option} {value} is no party, or is given twice", f"write {option} NAME=HOST:PORT, or {option} NAME"
            )
        found[match[1]] = match[2]
    return found


def _write(settings: Any, title: str, file: Path, force: bool, as_json: bool) -> None:
    from veilboost.party.identity import write_private
    from veilboost.party.sections import commented_toml

    text = commented_toml(settings, title)
    with writing(file):
        write_private(file, text.encode(), force=force)
    tell({"file": str(file)}, as_json, f"wrote {escape(str(file))}")
