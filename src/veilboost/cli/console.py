"""How the command line speaks: readable text, or one JSON object on stdout; errors and progress on stderr."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from veilboost.errors import UnreadableFile

STATUS_STYLES = {"sound": "green", "heuristic": "yellow", "broken": "bold red", "open": "bold red"}
BAR_WIDTH = 30


def stdout() -> Console:
    return Console(highlight=False, soft_wrap=False)


def stderr() -> Console:
    return Console(stderr=True, highlight=False)


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on stdout; what JSON has no number for (NaN, infinity) becomes null."""
    sys.stdout.write(json.dumps(_plain(value), indent=2, allow_nan=False) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in cast(Mapping[Any, Any], value).items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in cast(Sequence[Any], value)]
    return value


def make_table(*headers: str, numbers: Sequence[str] = ()) -> Table:
    """A table without a frame; the named columns are aligned right."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for header in headers:
        table.add_column(header, justify="right" if header in numbers else "left", overflow="fold")
    return table


def status_text(status: str) -> str:
    style = STATUS_STYLES.get(status, "bold")
    return f"[{style}]{escape(status)}[/]"


def bar(share: float) -> str:
    """A bar for a share between 0 and 1."""
    return "█" * round(BAR_WIDTH * min(max(share, 0.0), 1.0))


def bytes_text(size: float) -> str:
    """`1.5 MB`: thousands, as disks and networks count."""
    if size < 1000:
        return f"{size:.0f} B"
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 1000:
            return f"{size:.1f} {unit}"
    return f"{size / 1000:.1f} TB"


def seconds_text(seconds: float) -> str:
    """`350 us`, `12.3 ms`, `4.56 s`, `3 min 20 s`."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 1:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 120:
        return f"{seconds:.2f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"


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
