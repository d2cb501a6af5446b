"""`veilboost reproduce`: the tables and figures of the four papers, beside the published numbers."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilboost.cli.console import make_table, print_json, seconds_text, stderr, stdout, writing
from veilboost.errors import ImpossibleParameter, UnreadableFile

if TYPE_CHECKING:
    from veilboost.reproduce.context import Context
    from veilboost.reproduce.runner import Reproduction, Watcher
    from veilboost.reproduce.target import Target

_STYLES = {"yes": "green", "partly": "yellow", "no": "bold red", "open": "dim"}


def reproduce(
    paper: Annotated[
        str | None,
        typer.Argument(metavar="PAPER", help="maskedxgboost, fedxgboost, elxgb or mal.", show_default=False),
    ] = None,
    *,
    table: Annotated[str | None, typer.Option("--table", metavar="N", help="Only this table.")] = None,
    figure: Annotated[str | None, typer.Option("--figure", metavar="N", help="Only this figure.")] = None,
    appendix: Annotated[str | None, typer.Option("--appendix", metavar="X", help="Only this appendix.")] = None,
    target: Annotated[
        str | None, typer.Option("--target", metavar="NAME", help="Only the target of this name (--list).")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="Data sets as NAME.parquet with columns id and label."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Where PAPER/TARGET/ goes.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repetitions, trees and rows: minutes.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="List papers and targets, and run nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")] = False,
) -> None:
    """Measure a paper's tables and figures again.

    Every target writes OUT/PAPER/TARGET/table.csv, plot.svg, plot.png and
    claim.json: what the paper reports, what was measured here, whether the
    claim holds, and why not where it does not. What is measured is kept at
    once: run the same command again to go on. Data sets that are not in DIR
    are skipped by name.

    Examples:

        [bold]veilboost reproduce --list[/]

        [bold]veilboost reproduce maskedxgboost --table 3 --data DIR --out out --quick[/]
    """
    if listed:
        _list(paper, as_json)
        return
    if paper is None:
        raise ImpossibleParameter("no paper is named", "veilboost reproduce --list names them")
    chosen = _chosen(paper, {"table": table, "figure": figure, "appendix": appendix}, target)
    if data is None or out is None:
        raise ImpossibleParameter("--data and --out are needed", "name the folder of data sets and one for results")
    if not data.is_dir():
        raise UnreadableFile(f"there is no folder {str(data)!r}", "name the folder that holds the data sets")
    from veilboost.reproduce.context import Context
    from veilboost.reproduce.runner import folder_of

    context = Context(data, quick)
    with writing(out):
        for each in chosen:
            folder_of(each, out).mkdir(parents=True, exist_ok=True)
    results = [_run(each, context, out) for each in chosen]
    if as_json:
        print_json({"results": [each.to_dict() for each in results]})
    else:
        _print(results, out)


def _chosen(paper: str, numbers: Mapping[str, str | None], target: str | None) -> Sequence[Target]:
    from veilboost.reproduce.registry import targets_named, targets_of

    names = [f"{kind}-{number.lower()}" for kind, number in numbers.items() if number is not None]
    names += [] if target is None else [target]
    if len(names) > 1:
        raise ImpossibleParameter(f"{' and '.join(names)} are both asked for", "name one target, or none for all")
    return targets_named(paper, names[0]) if names else targets_of(paper)


def _run(target: Target, context: Context, out: Path) -> Reproduction:
    from veilboost.reproduce.runner import expected_seconds, reproduce

    console = stderr()
    for name in context.missing(target.sets):
        console.print(f"{target.name}: skipped {name}: not in {context.data}", soft_wrap=True)
    left = expected_seconds(target, context, out)
    expected = f"about {seconds_text(left)}" if left else "measured already"
    console.print(f"[bold]{target.paper} {target.name}[/]: {target.title}; {expected}", soft_wrap=True)
    with _progress() as watch:
        return reproduce(target, context, out, watch)


@contextmanager
def _progress() -> Generator[Watcher]:
    """A bar over the cells where a person watches, else a line for each."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from veilboost.reproduce.runner import Progress as Step

    console = stderr()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def watch(step: Step) -> None:
            words = "done" if step.cell is None else ", ".join(str(value) for value in step.cell.key.values())
            left = f"about {seconds_text(step.seconds_left)} left" if step.seconds_left else ""
            bar.update(task, total=step.cells, completed=step.done, description=f"{words} {left}")
            if not console.is_terminal and step.cell is not None and not step.stored:
                console.print(f"  {step.done + 1}/{step.cells} {words} {left}", soft_wrap=True)

        yield watch


def _print(results: Sequence[Reproduction], out: Path) -> None:
    console = stdout()
    for each in results:
        style = _STYLES[each.claim.holds]
        console.print(f"\n[bold]{each.target.paper} {each.target.name}[/]: {each.target.title}", soft_wrap=True)
        console.print(f"  the paper   {each.claim.reported}", soft_wrap=True)
        console.print(f"  measured    {each.claim.measured}", soft_wrap=True)
        console.print(f"  holds       [{style}]{each.claim.holds}[/]: {each.claim.why}", soft_wrap=True)
    console.print(f"\nTables, plots and claims are in {out}", soft_wrap=True)


def _list(paper: str | None, as_json: bool) -> None:
    from veilboost.reproduce.registry import PAPERS, targets_of

    papers = [paper] if paper is not None else list(PAPERS)
    found = [target for name in papers for target in targets_of(name)]
    if as_json:
        lines = [{"paper": t.paper, "target": t.name, "title": t.title, "sets": list(t.sets)} for t in found]
        print_json({"targets": lines})
        return
    shown = make_table("paper", "target", "what")
    for target in found:
        shown.add_row(target.paper, target.name, target.title)
    stdout().print(shown)
