"""How the command line speaks: readable text, or one JSON object on stdout; errors and progress on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from veilboost.errors import UnreadableFile
from veilboost.report import values

STATUS_STYLES = {"sound": "green", "heuristic": "yellow", "broken": "bold red", "unprotected": "bold red"}
BAR_WIDTH = 30
bytes_text, seconds_text = values.bytes_text, values.seconds_text
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


def command_group() -> typer.Typer:
    """What the commands of a noun, as `ledger show`, are added to."""
    return typer.Typer(
        no_args_is_help=True, rich_markup_mode="rich", context_settings={"help_option_names": ["-h", "--help"]}
    )


def stdout() -> Console:
    return Console(highlight=False, soft_wrap=False)


def stderr() -> Console:
    return Console(stderr=True, highlight=False)


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on stdout; what JSON has no number for (NaN, infinity) becomes null."""
    sys.stdout.write(json.dumps(values.plain(value), indent=2, allow_nan=False) + "\n")


def tell(told: Mapping[str, Any], as_json: bool, *lines: str) -> None:
    """One JSON object where a program asked for it, else lines for people."""
    if as_json:
        print_json(told)
        return
    for line in lines:
        stdout().print(line, soft_wrap=True)


def make_table(*headers: str, numbers: Sequence[str] = ()) -> Table:
    """A table without a frame; the named columns are aligned right."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for header in headers:
        table.add_column(header, justify="right" if header in numbers else "left", overflow="fold")
    return table


def make_pairs(pairs: Mapping[str, str]) -> Table:
    """Names and values, line by line."""
    table = make_table("", "")
    table.show_header = False
    for name, value in pairs.items():
        table.add_row(f"[bold]{escape(name)}[/]", escape(value))
    return table


def indented(console: Console, what: RenderableType, by: int = 2) -> None:
    console.print(Padding(what, (0, 0, 0, by)))


def status_text(status: str) -> str:
    style = STATUS_STYLES.get(status, "bold")
    return f"[{style}]{escape(status)}[/]"


def epsilon_text(epsilon: float | None) -> str:
    return values.epsilon_text(epsilon).replace("infinite", "[bold red]infinite[/]")


def bar(share: float) -> str:
    """A bar for a share between 0 and 1."""
    return "█" * round(BAR_WIDTH * min(max(share, 0.0), 1.0))


@contextmanager
def writing(path: Path) -> Generator[None]:
    """Turn what the system refuses to write into a coded error that names the path."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UnreadableFile(
            f"cannot write to {str(path)!r} ({reason})",
            "choose a place that exists and that you may write to",
        ) from None
