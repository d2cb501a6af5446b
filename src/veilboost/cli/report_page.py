"""`veilboost report`: what a run gave, as one page that needs nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from veilboost.cli.console import bytes_text, print_json, stdout, writing

PAGE = Path("report.html")


def report(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN|DIR",
            help="A run's folder (several: of one job's parties), or what demo --folder or simulate --out wrote.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="Where the page goes.", show_default=str(PAGE)),
    ] = None,
    audit: Annotated[
        Path | None,
        typer.Option(
            "--audit",
            metavar="FILE",
            help="What veilboost audit --json printed for this run.",
            show_default="audit.json in DIR, where there is one",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what the page says as one JSON object; no page unless -o is given.")
    ] = False,
) -> None:
    """Make one HTML page of a run, a demonstration or a simulation.

    The page holds the learning curve, what was gained over training alone,
    time and bytes by party and level, the privacy ledger, what each party was
    shown, what attacks found, and the model's importance by party. It loads
    nothing and can be mailed, printed and read on a phone.

    Examples:

        [bold]veilboost report runs/credit -o credit.html[/]

        [bold]veilboost demo --folder town && veilboost report town[/]

        [bold]veilboost simulate --scene --out result && veilboost report result[/]
    """
    from veilboost.report.runs import make_report

    made = make_report(paths, audit)
    file = out if as_json else out or PAGE
    if file is not None:
        with writing(file):
            file.write_text(made.html, encoding="utf-8")
    if as_json:
        print_json({**made.data, "page": None if file is None else str(file)})
    else:
        size = bytes_text(len(made.html.encode()))
        stdout().print(f"{escape(made.title)}: {escape(str(file))}, {size}", soft_wrap=True)
