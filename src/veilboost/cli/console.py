"""Output of the command line: text or one JSON object on stdout; errors and progress on stderr."""

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
    """A group of commands, such as `ledger show`."""
    return typer.Typer(
        no_args_is_help=True, rich_markup_mode="rich", context_settings={"help_option_names": ["-h", "--help"]}
    )


def stdout() -> Console:
    return Console(highlight=False, soft_wrap=False)


def stderr() -> Console:
    return Console(stderr=True, highlight=False)


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on stdout; NaN and infinity become null."""
    sys.stdout.write(json.dumps(values.plain(value), indent=2, allow_nan=False) + "\n")


def tell(told: Mapping[str, Any], as_json: bool, *lines: str) -> None:
    """Print one JSON object if `as_json`, otherwise the lines."""
    if as_json:
        print_json(told)
        return
    for line in lines:
        stdout().print(line, soft_wrap=True)


def make_table(*headers: str, numbers: Sequence[str] = ()) -> Table:
    """A table without a frame; the columns in `numbers` are right-aligned."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for header in headers:
        table.add_column(header, justify="right" if header in numbers else "left", overflow="fold")
    return table


def make_pairs(pairs: Mapping[str, str]) -> Table:
    """A table of names and values."""
    table = make_table("", "")
    table.show_header = False
    for name, value in pairs.items():
        table.add_row(f"[bold]{escape(name)}[/]", escape(value))
    return table


def print_reports(console: Console, reports: Mapping[str, Mapping[str, Any]]) -> None:
    """Print a table of what each participant reported about its rows; nothing if there is none."""
    if not reports:
        return
    names = list(dict.fromkeys(key for report in reports.values() for key in report))
    headers = [name.replace("_", " ") for name in names]
    table = make_table("participant", *headers, numbers=headers)
    for name, report in reports.items():
        table.add_row(escape(name), *(_number(report.get(key)) for key in names))
    console.print(Padding(table, (1, 0, 1, 2)))


def _number(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else escape(str(value))


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
    """Raise a coded error with the path if the operating system refuses to write."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UnreadableFile(
            f"cannot write to {str(path)!r} ({reason})",
            "give a path whose folder exists and where you have write permission",
        ) from None
