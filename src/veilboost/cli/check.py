"""`veilboost check`: would all parties take part?"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from veilboost.cli.console import make_table, print_json, stdout
from veilboost.cli.train import Config, Job

NOT_ALL = 1


def check(
    job: Job,
    config: Config,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Ask every party whether it can be reached and would take part in a job.

    A dry run: no table is read, nothing is spent or kept. The exit code is 0
    only if all parties accept.

    Example:

        [bold]veilboost check credit.toml --config bank.toml[/]
    """
    from veilboost.party.federation import Federation

    federation = Federation(job, config)
    answers = federation.check()
    parties = federation.job.parties
    ready = all(why is None for why in answers.values())
    if as_json:
        found = {
            name: {
                "address": parties[name].address,
                "connect": parties[name].connect,
                "accepts": why is None,
                "why": why,
            }
            for name, why in answers.items()
        }
        print_json({"job": federation.job.name, "party": federation.party.name, "ready": ready, "parties": found})
    else:
        table = make_table("party", "way", "answer")
        for name, why in answers.items():
            entry = parties[name]
            way = f"dialled at {entry.address}" if entry.connect == "out" else "dials this party"
            answer = "[green]accepts[/]" if why is None else f"[red]{escape(' '.join(why.split()))}[/]"
            table.add_row(f"[bold]{escape(name)}[/]", escape(way), answer)
        console = stdout()
        console.print(table)
        count = sum(why is None for why in answers.values())
        console.print(f"\n{count} of {len(answers)} parties accept the job {escape(federation.job.name)}")
    if not ready:
        raise typer.Exit(NOT_ALL)
