"""`python -m papers`: the tables and figures of the four papers, beside the published numbers."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from papers.check import check
from papers.page import read_reproduction, reproduction_page
from papers.runner import Progress as Step
from papers.runner import Reproduction, Watcher, expected_seconds, folder_of, reproduce
from papers.target import PAPERS, Cell, Context, Target, targets_named, targets_of
from veilboost.cli.console import make_table, print_json, seconds_text, stderr, stdout, writing
from veilboost.errors import InvalidParameter, UnknownRun, UnreadableFile, VeilBoostError

_STYLES = {"yes": "green", "partly": "yellow", "no": "bold red", "open": "dim"}
app = typer.Typer(rich_markup_mode="rich", pretty_exceptions_show_locals=False)


@app.command()
def papers(
    paper: Annotated[
        str | None, typer.Argument(metavar="PAPER", help=f"One of {', '.join(PAPERS)}.", show_default=False)
    ] = None,
    *,
    table: Annotated[str | None, typer.Option("--table", metavar="N", help="Only this table.")] = None,
    figure: Annotated[str | None, typer.Option("--figure", metavar="N", help="Only this figure.")] = None,
    appendix: Annotated[str | None, typer.Option("--appendix", metavar="X", help="Only this appendix.")] = None,
    target: Annotated[
        str | None, typer.Option("--target", metavar="NAME", help="Only the target of this name (--list).")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All targets of all papers.")] = False,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="Data sets as NAME.parquet with columns id and label."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Where PAPER/TARGET/ goes.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repetitions, trees and rows: minutes.")] = False,
    page: Annotated[
        Path | None,
        typer.Option("--page", metavar="FILE", help="Make one HTML page of all in OUT; without PAPER only that."),
    ] = None,
    checked: Annotated[
        float | None,
        typer.Option(
            "--check", metavar="SHARE", help="Measure this share of the cells in OUT again (0.1: a tenth), and compare."
        ),
    ] = None,
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

        [bold]python -m papers --list[/]

        [bold]python -m papers maskedxgboost --table 3 --data DIR --out out --quick[/]

        [bold]python -m papers --all --check 0.1 --data DIR --out docs/results[/]

        [bold]python -m papers --out out --page papers.html[/]
    """
    if listed:
        _list(paper, as_json)
        return
    asked = {"table": table, "figure": figure, "appendix": appendix}
    names = [f"{kind}-{number.lower()}" for kind, number in asked.items() if number is not None]
    names += [] if target is None else [target]
    only_page = page is not None and paper is None and not every
    chosen = () if only_page else _chosen(paper, names, every)
    if out is None or (data is None and not only_page):
        raise InvalidParameter("--data and --out are needed", "name the folder of data sets and one for results")
    if checked is not None:
        _check(chosen, Context(data or Path(), quick), out, checked, as_json)
        return
    results: list[Reproduction] = []
    if chosen and data is not None:
        if not data.is_dir():
            raise UnreadableFile(f"there is no folder {str(data)!r}", "name the folder that holds the data sets")
        with writing(out):
            for each in chosen:
                folder_of(each, out).mkdir(parents=True, exist_ok=True)
        context = Context(data, quick)
        results = [_run(each, context, out) for each in chosen]
    output: dict[str, Any] = {} if only_page else {"results": [each.to_dict() for each in results]}
    if page is not None:
        output |= _write_page(out, page)
    if as_json:
        print_json(output)
    else:
        _print(results, out, page)


def _chosen(paper: str | None, names: Sequence[str], every: bool) -> Sequence[Target]:
    if len(names) + every > 1:
        asked = " and ".join([*names, *(["--all"] if every else [])])
        raise InvalidParameter(f"{asked} are both asked for", "name one target, or none for all")
    if every:
        return [target for name in PAPERS for target in targets_of(name)]
    if paper is None:
        raise InvalidParameter("no paper is named", "python -m papers --list names them")
    return targets_named(paper, names[0]) if names else targets_of(paper)


def _run(target: Target, context: Context, out: Path) -> Reproduction:
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


def _check(chosen: Sequence[Target], context: Context, out: Path, share: float, as_json: bool) -> None:
    """Exit code 1 if a value is farther from the stored one than its target allows."""
    if not 0.0 < share <= 1.0:
        raise InvalidParameter(f"--check is {share:g}", "give a share above 0 and at most 1, such as 0.1")
    console = stderr()

    def watch(target: Target, cell: Cell) -> None:
        values = ", ".join(str(value) for value in cell.key.values())
        console.print(f"  {target.paper} {target.name}: {values}", soft_wrap=True)

    found = list(check(chosen, context, out, share, watch))
    if not found:
        raise UnknownRun(f"{out} holds no measured cells of this code", "measure first, with the same --out")
    others = [each for each in found if not each.same]
    if as_json:
        print_json({"values": len(found), "differ": [each.to_dict() for each in others]})
    else:
        for each in others:
            stdout().print(
                f"{each.target.paper} {each.target.name} {dict(each.key)}: {each.value} was {each.first:g}, now "
                f"{each.second:g}, allowed difference {each.allowed:g}",
                soft_wrap=True,
            )
        stdout().print(f"{len(found)} values measured again, {len(others)} differ by more than allowed")
    if others:
        raise typer.Exit(1)


def _write_page(out: Path, page: Path) -> dict[str, Any]:
    targets = read_reproduction(out)
    if not targets:
        raise UnknownRun(f"{out} holds no claims", "measure a table or figure first, with the same --out")
    with writing(page):
        page.write_text(reproduction_page(targets), encoding="utf-8")
    return {"format": "veilboost-reproduction", "targets": [dict(each.claim) for each in targets], "page": str(page)}


def _print(results: Sequence[Reproduction], out: Path, page: Path | None) -> None:
    console = stdout()
    for each in results:
        style = _STYLES[each.holds]
        console.print(f"\n[bold]{each.target.paper} {each.target.name}[/]: {each.target.title}", soft_wrap=True)
        console.print(f"  the paper   {each.claim.reported}", soft_wrap=True)
        console.print(f"  measured    {each.claim.measured}", soft_wrap=True)
        console.print(f"  holds       [{style}]{each.holds}[/]: {each.claim.why}", soft_wrap=True)
    if results:
        console.print(f"\nTables, plots and claims are in {out}", soft_wrap=True)
    if page is not None:
        console.print(f"The page is {page}", soft_wrap=True)


def _list(paper: str | None, as_json: bool) -> None:
    found = [target for name in ([paper] if paper else PAPERS) for target in targets_of(name)]
    if as_json:
        lines = [{"paper": t.paper, "target": t.name, "title": t.title, "sets": list(t.sets)} for t in found]
        print_json({"targets": lines})
        return
    shown = make_table("paper", "target", "what")
    for target in found:
        shown.add_row(target.paper, target.name, target.title)
    stdout().print(shown)


def run() -> None:
    """A refusal is one coded line on stderr and exit code 2, as with `veilboost`."""
    try:
        app(prog_name="python -m papers")
    except VeilBoostError as error:
        sys.stderr.write(" ".join(str(error).split()) + "\n")
        sys.exit(2)


if __name__ == "__main__":
    run()
