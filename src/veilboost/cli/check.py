"""`veilboost check`: would all parties take part?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from veilboost.cli.console import make_table, print_json, stdout
from veilboost.cli.train import Config, Job

if TYPE_CHECKING:
    from veilboost.types import PartyName

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
    name, me, parties, answers = _asked(job, config)
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


def _asked(job: Path, config: Path) -> tuple[str, PartyName, Mapping[PartyName, Any], dict[PartyName, str | None]]:
    """The job's name, this party's, all parties, and what each says."""
    from veilboost.party.horizontal_settings import is_horizontal_job, load_horizontal_job

    if is_horizontal_job(job):
        from veilboost.party.horizontal_drive import HorizontalDriver
        from veilboost.party.settings import load_party

        wanted, own = load_horizontal_job(job), load_party(config)
        with HorizontalDriver(own, wanted) as driver:
            return wanted.name, own.name, wanted.parties, driver.check()
    from veilboost.party.federation import Federation

    federation = Federation(job, config)
    return federation.job.name, federation.party.name, federation.job.parties, federation.check()
