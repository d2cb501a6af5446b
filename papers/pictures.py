"""For places that take pictures only: a table as a drawing, and a drawing as PNG."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from veilboost.errors import MissingExtra
from veilboost.report.svg import GREY, GRID, INK, drawing, heading, tag, text, width_of, wrapped


def table_chart(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], *, note: str = "") -> str:
    """A table as a drawing, for places that take pictures only."""
    wide = [
        min(260.0, 24 + max(width_of(cell) for cell in (header, *(row[at] for row in rows))))
        for at, header in enumerate(headers)
    ]
    width = max(sum(wide) + 24, 320.0)
    parts, y = heading(title, width)
    edges = [12 + sum(wide[:at]) for at in range(len(wide))]
    for number, row in enumerate([headers, *rows]):
        cells = [wrapped(cell, space - 20) for cell, space in zip(row, wide, strict=True)]
        parts += [
            text(x, y + 20 + 16 * n, line, bold=number == 0)
            for x, lines in zip(edges, cells, strict=True)
            for n, line in enumerate(lines)
        ]
        y += 12 + 16 * max(len(lines) for lines in cells)
        ink = INK if number == 0 else GRID
        kind = "axis" if number == 0 else "grid"
        parts.append(tag("line", x1=12, x2=width - 12, y1=y, y2=y, stroke=ink, class_=kind))
    for line in wrapped(note, width - 24) if note else ():
        y += 16
        parts.append(text(12, y + 4, line, fill=GREY))
    words = " ".join(", ".join(f"{h} {c}" for h, c in zip(headers, row, strict=True)) + "." for row in rows)
    return drawing(parts, width, y + 16, title, words)


def png_of(svg: str, zoom: float = 2.0) -> bytes:
    """A drawing as PNG, `zoom` pixels to a unit.

    Raises
    ------
    MissingExtra
        The extra `plots` is not installed.
    """
    try:
        resvg: Any = importlib.import_module("resvg_py")
    except ModuleNotFoundError:
        raise MissingExtra("a plot as PNG needs resvg-py", "pip install 'veilboost[plots]', or use the SVG") from None
    return bytes(resvg.svg_to_bytes(svg_string=svg, zoom=zoom, sans_serif_family="DejaVu Sans"))
