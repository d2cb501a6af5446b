"""`veilboost certs`: a private certificate authority for the parties of a federation."""

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
PassphraseFile = Annotated[
    Path | None,
    typer.Option("--passphrase-file", metavar="FILE", help="Encrypt the private key with the passphrase in this file."),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files. Their content is lost.")]


@certs.callback()
def about() -> None:
    """Issue, renew, show and revoke the certificates that authenticate the parties.

    One party, or a third party that all trust, runs the certificate authority.
    It creates the authority with [bold]init[/] and a certificate for each party with
    [bold]issue[/]. Each party receives its own .crt and .key, ca.crt and revoked.crl,
    but never ca.key.

    Examples:

        [bold]veilboost certs init[/]

        [bold]veilboost certs issue bank --host bank.example[/]

        [bold]veilboost certs show certs[/]
    """


@certs.command("init")
def init_certs(
    folder: Folder = Path("certs"),
    name: Annotated[str, typer.Option(metavar="NAME", help="Name of the authority.")] = "veilboost",
    days: Annotated[int | None, typer.Option(help="Validity in days.", show_default="ten years")] = None,
    passphrase_file: PassphraseFile = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Create a private certificate authority.

    Writes ca.crt (which all parties need), ca.key (keep it secret: whoever has
    it can impersonate any party) and revoked.crl, an empty revocation list.
    With --force, certificates of the previous authority are no longer valid.
    With --passphrase-file, later commands find the passphrase in the file that
    the environment variable VEILBOOST_KEY_PASSPHRASE_FILE names.

    Examples:

        [bold]veilboost certs init[/]

        [bold]veilboost certs init --folder authority --name "Town federation"[/]
    """
    from veilboost.party.certs import CA_DAYS, CA_KEY, REVOKED, init_authority

    with writing(folder):
        passphrase = _passphrase(passphrase_file)
        file = init_authority(folder, name, CA_DAYS if days is None else days, passphrase=passphrase, force=force)
    files = {"certificate": str(file), "key": str(folder / CA_KEY), "revoked": str(folder / REVOKED)}
    tell(files, as_json, *_wrote(files), "next: run veilboost certs issue NAME --host HOST once for each party")


@certs.command()
def issue(
    party: Annotated[str, typer.Argument(help="Name of the party, as in its settings.")],
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            help="Host name or IP address of the party. Repeatable.",
            show_default="this machine only",
        ),
    ] = None,
    folder: Folder = Path("certs"),
    days: Annotated[int | None, typer.Option(help="Validity in days.", show_default="a year")] = None,
    passphrase_file: PassphraseFile = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Issue a certificate and a private key for a party.

    Writes NAME.crt and NAME.key. The party uses them for incoming and outgoing
    connections. A peer that connects to the party verifies that the host name
    is one of those given here. Send the key to the party over a secure channel
    and delete it here. Without --host, the certificate is valid for localhost
    only.

    Examples:

        [bold]veilboost certs issue bank --host bank.example --host 10.0.0.7[/]

        [bold]veilboost certs issue bank --host bank.example --force[/]
    """
    from veilboost.party import certs as authority

    days = authority.PARTY_DAYS if days is None else days
    with writing(folder):
        passphrase = _passphrase(passphrase_file)
        file = authority.issue(folder, party, host or LOOPBACK, days, passphrase=passphrase, force=force)
    info = authority.describe(file)
    files = {"certificate": str(file), "key": str(file.with_name(f"{party}.key"))}
    tell({**files, **_facts(info, None)}, as_json, *_wrote(files), f"fingerprint {info.fingerprint}")


@certs.command()
def renew(
    party: Annotated[str, typer.Argument(help="Name of the party.")],
    folder: Folder = Path("certs"),
    days: Annotated[int | None, typer.Option(help="Validity in days.", show_default="a year")] = None,
    new_key: Annotated[bool, typer.Option("--new-key", help="Also make a new private key.")] = False,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Issue the next certificate of a party, for the same hosts.

    Replaces NAME.crt. The certificate that the party has now stays valid until
    it ends. The party keeps its key, so only NAME.crt has to be sent to it;
    with --new-key also NAME.key. A daemon uses the new files for new
    connections without a restart. Peers that pin the certificate need both
    fingerprints in their policy before.

    Examples:

        [bold]veilboost certs renew bank[/]

        [bold]veilboost certs renew bank --new-key --passphrase-file bank.pass[/]
    """
    from veilboost.party import certs as authority

    days = authority.PARTY_DAYS if days is None else days
    before = authority.describe(folder / f"{party}.crt")
    with writing(folder):
        file = authority.renew(folder, party, days, new_key=new_key, passphrase=_passphrase(passphrase_file))
    info = authority.describe(file)
    files = {"certificate": str(file)} | ({"key": str(file.with_name(f"{party}.key"))} if new_key else {})
    pins = f'{party} = ["{before.fingerprint}", "{info.fingerprint}"]'
    tell(
        {**files, **_facts(info, None), "before": before.fingerprint},
        as_json,
        *_wrote(files),
        f"fingerprint {info.fingerprint}",
        escape(f"next: peers that pin the certificate write under [policy.peers]: {pins}"),
    )


@certs.command()
def show(
    path: Annotated[Path, typer.Argument(help="A certificate file, or a folder of certificates.")],
    as_json: AsJson = False,
) -> None:
    """Show the party, hosts, validity and fingerprint of a certificate.

    A party adds the fingerprint under policy.peers in its settings to accept
    this certificate only. Compare fingerprints over a second channel (by
    telephone) first. In an authority's folder, revoked certificates are marked.

    Examples:

        [bold]veilboost certs show certs/bank.crt[/]

        [bold]veilboost certs show certs --json[/]
    """
    from veilboost.errors import UnreadableCertificate
    from veilboost.party.certs import CA_CERTIFICATE, REVOKED, describe, load_revoked

    files = sorted(path.glob("*.crt")) if path.is_dir() else [path]
    if not files:
        raise UnreadableCertificate(
            f"there is no certificate in {path}", "give a .crt file, or a folder with .crt files"
        )
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
    which: Annotated[str, typer.Argument(help="Name of a party, or fingerprint of one certificate.")],
    folder: Folder = Path("certs"),
    as_json: AsJson = False,
) -> None:
    """Revoke all certificates of a party, or one certificate.

    Adds them to revoked.crl, which the authority signs. Send the new list to
    every party: it takes effect when the party's daemon reads it. Revoke first,
    then renew with --new-key.

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
        f"next: send {escape(str(file))} to every party",
    )


def _passphrase(file: Path | None) -> bytes | None:
    from veilboost.party.identity import read_passphrase

    return None if file is None else read_passphrase(file)


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
