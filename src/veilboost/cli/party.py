"""`veilboost party` and `veilboost jobs`: the daemon of a party, and its runs."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from veilboost.cli.console import (
    AsJson,
    bytes_text,
    command_group,
    make_pairs,
    make_table,
    print_json,
    print_reports,
    stdout,
    tell,
)
from veilboost.errors import InvalidParameter

if TYPE_CHECKING:
    from veilboost.party.daemon import Daemon
    from veilboost.party.ping import PeerStatus
    from veilboost.party.settings import PartySettings
    from veilboost.party.status import PartyStatus

party, jobs = command_group(), command_group()

STOPPED_BY = (signal.SIGINT, signal.SIGTERM)

Config = Annotated[Path, typer.Option("--config", metavar="FILE", help="The settings of the party.")]
Name = Annotated[str, typer.Argument(help="Name of the job.")]


@party.callback()
def about() -> None:
    """Run the daemon of a party, which takes part in jobs of other parties; back up its state.

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
    running job can be resumed. The log on stderr (\\[logging] in the settings)
    lists jobs that start and end, and every refusal with its full reason, of
    which the peer receives the code and a public text only. With metrics in the
    settings, it serves Prometheus metrics and health checks.

    The daemon also serves users of an encrypted model (veilboost user publish):
    as the owner of the model, as authority, as csp, or as an owner of splits
    whose policy has serve_users. An owner of splits is needed only once and may
    go offline then.

    Examples:

        [bold]veilboost party serve --config shop.toml[/]

        [bold]veilboost party serve --config shop.toml --json[/]
    """
    # Blocked before any thread starts, also those of numerical libraries: `sigwait` below receives the two signals.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPED_BY)
    from veilboost.party.daemon import Daemon
    from veilboost.party.settings import load_party

    settings = load_party(config)
    with settings.logging.to_stderr():
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
            "metrics": daemon.monitor.address,
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
                "approval": policy.approval,
                "predictions_per_day": policy.predictions_per_day,
                "deploy_to": policy.deploy_to,
                "explanations": policy.explanations,
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
    if daemon.monitor.address is not None:
        say(f"metrics and health checks on http://{escape(daemon.monitor.address)}")
    say(_allowed(settings))
    if policy.approval == "ask":
        say("a person approves each job and deployment: veilboost jobs proposals lists those that wait")
    if policy.deploy_to:
        deploy = f"the policy lets {', '.join(policy.deploy_to)} keep models deployed"
        say(escape(f"{deploy}, at most {policy.predictions_per_day} scores a day; explanations: {policy.explanations}"))
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


@party.command()
def status(
    config: Config,
    peers: Annotated[bool, typer.Option("--peers", help="Also dial the peers that the settings name.")] = False,
    job: Annotated[Path | None, typer.Option(metavar="FILE", help="Also dial the parties of this job file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show whether the daemon runs and is ready, its jobs, its budget and its peers.

    Reads the files of this party. --peers and --job dial other parties as this
    party and show their release, the days until their certificates expire, the
    round-trip time, and how far their clocks are ahead. The exit code is 1 if
    something needs an operator.

    Examples:

        [bold]veilboost party status --config shop.toml[/]

        [bold]veilboost party status --config shop.toml --peers --json[/]
    """
    from veilboost.party.job import load_job
    from veilboost.party.ping import dialled_addresses, peer_status
    from veilboost.party.settings import load_party
    from veilboost.party.status import party_status

    settings = load_party(config)
    addresses = dialled_addresses(settings if peers else None, None if job is None else load_job(job))
    found, others = party_status(settings), peer_status(settings, addresses)
    if as_json:
        print_json({**asdict(found), "peers": [asdict(each) for each in others]})
    else:
        _show_status(found, others)
    if found.problems or any(each.problems for each in others):
        raise typer.Exit(1)


