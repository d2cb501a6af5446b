"""`veilboost party` and `veilboost jobs`: the daemon of a party, and its runs."""

from __future__ import annotations

import json
import logging
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from veilboost.cli.console import AsJson, command_group, make_pairs, make_table, print_json, stdout, tell
from veilboost.errors import InvalidParameter

if TYPE_CHECKING:
    from veilboost.party.daemon import Daemon
    from veilboost.party.settings import PartySettings

party, jobs = command_group(), command_group()

STOPPED_BY = (signal.SIGINT, signal.SIGTERM)

Config = Annotated[Path, typer.Option("--config", metavar="FILE", help="The settings of the party.")]
Name = Annotated[str, typer.Argument(help="Name of the job.")]


@party.callback()
def about() -> None:
    """Run the daemon of a party, which takes part in jobs of other parties.

    Example:

        [bold]veilboost party serve --config shop.toml[/]
    """


@party.command()
def serve(
    config: Annotated[Path, typer.Option(metavar="FILE", help="The settings of this party (veilboost init party).")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on one line when the daemon is ready.")
    ] = False,
) -> None:
    """Serve the jobs of other parties until stopped.

    Listens with mutual TLS, and connects to the peers that have connect = "out"
    in the settings. The table stays on this machine: it is read when a job
    starts that the policy allows. Stop the daemon with Ctrl-C or SIGTERM; a
    running job can be resumed. The log on stderr lists jobs that start and end,
    and every refusal with its full reason, of which the peer receives the code
    and a public text only.

    The daemon also serves users of an encrypted model (veilboost user publish):
    as the owner of the model, as authority, as csp, or as an owner of splits
    whose policy has serve_users. An owner of splits is needed only once and may
    go offline then.

    Examples:

        [bold]veilboost party serve --config shop.toml[/]

        [bold]veilboost party serve --config shop.toml --json[/]
    """
    from veilboost.party.daemon import Daemon
    from veilboost.party.settings import load_party

    # Blocked before any thread starts, so that `sigwait` below receives the two signals.
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
    """Print the address, the certificate and what the policy allows."""
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
                "protocols": policy.protocols,
                "allow_unprotected": policy.allow_unprotected,
                "max_trees": policy.max_trees,
                "max_depth": policy.max_depth,
                "max_classes": policy.max_classes,
                "max_rewinds": policy.max_rewinds,
                "assignments_per_job": policy.assignments_per_job,
                "assignments_total": policy.assignments_total,
                "min_rows": policy.min_rows,
                "min_node_rows": policy.min_node_rows,
                "predictions_per_day": policy.predictions_per_day,
                "export_to": policy.export_to,
                "serve_users": policy.serve_users,
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
        say(f"connects to {escape(name)} at {escape(where)}")
    say(_allowed(settings))
    if policy.serve_users:
        say(escape(f"the policy lets {', '.join(policy.serve_users)} serve users with its encrypted splits"))
    if settings.data is None:
        say("no table: this party can be a server, an authority, a csp or a comparer")
    say("stop with Ctrl-C")
    sys.stdout.flush()


def _allowed(settings: PartySettings) -> str:
    policy = settings.policy
    if not policy.peers or not policy.protocols:
        missing = "peers" if not policy.peers else "protocols"
        return f"[yellow]the policy refuses every job[/]: add {missing} under {escape('[policy]')}"
    exposed = [name for name in policy.protocols if name in policy.allow_unprotected]
    though = f" (unprotected data accepted for {', '.join(exposed)})" if exposed else ""
    return escape(
        f"the policy allows {', '.join(policy.protocols)}{though} with {', '.join(policy.peers)}; "
        f"at least {policy.min_rows} rows, at most {policy.max_trees} rounds of depth {policy.max_depth}"
    )


@jobs.callback()
def about_jobs() -> None:
    """List, show and cancel the jobs of a party.

    Examples:

        [bold]veilboost jobs list --config bank.toml[/]

        [bold]veilboost jobs cancel credit --config bank.toml[/]
    """


@jobs.command("list")
def list_(config: Config, as_json: AsJson = False) -> None:
    """List the runs of a party, newest first.

    Example:

        [bold]veilboost jobs list --config bank.toml[/]
    """
    from veilboost.party.lifecycle import about_all
    from veilboost.party.settings import load_party

    settings = load_party(config)
    found = about_all(settings)
    if as_json:
        print_json({"party": settings.name, "runs": found})
        return
    console = stdout()
    if not found:
        console.print(f"{escape(settings.name)} has no runs in {escape(str(settings.runs))}", soft_wrap=True)
        return
    table = make_table("job", "state", "role", "driver", "rounds", "updated", "resumable until", numbers=("rounds",))
    for each in found:
        rounds = "" if each["rounds"] is None else str(each["rounds"])
        row = (each["state"], each["role"], escape(each["active"] or ""), rounds, each["updated"], each["until"])
        table.add_row(escape(each["job"]), *(text or "" for text in row))
    console.print(table)


@jobs.command()
def show(name: Name, config: Config, as_json: AsJson = False) -> None:
    """Show the state, progress, error and files of one run.

    Example:

        [bold]veilboost jobs show credit --config bank.toml[/]
    """
    from veilboost.party.lifecycle import RESUMABLE, about
    from veilboost.party.runs import RunFolder

    settings = _settings(name, config)
    told = about(RunFolder.open(settings.runs, name), settings)
    if as_json:
        print_json(told)
        return
    console = stdout()
    shown = {key: str(value) for key, value in told.items() if value is not None}
    console.print(make_pairs(shown | {"files": ", ".join(told["files"])}))
    if told["role"] == "active" and told["state"] in RESUMABLE and told["rounds"]:
        console.print("\nto continue: veilboost train JOB --config FILE --resume")


@jobs.command()
def cancel(name: Name, config: Config, as_json: AsJson = False) -> None:
    """Stop a job at its driver, or end it at a party that takes part in it.

    At the driver the job stops after its current round, tells the other parties
    and can be resumed. If its process was killed, the other parties are told
    now.

    At any other party the owner of the table ends the job for good, whether it
    is running or not: its driver receives VB-1705 with its next request and
    cannot resume the job. The trees and the key of the job are removed; the
    transcript and the entries in the ledger stay.

    Examples:

        [bold]veilboost jobs cancel credit --config bank.toml[/]

        [bold]veilboost jobs cancel credit --config shop.toml[/]
    """
    from veilboost.party.lifecycle import cancel as cancel_job
    from veilboost.party.lifecycle import drives
    from veilboost.party.runs import RunFolder

    settings = _settings(name, config)
    done = cancel_job(settings, name)
    again = "to continue, run veilboost train JOB --config FILE --resume here"
    if not drives(RunFolder.open(settings.runs, name)):
        text = "ends before its next answer" if done == "stops" else "has ended"
        text += ", and cannot be resumed"
    elif done == "stops":
        text = f"stops after this round, and tells the other parties; {again}"
    else:
        text = f"was not running; the other parties were told, as far as they can be reached; {again}"
    tell({"job": name, "cancelled": done}, as_json, f"{escape(name)} {text}")


def _settings(name: str, config: Path) -> PartySettings:
    from veilboost.fields import FORMS
    from veilboost.party.settings import load_party

    if not FORMS["party"].fits(name):
        raise InvalidParameter(f"{name!r} is not the name of a job", f"use {FORMS['party'].text}")
    return load_party(config)
