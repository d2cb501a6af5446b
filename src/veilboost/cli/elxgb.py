"""`veilboost elxgb`: what can be done before a job starts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from veilboost.cli.console import print_json, seconds_text, stdout

elxgb = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@elxgb.callback()
def about() -> None:
    """Encrypt before a job starts, so that its first tree is quick.

    Example:

        [bold]veilboost elxgb prepare credit.toml --config bank.toml[/]
    """


@elxgb.command()
def prepare(
    job: Annotated[Path, typer.Argument(metavar="JOB", help="The job's file (veilboost init job).")],
    config: Annotated[Path, typer.Option("--config", metavar="FILE", help="The active party's settings.")],
    trees: Annotated[
        int, typer.Option("--trees", min=1, max=10_000, help="Trees to encrypt for: elxgb encrypts the first.")
    ] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Draw the key pair of a job and do the slow part of its encryption now.

    No other party is needed. What is kept, in the runs folder and for your
    eyes only, says nothing of labels; the job takes it and removes it. It is
    for jobs that encrypt by Paillier: elxgb, whose first tree this is, and
    paillier, with --trees for more than the first.

    Examples:

        [bold]veilboost elxgb prepare credit.toml --config bank.toml[/]

        [bold]veilboost elxgb prepare credit.toml --config bank.toml --trees 20[/]
    """
    from veilboost.party.elxgb_prepared import prepare as prepare_job
    from veilboost.party.settings import load_job, load_party

    began = time.perf_counter()
    made = prepare_job(load_party(config), load_job(job), trees)
    seconds = time.perf_counter() - began
    if as_json:
        told = {"file": str(made.file), "key_bits": made.key_bits, "encryptions": made.encryptions, "seconds": seconds}
        print_json(told)
        return
    stdout().print(
        f"{made.encryptions} encryptions with a key of {made.key_bits} bits lie ready "
        f"in {escape(str(made.file))}, in {seconds_text(seconds)}",
        soft_wrap=True,
    )
