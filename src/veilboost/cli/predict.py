"""`veilboost predict`: scores of new rows, with live parties."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from veilboost.cli.console import print_json, seconds_text, stderr, stdout, writing
from veilboost.errors import ImpossibleParameter, UnreadableFile

Model = Annotated[Path, typer.Option("--model", metavar="RUN", help="The run folder of a finished job.")]
Config = Annotated[Path, typer.Option("--config", metavar="FILE", help="This party's settings.")]


def predict(
    model: Model,
    config: Config,
    data: Annotated[Path, typer.Option("--data", metavar="FILE", help="New rows: parquet, csv or arrow.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The scores to write: .parquet or .csv.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Predict new rows together with the other parties.

    Run by the active party of a finished job. Its rows come from --data: the id
    column and the columns as in training; the label may be absent. The other
    parties look up the same people in their own tables, so their daemons must
    run and know everyone. They learn which of their rows are asked for.

    A job over rows in different hands leaves the whole model at its server and
    at every participant: each predicts its own rows by itself, and asks nobody.

    Examples:

        [bold]veilboost predict --model runs/credit --config bank.toml --data new.parquet --out scores.parquet[/]
    """
    from veilboost.infer.scores import check_ending, meaning, score_columns, write_scores
    from veilboost.party.predicting import names_of, open_predictor
    from veilboost.party.settings import load_party

    # All that this machine can check comes first: what parties are asked counts against their day's limit.
    check_ending(out)
    _check_place(data, out)
    opened = open_predictor(load_party(config), model)
    info = opened.info
    with _stage(f"reading {data}"):
        table = opened.load(data)
    others = names_of([name for name in info.parties if name != info.party] or [info.party])
    started = time.monotonic()
    with _stage(f"predicting {table.rows} rows with {others}"):
        found = opened.predict(table)
    seconds = time.monotonic() - started
    columns = score_columns(info, found.ids, found.scores)
    with writing(out):
        write_scores(out, columns)
    if as_json:
        print_json(
            {
                "out": str(out),
                "rows": table.rows,
                "columns": list(columns),
                "objective": info.objective,
                "score": meaning(info),
                "classes": None if info.classes is None else list(info.classes),
                "model": info.name,
                "parties": list(info.parties),
                "seconds": seconds,
            }
        )
        return
    stdout().print(
        f"wrote {escape(str(out))}: {table.rows} rows, predicted with {escape(others)} in {seconds_text(seconds)}",
        soft_wrap=True,
    )
    stdout().print(f"columns {escape(', '.join(columns))}; a score is {escape(meaning(info))}", soft_wrap=True)


def _check_place(data: Path, out: Path) -> None:
    if not out.parent.is_dir():
        raise UnreadableFile(f"there is no folder {str(out.parent)!r} to write to", "make it first")
    if out.is_dir():
        raise UnreadableFile(f"{str(out)!r} is a folder", "name a file")
    if out.exists() and data.exists() and out.samefile(data):
        raise ImpossibleParameter("--out would overwrite --data", "write the scores to another file")


@contextmanager
def _stage(text: str) -> Generator[None]:
    """What goes on, on stderr: a spinner where a person watches, a line elsewhere."""
    console = stderr()
    if console.is_terminal:
        with console.status(escape(text)):
            yield
    else:
        console.print(escape(text), soft_wrap=True)
        yield
