"""`veilboost console`: the web console of a party, and its users."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from veilboost.cli.console import AsJson, command_group, make_table, print_json, stderr, stdout, tell
from veilboost.cli.party import Config
from veilboost.errors import InvalidParameter, MissingExtra, UnsupportedCombination

if TYPE_CHECKING:
    from veilboost.console.users import Users

console = command_group()
User = Annotated[str, typer.Argument(metavar="NAME", help="Name of the user.")]


@console.callback(invoke_without_command=True)
def serve(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The settings of the party.", show_default="must be given")
    ] = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address to listen on; port 0: any free port.")
    ] = "127.0.0.1:8090",
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificate of the console, as PEM.", show_default="plain HTTP")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key (mode 0600).")] = None,
    client_ca: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Accept only browsers with a certificate of this authority.",
            show_default="accept all browsers",
        ),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Another host name of the console, as a reverse proxy sends it. Repeatable."),
    ] = None,
    trial: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Settings of another party on this machine, for audits. Repeatable."),
    ] = None,
) -> None:
    """Open the web console of a party: jobs, ledger, peers, tables, models and policy.

    Users log in with a password (veilboost console add-user). A viewer reads;
    an approver also approves, refuses and cancels jobs, withdraws deployments
    and starts audits. The console reads the files of the party, so it runs on
    the same machine as the daemon, as the same user.

    By default it listens on this machine only. On any other address it needs
    TLS (--tls-cert, --tls-key). Needs: pip install 'veilboost\\[console]'.

    Examples:

        [bold]veilboost console add-user anna --role approver --config shop.toml[/]

        [bold]veilboost console --config shop.toml[/]
    """
    if context.invoked_subcommand is not None:
        return
    if config is None:
        raise InvalidParameter("--config is missing", "add --config FILE, the settings of the party")
    try:
        from veilboost.console.app import Console, make_app
        from veilboost.console.data import ConsoleData
        from veilboost.console.guard import LOOPBACK
        from veilboost.service.server import is_loopback, parse_address, run_server, tls_options
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("veilboost"):
            raise
        raise MissingExtra(f"veilboost console needs {error.name}", "run pip install 'veilboost[console]'") from None
    from veilboost.party.settings import load_party

    address, port = parse_address(listen)
    tls = tls_options(tls_cert, tls_key, client_ca)
    local = is_loopback(address)
    if tls is None and not local:
        raise UnsupportedCombination(
            f"other machines can reach {address}, and passwords would be sent without TLS",
            "add --tls-cert and --tls-key, or listen on 127.0.0.1",
        )
    settings, shown = load_party(config), stderr()
    for file in trial or ():
        load_party(file)
    opened = Console(ConsoleData(settings, config, trial or ()), _users(config), secure=tls is not None)
    if not opened.users.all:
        shown.print("nobody can log in: add a user with veilboost console add-user", soft_wrap=True)
    hosts = {*LOOPBACK, *(host or ())} if local or host else None

    def ready(where: str) -> None:
        shown.print(f"console of {escape(settings.name)} on {where}", soft_wrap=True)

    with settings.logging.to_stderr():
        run_server(make_app(opened, hosts), address, port, ready, tls, opened.stop)


@console.command("add-user")
def add_user(
    name: User,
    config: Config,
    role: Annotated[str, typer.Option(metavar="ROLE", help="viewer or approver.")] = "viewer",
    password_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Read the password from this file (mode 0600).", show_default="ask for a password"
        ),
    ] = None,
    token: Annotated[
        bool, typer.Option("--token", help="Create a random token instead of a password, and print it once.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Add a user of the console, or change the role and password of one.

    Only a hash of the password (Argon2id) is stored, in console.json in the
    runs folder. A console that runs uses the new password at once, and ends
    the sessions of this user.

    Examples:

        [bold]veilboost console add-user anna --role approver --config shop.toml[/]
    """
    from veilboost.console.users import random_token
    from veilboost.party.identity import read_private

    if token and password_file is not None:
        raise UnsupportedCombination("--token and --password-file are given together", "give one of them")
    if token:
        password = random_token()
    elif password_file is not None:
        password = read_private(password_file).decode(errors="replace").rstrip("\r\n")
    elif sys.stdin.isatty():
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        raise InvalidParameter("there is no terminal to ask for a password", "add --password-file FILE or --token")
    new = _users(config).add(name, role, password)
    lines = [f"{'added' if new else 'changed'} {escape(name)}, {role}"]
    told = {"user": name, "role": role, "new": new} | ({"token": password} if token else {})
    tell(told, as_json, *lines, *([f"token: {password}"] if token else ()))


@console.command("remove-user")
def remove_user(name: User, config: Config, as_json: AsJson = False) -> None:
    """Remove a user of the console. Whoever is logged in under this name is logged out.

    Examples:

        [bold]veilboost console remove-user anna --config shop.toml[/]
    """
    _users(config).remove(name)
    tell({"user": name, "removed": True}, as_json, f"removed {escape(name)}")


@console.command()
def users(config: Config, as_json: AsJson = False) -> None:
    """List the users of the console and their roles.

    Examples:

        [bold]veilboost console users --config shop.toml[/]
    """
    found = _users(config).all
    if as_json:
        print_json({"users": [{"user": name, "role": user.role} for name, user in found.items()]})
        return
    table = make_table("user", "role")
    for name, user in found.items():
        table.add_row(escape(name), user.role)
    stdout().print(table)


def _users(config: Path) -> Users:
    from veilboost.console.users import FILE, Users
    from veilboost.party.settings import load_party

    return Users(load_party(config).runs / FILE)
