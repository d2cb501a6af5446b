"""A small chart in SVG, one panel per data set and reading, without a plotting library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

_WIDE, _HIGH, _LEFT, _TOP, _ACROSS = 250, 180, 50, 70, 5
_COLOURS = (
    "#1b6ca8",
    "#d1495b",
    "#edae49",
    "#3c7a4b",
    "#7b4b94",
    "#555555",
    "#00a6a6",
    "#b5651d",
    "#e377c2",
    "#8a9a00",
    "#000000",
)
BASELINE = "none"  # the reading of methods that have no epsilon: a line across


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """AUC over epsilon (logarithmic), a line per method; broken where the true epsilon is infinite."""
    sets = list(dict.fromkeys(row["data"] for row in rows))
    readings = list(dict.fromkeys(row["reading"] for row in rows if row["reading"] != BASELINE))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    colour = {method: _COLOURS[at % len(_COLOURS)] for at, method in enumerate(methods)}
    width, height = len(readings) * (_WIDE + 60) + _LEFT, len(sets) * (_HIGH + 60) + _TOP + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        f'font-size="11"><rect width="100%" height="100%" fill="white"/>'
    ]
    for at, method in enumerate(methods):
        x, y = _LEFT + at % _ACROSS * 230, 15 + 16 * (at // _ACROSS)
        parts.append(f'<line x1="{x}" y1="{y}" x2="{x + 22}" y2="{y}" stroke="{colour[method]}" stroke-width="2"/>')
        endless = all(math.isinf(row["true"]) for row in rows if row["method"] == method)
        parts.append(f'<text x="{x + 27}" y="{y + 4}">{escape(method)}{" (true: ∞)" if endless else ""}</text>')
    for down, data in enumerate(sets):
        own = [row for row in rows if row["data"] == data]
        low, high = min(row["auc"] for row in own), max(row["auc"] for row in own)
        margin = max(high - low, 0.01) * 0.08
        for across, reading in enumerate(readings):
            x, y = _LEFT + across * (_WIDE + 60), _TOP + down * (_HIGH + 60) + 20
            shown = [row for row in own if row["reading"] in (reading, BASELINE)]
            parts += _panel(x, y, f"{data}, {reading}", shown, low - margin, high + margin, colour)
    path.write_text("\n".join([*parts, "</svg>\n"]))


def _panel(
    x: int, y: int, title: str, rows: Sequence[dict[str, Any]], low: float, high: float, colour: dict[str, str]
) -> list[str]:
    epsilons = sorted({row["epsilon"] for row in rows if row["reading"] != BASELINE}) or [1.0]
    first, last = math.log(epsilons[0]), math.log(epsilons[-1])

    def place(epsilon: float, auc: float) -> tuple[float, float]:
        share = (math.log(epsilon) - first) / (last - first) if last > first else 0.5
        return x + share * _WIDE, y + _HIGH * (high - auc) / (high - low)

    parts = [
        f'<rect x="{x}" y="{y}" width="{_WIDE}" height="{_HIGH}" fill="none" stroke="#999"/>',
        f'<text x="{x}" y="{y - 6}" font-weight="bold">{escape(title)}</text>',
    ]
    for tick in (low, (low + high) / 2, high):
        height = place(epsilons[0], tick)[1]
        parts.append(f'<text x="{x - 6}" y="{height + 4:.1f}" text-anchor="end">{tick:.3f}</text>')
    for epsilon in epsilons:
        at = place(epsilon, low)[0]
        parts.append(f'<text x="{at:.1f}" y="{y + _HIGH + 14}" text-anchor="middle">{epsilon:g}</text>')
    for method in dict.fromkeys(row["method"] for row in rows):
        own = sorted((row for row in rows if row["method"] == method), key=lambda row: row["epsilon"])
        if own[0]["reading"] == BASELINE:
            points, dash = [place(at, own[0]["auc"]) for at in (epsilons[0], epsilons[-1])], ' stroke-dasharray="5 3"'
        else:
            points = [place(row["epsilon"], row["auc"]) for row in own]
            dash = ' stroke-dasharray="2 2"' if all(math.isinf(row["true"]) for row in own) else ""
        text = " ".join(f"{at:.1f},{height:.1f}" for at, height in points)
        parts.append(f'<polyline points="{text}" fill="none" stroke="{colour[method]}" stroke-width="1.6"{dash}/>')
    return parts
