"""`veilboost party`: this organisation's daemon."""

from __future__ import annotations

import json
import logging
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from veilboost.cli.console import stdout

if TYPE_CHECKING:
    from veilboost.party.daemon import Daemon
    from veilboost.party.settings import PartySettings

party = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

STOPPED_BY = (signal.SIGINT, signal.SIGTERM)


@party.callback()
def about() -> None:
    """Take part in jobs that others start.

    Example:

        [bold]veilboost party serve --config shop.toml[/]
    """


@party.command()
def serve(
    config: Annotated[Path, typer.Option("--config", metavar="FILE", help="This party's settings (veilboost init).")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, on one line, when this party listens.")
    ] = False,
) -> None:
    """Answer the jobs of other parties until stopped.

    Listens with mutual TLS, and dials the peers that the settings say to dial.
    The table stays here: it is read when a job that the policy allows begins.
    Stop it with Ctrl-C or SIGTERM; a job that runs can then be resumed.
    Its log goes to standard error: jobs that begin and end, and every refusal
    with the whole reason, of which the peer is told the code.

    It also answers users of an encrypted model (veilboost user publish): as the
    one who has the model, as authority, as computing service, or once, before
    it may go offline, as an owner of splits whose policy says serve_users.

    Examples:

        [bold]veilboost party serve --config shop.toml[/]

        [bold]veilboost party serve --config shop.toml --json[/]
    """
    from veilboost.party.daemon import Daemon
    from veilboost.party.settings import load_party

    # Blocked before there are threads, so that all of them leave the two signals to `sigwait` below.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPED_BY)
    settings = load_party(config)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    daemon = Daemon(settings)
    try:
        _tell(daemon, settings, as_json)
        signal.sigwait(STOPPED_BY)
    finally:
        daemon.stop()
    if not as_json:
        stdout().print(f"{escape(settings.name)} has stopped")


def _tell(daemon: Daemon, settings: PartySettings, as_json: bool) -> None:
    """That it listens, and what it would do for whom."""
    identity, policy = daemon.identity, settings.policy
    address = f"{settings.listen.rpartition(':')[0]}:{daemon.port}"
    dialled = {
        name: peer.address
        for name, peer in settings.peers.items()
        if peer.connect == "out" and peer.address is not None
    }
    if as_json:
        told = {
            "party": settings.name,
            "address": address,
            "fingerprint": identity.fingerprint,
            "certificate_until": identity.not_after.isoformat(),
            "dials": dialled,
            "policy": {
                "peers": list(policy.peers),
                "protocols": list(policy.protocols),
                "accept_exposed": list(policy.accept_exposed),
                "max_trees": policy.max_trees,
                "max_depth": policy.max_depth,
                "min_rows": policy.min_rows,
                "min_node_rows": policy.min_node_rows,
                "predictions_per_day": policy.predictions_per_day,
                "export_to": list(policy.export_to),
                "serve_users": list(policy.serve_users),
            },
        }
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
        return
    console = stdout()

    def say(text: str) -> None:
        console.print(text, soft_wrap=True)

    say(f"[bold]{escape(settings.name)}[/] listens on {escape(address)}, certificate {identity.fingerprint}")
    for name, where in dialled.items():
        say(f"dials {escape(name)} at {escape(where)}")
    say(_allowed(settings))
    if policy.serve_users:
        say(escape(f"its splits may serve users, encrypted, at {', '.join(policy.serve_users)}"))
    if settings.data is None:
        say("it has no table: it may be the authority or the computing service of others")
    say("stop it with Ctrl-C")
    sys.stdout.flush()


def _allowed(settings: PartySettings) -> str:
    policy = settings.policy
    if not policy.peers or not policy.protocols:
        missing = "peers" if not policy.peers else "protocols"
        return f"[yellow]its policy refuses every job[/]: it names no {missing}"
    exposed = [name for name in policy.protocols if name in policy.accept_exposed]
    though = f", although {', '.join(exposed)} may not protect its data" if exposed else ""
    return escape(
        f"its policy allows {', '.join(policy.protocols)}{though}, with {', '.join(policy.peers)}; "
        f"at least {policy.min_rows} rows, at most {policy.max_trees} rounds of depth {policy.max_depth}"
    )
