"""`veilboost certs`: a private authority and a certificate for each party."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.markup import escape

from veilboost.cli.console import AsJson, command_group, make_table, print_json, stdout, tell, writing

if TYPE_CHECKING:
    from veilboost.party.identity import CertificateInfo

LOOPBACK = ("localhost", "127.0.0.1", "::1")

certs = command_group()

Folder = Annotated[Path, typer.Option("--folder", metavar="DIR", help="The authority's folder.")]
Force = Annotated[bool, typer.Option("--force", help="Replace files that are there. What they held is lost.")]


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


@certs.command()
def init(
    folder: Folder = Path("certs"),
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="What the authority is called.")] = "veilboost",
    days: Annotated[int | None, typer.Option("--days", help="How long it is valid.", show_default="ten years")] = None,
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
            "--host",
            metavar="HOST",
            help="A name or address under which others reach the party. Repeatable.",
            show_default="this machine only",
        ),
    ] = None,
    folder: Folder = Path("certs"),
    days: Annotated[int | None, typer.Option("--days", help="How long it is valid.", show_default="a year")] = None,
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
    from veilboost.party.certs import CA_CERTIFICATE, REVOKED
    from veilboost.party.identity import describe, load_revoked

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
