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
            party: {
                "address": parties[party].address,
                "connect": parties[party].connect,
                "accepts": why is None,
                "why": why,
            }
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
