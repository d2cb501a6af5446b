"""`veilboost train`: the active party drives a job."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.padding import Padding

from veilboost.cli.console import bytes_text, make_table, print_json, seconds_text, stderr, stdout
from veilboost.errors import CheckpointFailed, JobCancelled, PeerBroken, UnknownRun, WireError

if TYPE_CHECKING:
    from veilboost.party.federation import Federation, Trained

INTERRUPTED = 130  # as shells call what Ctrl-C ended

Job = Annotated[Path, typer.Argument(metavar="JOB", help="The job's file (veilboost init job).")]
Config = Annotated[Path, typer.Option("--config", metavar="FILE", help="This party's settings (veilboost init party).")]


def train(
    job: Job,
    config: Config,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run of this job.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")] = False,
) -> None:
    """Train a model with the other parties. Run it at the party that drives the job.

    The others run [bold]veilboost party serve[/]. Each party keeps its own part of the
    model in its runs folder. After every round all parties keep what they have:
    a run that was interrupted goes on with --resume, to the same model.

    The active party, which has the label, drives a vertical job; the server drives
    a horizontal one, whose model is at every participant afterwards.

    Examples:

        [bold]veilboost train credit.toml --config bank.toml[/]

        [bold]veilboost train credit.toml --config bank.toml --resume[/]
    """
    from veilboost.party.federation import Federation

    federation = Federation(job, config)
    again = f"veilboost train {shlex.quote(str(job))} --config {shlex.quote(str(config))}"
    try:
        done = federation.train(resume, progress=not as_json, console=stderr())
    except KeyboardInterrupt:
        stderr().print(f"stopped; {_how_to_go_on(federation, again)}", soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None
    except (WireError, JobCancelled, CheckpointFailed, PeerBroken):
        if rounds_kept(federation):
            stderr().print(_how_to_go_on(federation, again), soft_wrap=True)
        raise
    if as_json:
        print_json(done.to_dict())
    else:
        _print(done)


def _how_to_go_on(federation: Federation, again: str) -> str:
    rounds = rounds_kept(federation)
    if rounds:
        return f"{rounds} rounds are kept. Go on with: {escape(again)} --resume"
    return f"no round is kept. Start again with: {escape(again)}"


def rounds_kept(federation: Federation) -> int:
    """Of a run that is not finished."""
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
    for name, why in done.dropped.items():
        console.print(f"{escape(name)} was lost on the way: {escape(why)}", soft_wrap=True)
    if done.validation is not None and done.metric is not None:
        console.print(f"{escape(done.metric)} {done.validation:.4f} on the validation rows")
    if done.ids is not None:
        console.print(f"ids were {escape(done.ids)}")
    if done.traffic is None:
        console.print('bytes were not counted: the job says record = "none"')
    else:
        table = make_table("party", "sent to it", "received from it", numbers=("sent to it", "received from it"))
        for peer, counted in done.traffic.items():
            table.add_row(escape(peer), bytes_text(counted["bytes_sent"]), bytes_text(counted["bytes_received"]))
        console.print(Padding(table, (1, 0, 1, 2)))
    console.print(f"run folder {escape(str(done.run))}", soft_wrap=True)
    if done.traffic is not None:
        console.print(f"what left: veilboost transcript {escape(shlex.quote(str(done.run)))}", soft_wrap=True)