def _show_status(found: PartyStatus, others: list[PeerStatus]) -> None:
    console = stdout()
    days = {name: "unreadable" if left is None else f"{left:.0f} days" for name, left in found.certificate_days.items()}
    left = "no limit" if found.epsilon_left is None else f"{found.epsilon_left:g} left"
    shown = {
        "party": f"{found.party}, VeilBoost {found.release}",
        "daemon": "does not run" if found.daemon is None else f"{found.daemon}, listens on {found.listen}",
        "certificate": f"{days['own']}; authority {days['ca']}",
        "table": found.table or "none",
        "jobs": ", ".join(f"{number} {state}" for state, number in found.jobs.items() if number) or "none",
        "epsilon": "unreadable" if found.epsilon_spent is None else f"{found.epsilon_spent:g} spent, {left}",
        "disk": "unknown" if found.disk_free is None else f"{bytes_text(found.disk_free)} free",
    }
    for each in found.running:
        shown[f"running {each.job}"] = f"{each.state}, driven by {each.driver}, since {_when(each.since)}"
    for each in found.errors:
        shown[f"error of {each.job}"] = f"{_when(each.updated)}: {' '.join(str(each.error).split())}"
    console.print(make_pairs(shown))
    if others:
        table = make_table("peer", "release", "certificate", "round trip", "clock", "problems")
        for each in others:
            cells = ("-",) * 4
            if each.release is not None:
                cells = (
                    each.release,
                    f"{each.certificate_days:.0f} days",
                    f"{each.round_trip_ms:.1f} ms",
                    f"{each.clock_difference:+d} s",
                )
            table.add_row(f"[bold]{escape(each.peer)}[/]", *map(escape, cells), escape("; ".join(each.problems)))
        console.print()
        console.print(table)
    for problem in found.problems:
        console.print(f"[red]{escape(problem)}[/]", soft_wrap=True)


def _when(seconds: float | None) -> str:
    return "unknown" if seconds is None else datetime.fromtimestamp(seconds).isoformat(" ", "seconds")


@jobs.callback()
def about_jobs() -> None:
    """List, show, approve, refuse, cancel and purge the jobs of a party.

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
        print_json({"party": settings.name, "runs": [asdict(each) for each in found]})
        return
    console = stdout()
    if not found:
        console.print(f"{escape(settings.name)} has no runs in {escape(str(settings.runs))}", soft_wrap=True)
        return
    table = make_table("job", "state", "role", "driver", "rounds", "updated", "resumable until", numbers=("rounds",))
    for each in found:
        rounds = "" if each.rounds is None else str(each.rounds)
        row = (each.state, each.role, escape(each.active or ""), rounds, each.updated, each.until)
        table.add_row(escape(each.job), *(text or "" for text in row))
    console.print(table)


@jobs.command()
def show(name: Name, config: Config, as_json: AsJson = False) -> None:
    """Show the state, progress, error and files of one run, and who approved it.

    Example:

        [bold]veilboost jobs show credit --config bank.toml[/]
    """
    from veilboost.party.approvals import approval_text
    from veilboost.party.lifecycle import about
    from veilboost.party.runs import RESUMABLE, RunFolder

    settings = _settings(name, config)
    run = RunFolder.open(settings.runs, name)
    details = about(run, settings)
    told = {**asdict(details), "approval": approval_text(run, settings)}
    if as_json:
        print_json(told)
        return
    console = stdout()
    shown = {key: str(value) for key, value in told.items() if value is not None and key not in ("report", "reports")}
    listed = {"files": ", ".join(details.files)}
    if details.membership:
        listed["membership"] = "\n".join(details.membership)
    console.print(make_pairs(shown | listed))
    print_reports(console, details.reports or ({} if details.report is None else {str(details.party): details.report}))
    if details.role in ("active", "server") and details.state in RESUMABLE and details.rounds:
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
    from veilboost.party.runs import RunFolder

    settings = _settings(name, config)
    done = cancel_job(settings, name)
    again = "to continue, run veilboost train JOB --config FILE --resume here"
    if not RunFolder.open(settings.runs, name).drives:
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
