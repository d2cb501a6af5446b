"""`veilboost party` and `veilboost jobs`: this organisation's daemon, and its runs."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from veilboost.cli.console import AsJson, command_group, make_pairs, make_table, print_json, stdout, tell
from veilboost.errors import InvalidParameter

if TYPE_CHECKING:
    from veilboost.party.daemon import Daemon
    from veilboost.party.runs import RunFolder
    from veilboost.party.settings import PartySettings

party, jobs = command_group(), command_group()

STOPPED_BY = (signal.SIGINT, signal.SIGTERM)
ENDED = ("finished", "failed", "cancelled")
INTERRUPTED = "interrupted"  # what a run is whose process was killed: nobody could write it down

Config = Annotated[Path, typer.Option("--config", metavar="FILE", help="The party's settings.")]
Name = Annotated[str, typer.Argument(help="The job's name.")]


@party.callback()
def about() -> None:
    """Take part in jobs that others start.

    Example:

        [bold]veilboost party serve --config shop.toml[/]
    """


@party.command()
def serve(
    config: Annotated[Path, typer.Option(metavar="FILE", help="This party's settings (veilboost init).")],
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
                "protocols": policy.protocols,
                "allow_unprotected": policy.allow_unprotected,
                "max_trees": policy.max_trees,
                "max_depth": policy.max_depth,
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
    exposed = [name for name in policy.protocols if name in policy.allow_unprotected]
    though = f", although {', '.join(exposed)} may not protect its data" if exposed else ""
    return escape(
        f"its policy allows {', '.join(policy.protocols)}{though}, with {', '.join(policy.peers)}; "
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
    """List a party's runs, the newest first.

    Example:

        [bold]veilboost jobs list --config bank.toml[/]
    """
    from veilboost.party.runs import list_runs
    from veilboost.party.settings import load_party

    settings = load_party(config)
    found = [_about(run) for run in list_runs(settings.runs)]
    if as_json:
        print_json({"party": settings.name, "runs": found})
        return
    console = stdout()
    if not found:
        console.print(f"{escape(settings.name)} has no runs in {escape(str(settings.runs))}", soft_wrap=True)
        return
    table = make_table("job", "state", "role", "rounds", "updated", numbers=("rounds",))
    for about in found:
        rounds = "" if about["rounds"] is None else str(about["rounds"])
        table.add_row(escape(about["job"]), about["state"], about["role"] or "", rounds, about["updated"] or "")
    console.print(table)


@jobs.command()
def show(name: Name, config: Config, as_json: AsJson = False) -> None:
    """Show one run: its state, how far it is, why it stopped, where its files are.

    Example:

        [bold]veilboost jobs show credit --config bank.toml[/]
    """
    about = _about(_open(name, config))
    if as_json:
        print_json(about)
        return
    console = stdout()
    shown = {key: str(value) for key, value in about.items() if value is not None}
    console.print(make_pairs(shown | {"files": ", ".join(about["files"])}))
    if about["role"] == "active" and about["state"] in {"failed", "cancelled", INTERRUPTED} and about["rounds"]:
        console.print("\nit can go on: veilboost train JOB --config FILE --resume")


@jobs.command()
def cancel(name: Name, config: Config, as_json: AsJson = False) -> None:
    """Stop a job after the round that it is in. It can be resumed.

    Run it at the active party, while the job runs there.

    Example:

        [bold]veilboost jobs cancel credit --config bank.toml[/]
    """
    run = _open(name, config)
    about = _about(run)
    if about["role"] != "active":
        raise InvalidParameter(f"{name} is driven by {about['active']}", "cancel it there")
    if about["state"] in ENDED:
        raise InvalidParameter(f"{name} is {about['state']} already", "there is nothing to cancel")
    if about["state"] == INTERRUPTED:
        run.note(state="cancelled")
    else:
        run.cancel()
    ends = "now" if about["state"] == INTERRUPTED else "after this round"
    text = f"{escape(name)} ends {ends}; go on later with veilboost train --resume"
    tell({"job": name, "cancelled": ends}, as_json, text)


def _open(name: str, config: Path) -> RunFolder:
    from veilboost.fields import FORMS
    from veilboost.party.runs import RunFolder
    from veilboost.party.settings import load_party

    if not FORMS["party"].fits(name):
        raise InvalidParameter(f"{name!r} is no name of a job", f"it is {FORMS['party'].text}")
    return RunFolder.open(load_party(config).runs, name)


def _about(run: RunFolder) -> dict[str, Any]:
    status = run.status
    state = str(status.get("state", "unknown"))
    if state not in ENDED and "pid" in status and not _lives(int(status["pid"])):
        state = INTERRUPTED
    updated = status.get("updated")
    active = status.get("active") or (status.get("party") if status.get("role") == "active" else None)
    return {
        "job": run.path.name,
        "state": state,
        "party": status.get("party"),
        "role": status.get("role"),
        "active": active,
        "rounds": run.rounds if status.get("role") == "active" else None,
        "rows": status.get("rows"),
        "ids": status.get("ids"),
        "error": status.get("error"),
        "updated": None if updated is None else datetime.fromtimestamp(float(updated)).isoformat(" ", "seconds"),
        "cancelling": (run.cancelled and state not in (*ENDED, INTERRUPTED)) or None,
        "folder": str(run.path),
        "files": sorted(path.name for path in run.path.iterdir() if not path.name.startswith(".")),
    }


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
