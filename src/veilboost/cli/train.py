"""`veilboost prepare`, `check` and `train`: prepare, check and run a job."""

from __future__ import annotations

import shlex
import signal
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.padding import Padding

from veilboost.cli.console import (
    AsJson,
    bytes_text,
    make_table,
    print_json,
    print_reports,
    seconds_text,
    stderr,
    stdout,
    tell,
)
from veilboost.errors import CheckpointFailed, JobCancelled, PeerBroken, UnknownRun, WireError

if TYPE_CHECKING:
    from veilboost.party.checks import Finding
    from veilboost.party.federation import Federation, Trained

INTERRUPTED, TERMINATED = 130, 143  # the exit codes of shells after Ctrl-C and SIGTERM
NOT_ALL = 1

Job = Annotated[Path, typer.Argument(metavar="JOB", help="The job file (veilboost init job).")]
Config = Annotated[
    Path, typer.Option("--config", metavar="FILE", help="The settings of this party (veilboost init party).")
]


def train(
    job: Job,
    config: Config,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run of this job.")] = False,
    continue_from: Annotated[
        str | None,
        typer.Option(
            metavar="RUN", help="Add the job's rounds to the model of this finished run (continues in the job file)."
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until persons at other parties have approved the job.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on stdout; progress stays on stderr.")
    ] = False,
) -> None:
    """Train a model with the other parties. Run this at the driver of the job.

    The driver is the active party, which holds the label, or the server of a
    horizontal job. The other parties run [bold]veilboost party serve[/]. Each party
    stores its model share in its runs folder; after a horizontal job, every
    participant has the full model. In a vertical job, all parties write a
    checkpoint after every round: --resume continues an interrupted run and
    gives the same model. Progress is shown on stderr: stage, round, metric and
    remaining time, without a terminal at most one line in ten seconds.

    If a person at another party must approve the job, the command ends with
    VB-1415: run it again later, or use --wait.

    Examples:

        [bold]veilboost train credit.toml --config bank.toml[/]

        [bold]veilboost train credit.toml --config bank.toml --resume[/]

        [bold]veilboost train credit.toml --config bank.toml --wait[/]

        [bold]veilboost train more.toml --config bank.toml --continue-from credit[/]
    """
    from veilboost.party.federation import Federation

    federation = Federation(job, config, continue_from)
    again = f"veilboost train {shlex.quote(str(job))} --config {shlex.quote(str(config))}"
    if continue_from is not None:
        again += f" --continue-from {shlex.quote(continue_from)}"
    before = signal.signal(signal.SIGTERM, _terminate)
    stderr().print(_audit_note(federation.job.record, job), soft_wrap=True)
    try:
        with federation.party.logging.to_stderr("warning"):
            done = federation.train(resume, console=stderr(), wait=wait)
    except KeyboardInterrupt as error:
        stderr().print(f"stopped; {_how_to_go_on(federation, again)}", soft_wrap=True)
        raise typer.Exit(TERMINATED if isinstance(error, Terminated) else INTERRUPTED) from None
    except (WireError, JobCancelled, CheckpointFailed, PeerBroken):
        if rounds_kept(federation):
            stderr().print(_how_to_go_on(federation, again), soft_wrap=True)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
    if as_json:
        print_json(done.to_dict())
    else:
        _print(done)


class Terminated(KeyboardInterrupt):
    """SIGTERM, which stops the job as Ctrl-C does."""


def _terminate(*_: object) -> None:
    raise Terminated


def _audit_note(record: str, job: Path) -> str:
    if record == "payload":
        return 'every party records all messages (record = "payload"): veilboost audit can attack this run'
    return (
        f'veilboost audit will not be possible, because record = "{record}"; for a trial whose owners agree to it, set '
        f'record = "payload" in {escape(str(job))} before training'
    )


def _how_to_go_on(federation: Federation, again: str) -> str:
    rounds = rounds_kept(federation)
    if rounds:
        return f"{rounds} rounds are saved; to continue: {escape(again)} --resume"
    return f"no round is saved; to start again: {escape(again)}"


def rounds_kept(federation: Federation) -> int:
    """The number of saved rounds of an unfinished run."""
    try:
        run = federation.run
    except UnknownRun:
        return 0
    return 0 if run.status.get("state") == "finished" else run.rounds


def _print(done: Trained) -> None:
    console = stdout()
    on = f"on {done.rows} rows" if done.rows else f"with {len(done.participants) - len(done.dropped)} participants"
    console.print(
        f"[bold]{escape(done.job)}[/] is trained: {done.rounds} rounds {on} "
        f"in {seconds_text(done.seconds)}{' (since it was resumed)' if done.resumed else ''}"
    )
    for change in done.membership:
        console.print(escape(change), soft_wrap=True)
    for name, why in done.dropped.items():
        console.print(f"{escape(name)} dropped out: {escape(why)}", soft_wrap=True)
    print_reports(console, done.reports)
    if done.validation is not None and done.metric is not None:
        console.print(f"{escape(done.metric)} {done.validation:.4f} on the validation rows")
    if done.ids is not None:
        console.print(f"ids were {escape(done.ids)}")
    if done.layout is not None:
        console.print(escape(done.layout), soft_wrap=True)
    if done.traffic is None:
        console.print('bytes were not counted: the job has record = "none"')
    else:
        table = make_table("party", "sent to it", "received from it", numbers=("sent to it", "received from it"))
        for peer, counted in done.traffic.items():
            table.add_row(escape(peer), bytes_text(counted["bytes_sent"]), bytes_text(counted["bytes_received"]))
        console.print(Padding(table, (1, 0, 1, 2)))
    console.print(f"run folder {escape(str(done.run))}", soft_wrap=True)
    if done.traffic is not None:
        console.print(f"show the messages: veilboost transcript {escape(shlex.quote(str(done.run)))}", soft_wrap=True)


def check(job: Job, config: Config, as_json: AsJson = False) -> None:
    """Check at every party whether a job can start.

    A dry run: every party checks its policy and privacy budget, its run folder
    and disk, its certificate and clock, and reads its table, as train does.
    Tables that are aligned already are compared by a salted digest, and the
    columns of participants by name and type. Another party sends only a code
    and a public text; its owner finds the full reason in the log. Nothing is
    spent or stored. How many rows private set intersection will find is not
    checked. The exit code is 0 only if all checks pass.

    Example:

        [bold]veilboost check credit.toml --config bank.toml[/]
    """
    from veilboost.party.checks import CHECKS
    from veilboost.party.federation import Federation

    federation = Federation(job, config)
    found = federation.check()
    if as_json:
        print_json({"party": federation.party.name} | found.to_dict())
    else:
        table = make_table("party", *CHECKS)
        for column in table.columns:
            column.no_wrap = True
        for party, findings in found.parties.items():
            cells = (findings.get(name) for name in CHECKS)
            table.add_row(f"[bold]{escape(party)}[/]", *map(_cell, cells))
        console = stdout()
        console.print(table, width=max(console.width, console.measure(table).maximum), crop=False)
        errors = [
            (party, name, each) for party, all in found.parties.items() for name, each in all.items() if each.code
        ]
        console.print()
        for party, name, each in errors:
            console.print(f"[bold]{escape(party)}[/], {name}: {escape(each.text)}", soft_wrap=True)
        ready = f"the job {escape(found.job)} can start"
        console.print(ready if found.ready else f"\nthe job {escape(found.job)} cannot start")
    if not found.ready:
        raise typer.Exit(NOT_ALL)


def _cell(finding: Finding | None) -> str:
    if finding is None:
        return "[dim]-[/]"
    return f"[red]{escape(finding.code)}[/]" if finding.code else f"[green]{escape(finding.text or 'ok')}[/]"


def prepare(
    job: Job,
    config: Annotated[Path, typer.Option(metavar="FILE", help="The settings of this party.")],
    only: Annotated[
        str | None, typer.Option(metavar="WHAT", help="Prepare only ids or encryption.", show_default="all")
    ] = None,
    trees: Annotated[
        int,
        typer.Option(
            "--n-estimators",
            "--trees",
            min=1,
            max=10_000,
            help="Number of trees to encrypt for; elxgb encrypts the first tree only.",
        ),
    ] = 1,
    as_json: AsJson = False,
) -> None:
    """Precompute the slow parts of a job: hash this party's ids, and encrypt.

    Ids: at every party with a table, if the job has alignment = "hmac_csp". The
    job's authority must run (veilboost party serve): it sends the key, which is
    used for one alignment. If the ids or the key have changed when the job
    runs, the ids are hashed again; veilboost jobs show reports which was the
    case.

    Encryption: at the active party, if the job uses Paillier encryption: elxgb
    (first tree) and paillier (--trees for more than the first tree). It needs
    no other party and does not depend on labels.

    The results are stored in the runs folder. Keep them secret. The job uses and
    deletes them.

    Examples:

        [bold]veilboost prepare credit.toml --config bank.toml[/]

        [bold]veilboost prepare credit.toml --config shop.toml --only ids[/]

        [bold]veilboost prepare credit.toml --config bank.toml --trees 20[/]
    """
    from veilboost.party.job import load_job
    from veilboost.party.precompute import prepare as prepare_job
    from veilboost.party.settings import load_party

    made = prepare_job(load_party(config), load_job(job), trees, only)
    done: list[tuple[str, Any]] = []
    if made.ids is not None:
        done.append((f"hashed the ids of {made.ids.rows} rows", made.ids))
    if made.encryption is not None:
        what = f"computed {made.encryption.encryptions} encryptions with a key of {made.encryption.key_bits} bits"
        done.append((what, made.encryption))
    told = {name: part and {**part, "file": str(part["file"])} for name, part in asdict(made).items()}
    lines = (f"{what} in {seconds_text(part.seconds)}: {escape(str(part.file))}" for what, part in done)
    tell(told, as_json, *lines)
