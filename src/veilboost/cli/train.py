"""`veilboost prepare`, `check` and `train`: a job, at the party that drives it."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.padding import Padding

from veilboost.cli.console import AsJson, bytes_text, make_table, print_json, seconds_text, stderr, stdout, tell
from veilboost.errors import CheckpointFailed, JobCancelled, PeerBroken, UnknownRun, WireError

if TYPE_CHECKING:
    from veilboost.party.federation import Federation, Trained

INTERRUPTED = 130  # as shells call what Ctrl-C ended
NOT_ALL = 1

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


def check(job: Job, config: Config, as_json: AsJson = False) -> None:
    """Ask every party whether it can be reached and would take part in a job.

    A dry run: this party reads its own table and checks the job as train would,
    the others read nothing, and nothing is spent or kept. The exit code is 0 only if
    all parties accept.

    Example:

        [bold]veilboost check credit.toml --config bank.toml[/]
    """
    from veilboost.party.federation import Federation

    federation = Federation(job, config)
    name, me, parties = federation.job.name, federation.party.name, federation.job.parties
    answers = federation.check()
    ready = all(why is None for why in answers.values())
    if as_json:
        found = {
            party: {key: getattr(parties[party], key) for key in ("address", "connect")}
            | {"accepts": why is None, "why": why}
            for party, why in answers.items()
        }
        print_json({"job": name, "party": me, "ready": ready, "parties": found})
    else:
        table = make_table("party", "way", "answer")
        for party, why in answers.items():
            entry = parties[party]
            way = f"dialled at {entry.address}" if entry.connect == "out" else "dials this party"
            answer = "[green]accepts[/]" if why is None else f"[red]{escape(' '.join(why.split()))}[/]"
            table.add_row(f"[bold]{escape(party)}[/]", escape(way), answer)
        console = stdout()
        console.print(table)
        count = sum(why is None for why in answers.values())
        console.print(f"\n{count} of {len(answers)} parties accept the job {escape(name)}")
    if not ready:
        raise typer.Exit(NOT_ALL)


def prepare(
    job: Job,
    config: Annotated[Path, typer.Option(metavar="FILE", help="This party's settings.")],
    only: Annotated[
        str | None, typer.Option(metavar="WHAT", help="Do one part: ids or encryption.", show_default="all")
    ] = None,
    trees: Annotated[int, typer.Option(min=1, max=10_000, help="Trees to encrypt for: elxgb encrypts the first.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Do now what a job need not wait for: hash this party's ids, and encrypt.

    Ids: at every party with a table, if the job aligns by hmac_csp. The job's
    authority must be there (veilboost party serve): it gives the key, which
    serves one alignment. If ids have changed when the job runs, or the key
    has, they are hashed again; veilboost jobs show says which it was.

    Encryption: at the active party, if the job encrypts by Paillier: elxgb,
    whose first tree this is, and paillier, with --trees for more than the
    first. It needs nobody else, and says nothing of labels.

    What is kept, in the runs folder, is for your eyes only. The job takes it
    and removes it.

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
        done.append((f"the ids of {made.ids.rows} rows lie hashed", made.ids))
    if made.encryption is not None:
        what = f"{made.encryption.encryptions} encryptions with a key of {made.encryption.key_bits} bits lie ready"
        done.append((what, made.encryption))
    told = {name: part and {**part, "file": str(part["file"])} for name, part in asdict(made).items()}
    lines = (f"{what} in {escape(str(part.file))}, in {seconds_text(part.seconds)}" for what, part in done)
    tell(told, as_json, *lines)
