"""`veilboost init`: a commented file to start from, for a party or for a job."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from veilboost.cli.console import print_json, stdout, writing
from veilboost.errors import ImpossibleParameter, ImpossibleSetting, UnsupportedCombination

if TYPE_CHECKING:
    from veilboost.protocols.spec import ProtocolSpec

init = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="The file to write.", show_default="NAME.toml")]
Force = Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
EXAMPLE_PARTIES = ("bank=127.0.0.1:7400", "shop=127.0.0.1:7401")


@init.callback()
def about() -> None:
    """Write the settings of a party or of a job, every key explained.

    Each party writes its own file and keeps it. The job's file is the same at all.

    Examples:

        [bold]veilboost init party bank[/]

        [bold]veilboost init job credit[/]
    """


@init.command()
def party(
    name: Annotated[str, typer.Argument(help="The party's name, as in its certificate.")],
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="FILE", help="Its table.", show_default="NAME.parquet"),
    ] = None,
    no_data: Annotated[
        bool, typer.Option("--no-data", help="It has no table: an authority or a computing service.")
    ] = False,
    id: Annotated[str | None, typer.Option("--id", metavar="COLUMN", help="Whose row it is.")] = None,
    label: Annotated[str | None, typer.Option("--label", metavar="COLUMN", help="What to predict.")] = None,
    listen: Annotated[str | None, typer.Option("--listen", metavar="HOST:PORT", help="Where to listen.")] = None,
    certs: Annotated[Path, typer.Option("--certs", metavar="DIR", help="Folder of certificates.")] = Path("certs"),
    peer: Annotated[
        list[str] | None,
        typer.Option(
            "--peer",
            metavar="NAME[=HOST:PORT]",
            help="Another party, which the policy then lets in; without address it dials this one. Repeatable.",
        ),
    ] = None,
    protocol: Annotated[
        list[str] | None, typer.Option("--protocol", metavar="NAME", help="A protocol to allow. Repeatable.")
    ] = None,
    accept_exposed: Annotated[
        list[str] | None,
        typer.Option(
            "--accept-exposed",
            metavar="NAME",
            help="A protocol to allow although it does not protect this party. Repeatable.",
        ),
    ] = None,
    out: Out = None,
    force: Force = False,
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
                accept_exposed=tuple(accept_exposed or ()),
                peers=dict.fromkeys(peers, (ANY,)),
            ),
        )
        settings = settings if listen is None else dataclasses.replace(settings, listen=listen)
    except ImpossibleSetting as error:
        raise ImpossibleParameter(error.what) from None
    title = f"The settings of party {name}. Relative paths start where this file is."
    _write(settings, title, out or Path(f"{name}.toml"), force, as_json)


@init.command()
def job(
    name: Annotated[str, typer.Argument(help="The job's name.")],
    party: Annotated[
        list[str] | None,
        typer.Option(
            "--party",
            metavar="NAME[:ROLE][=HOST:PORT]",
            help="A party and where it listens; without address it dials the one that drives. Repeatable; the first "
            "drives (the active party, or the server). ROLE: of a helper of the protocol or of the alignment.",
            show_default="bank and shop on this machine; hub, north, south and helpers",
        ),
    ] = None,
    protocol: Annotated[
        str | None, typer.Option("--protocol", metavar="NAME", help="How parties talk (veilboost protocols).")
    ] = None,
    out: Out = None,
    force: Force = False,
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
    named = _named(party or _example(spec), "--party")
    driver = next(iter(named)).partition(":")[0]
    try:
        parties = {
            who.partition(":")[0]: JobParty(
                where,
                "out" if where or who.partition(":")[0] == driver else "in",
                who.partition(":")[2] or (spec.driver if who.partition(":")[0] == driver else spec.data_role),
            )
            for who, where in named.items()
        }
        settings = Job(name=name, parties=parties, protocol=spec.name)
    except ImpossibleSetting as error:
        raise ImpossibleParameter(error.what, error.remedy) from None
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
            raise ImpossibleParameter(
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
    if as_json:
        print_json({"file": str(file)})
    else:
        stdout().print(f"wrote {escape(str(file))}", soft_wrap=True)
