"""Charts as SVG text, without a plotting library: lines, bars, tables, and several charts on one sheet.

Each is a file by itself and can stand within a page; each has a title and, for those who do not see it, a description
with its numbers. What is not a finite number is left out.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from veilboost.report.scale import Scale, fit, number_text
from veilboost.report.svg import (
    FONT,
    GREY,
    GRID,
    INK,
    colour,
    drawing,
    heading,
    legend,
    mark,
    size_of,
    stroke,
    tag,
    text,
    width_of,
    wrapped,
)

Point = tuple[float, float]
_MANY = 40  # more points than these are drawn without marks


def line_chart(
    title: str,
    x_label: str,
    y_label: str,
    series: Mapping[str, Sequence[Point]],
    *,
    log_x: bool = False,
    log_y: bool = False,
    dashed: Collection[str] = (),
    across: Mapping[str, float] | None = None,
    width: float = 560,
    height: float = 340,
) -> str:
    """Lines through points, one for each name.

    Parameters
    ----------
    series
        Points (x, y) by name, in the order in which they are joined.
    dashed
        Names whose lines are dashed.
    across
        Levels that do not depend on x (baselines): dashed lines over the whole width.
    """
    lines = {name: _finite(points, log_x, log_y) for name, points in series.items()}
    levels = {name: y for name, y in (across or {}).items() if math.isfinite(y) and not (log_y and y <= 0)}
    names = [*lines, *levels]
    parts, top = heading(title, width)
    keys, top = legend(names, width, top, "line", {*dashed, *levels})
    every = [point for points in lines.values() for point in points]
    ys = fit([y for _, y in every] + list(levels.values()), height - 44, top + 22, log=log_y)
    left = _left(ys)
    xs = fit((x for x, _ in every), left, width - 18, log=log_x, margin=0.02)
    parts += keys + _axes(xs, ys, x_label, y_label)
    for at, (name, points) in enumerate(lines.items()):
        placed = [(xs.place(x), ys.place(y)) for x, y in points]
        parts.append(stroke(at, placed, dashed=name in dashed))
        if len(placed) <= _MANY:
            parts += [mark(at, x, y) for x, y in placed]
    for at, level in enumerate(levels.values(), start=len(lines)):
        y = ys.place(level)
        parts.append(stroke(at, [(xs.start, y), (xs.end, y)], dashed=True))
    if not every and not levels:
        parts.append(text(left + 12, height / 2, "no points", fill=GREY))
    told = [_line_told(name, points) for name, points in lines.items()]
    told += [f"{name}: {number_text(y)} throughout." for name, y in levels.items()]
    return drawing(parts, width, height, title, f"{y_label} over {x_label}. {' '.join(told)}")


def bar_chart(
    title: str,
    x_label: str,
    bars: Mapping[str, Mapping[str, float]],
    *,
    errors: Mapping[str, Mapping[str, float]] | None = None,
    log: bool = False,
    start: float = 0.0,
    digits: int | None = None,
    width: float = 560,
) -> str:
    """Lying bars: a group for each outer name, in it a bar for each inner name (a series, with its colour).

    Parameters
    ----------
    errors
        Half lengths of intervals, by the same names.
    start
        Where bars begin (0.5 for an AUC); with `log` they begin at the left edge.
    digits
        Digits after the point of the numbers at the bars' ends; as many as are telling where it is None.
    """
    kinds = list(dict.fromkeys(name for group in bars.values() for name in group))
    flat = [_bar(group, name, value, errors) for group, of in bars.items() for name, value in of.items()]
    flat = [each for each in flat if math.isfinite(each.value) and not (log and each.value <= 0)]
    named = [wrapped(group, width * 0.34, FONT - 1) for group in bars]
    left = 20 + max((width_of(line, FONT - 1) for lines in named for line in lines), default=0.0)
    parts, top = heading(title, width)
    keys, top = legend(kinds, width, top, "box")
    parts += keys
    ends = [each.value + each.error for each in flat] + ([each.value for each in flat] if log else [start])
    room = max((width_of(each.told(digits), FONT - 1) for each in flat), default=0.0) + 12
    xs = fit(ends, left, width - room, log=log, margin=0.0 if not log else 0.1)
    thick, y = (18 if len(kinds) < 4 else 14), top + 10.0
    for group, lines in zip(bars, named, strict=True):
        own = [each for each in flat if each.group == group]
        tall = max(len(own) * (thick + 2), 15 * len(lines))
        middle = y + tall / 2 - 7.5 * (len(lines) - 1) + 4
        parts += [text(left - 8, middle + 15 * n, line, anchor="end", size=FONT - 1) for n, line in enumerate(lines)]
        down = y + (tall - len(own) * (thick + 2)) / 2
        for each in own:
            parts += _drawn_bar(
                each, kinds.index(each.name), xs, xs.start if log else xs.place(start), down, thick, digits
            )
            down += thick + 2
        y += tall + 10
    parts.append(tag("line", x1=xs.start, x2=xs.start, y1=top + 4, y2=y - 4, stroke=GREY, class_="axis"))
    parts.append(text((left + width) / 2, y + 14, x_label, anchor="middle", size=FONT - 1, fill=GREY))
    told = "; ".join(f"{each.group}{f', {each.name}' if len(kinds) > 1 else ''}: {each.told(digits)}" for each in flat)
    return drawing(parts, width, y + 24, title, f"{x_label}. {told}.")


def table_chart(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], *, note: str = "") -> str:
    """A table as a drawing, for places that take pictures only."""
    size = FONT - 1
    wide = [
        min(260.0, 24 + max(width_of(cell, size) for cell in (header, *(row[at] for row in rows))))
        for at, header in enumerate(headers)
    ]
    width = max(sum(wide) + 24, 320.0)
    parts, y = heading(title, width)
    edges = [12 + sum(wide[:at]) for at in range(len(wide))]
    for number, row in enumerate([headers, *rows]):
        cells = [wrapped(cell, space - 20, size) for cell, space in zip(row, wide, strict=True)]
        parts += [
            text(x, y + 20 + 16 * n, line, size=size, bold=number == 0)
            for x, lines in zip(edges, cells, strict=True)
            for n, line in enumerate(lines)
        ]
        y += 12 + 16 * max(len(lines) for lines in cells)
        ink = INK if number == 0 else GRID
        kind = "axis" if number == 0 else "grid"
        parts.append(tag("line", x1=12, x2=width - 12, y1=y, y2=y, stroke=ink, class_=kind))
    for line in wrapped(note, width - 24, size) if note else ():
        y += 16
        parts.append(text(12, y + 4, line, size=size, fill=GREY))
    told = " ".join(", ".join(f"{h} {c}" for h, c in zip(headers, row, strict=True)) + "." for row in rows)
    return drawing(parts, width, y + 16, title, told)


def sheet(title: str, charts: Sequence[str], columns: int = 2) -> str:
    """Several charts of any size on one drawing, row by row."""
    sizes = [size_of(chart) for chart in charts]
    across = [max((w for w, _ in sizes[at::columns]), default=0.0) for at in range(columns)]
    width = max(sum(across), 240.0)
    parts, y = heading(title, width)
    for first in range(0, len(charts), columns):
        for at, chart in enumerate(charts[first : first + columns]):
            parts.append(chart.replace("<svg ", f'<svg x="{sum(across[:at]):g}" y="{y:g}" ', 1))
        y += max(high for _, high in sizes[first : first + columns])
    return drawing(parts, width, y, title, f"{len(charts)} charts, each with its own description.")


@dataclass(frozen=True)
class _Bar:
    group: str
    name: str
    value: float
    error: float

    def told(self, digits: int | None) -> str:
        def number(value: float) -> str:
            return number_text(value) if digits is None else f"{value:.{digits}f}"

        return number(self.value) + (f" ± {number(self.error)}" if self.error else "")


def _bar(group: str, name: str, value: float, errors: Mapping[str, Mapping[str, float]] | None) -> _Bar:
    error = (errors or {}).get(group, {}).get(name, 0.0)
    return _Bar(group, name, value, error if math.isfinite(error) else 0.0)


def _drawn_bar(each: _Bar, at: int, xs: Scale, zero: float, y: float, thick: float, digits: int | None) -> list[str]:
    end = xs.place(each.value)
    x, long = min(zero, end), max(abs(end - zero), 1.0)
    kind = f"f{at % 8}"
    parts = [tag("rect", x=x, y=y, width=long, height=thick, rx=2, fill=colour(at), class_=kind)]
    tip = end
    if each.error:
        low = xs.start if xs.log and each.value <= each.error else xs.place(each.value - each.error)
        tip = xs.place(each.value + each.error)
        middle = y + thick / 2
        parts.append(tag("line", x1=low, x2=tip, y1=middle, y2=middle, stroke=INK, stroke_width=1.5, class_="axis"))
    parts.append(text(max(tip, zero) + 6, y + thick / 2 + 4, each.told(digits), size=FONT - 1))
    return parts


def _left(ys: Scale) -> float:
    return 34 + max(width_of(label, FONT - 1) for _, label in ys.labels)


def _axes(xs: Scale, ys: Scale, x_label: str, y_label: str) -> list[str]:
    parts: list[str] = []
    for value, label in ys.labels:
        y = ys.place(value)
        parts.append(tag("line", x1=xs.start, x2=xs.end, y1=y, y2=y, stroke=GRID, class_="grid"))
        parts.append(text(xs.start - 6, y + 4, label, anchor="end", size=FONT - 1, fill=GREY))
    for value, label in xs.labels:
        x = xs.place(value)
        parts.append(tag("line", x1=x, x2=x, y1=ys.start, y2=ys.start + 4, stroke=GREY, class_="axis"))
        parts.append(text(x, ys.start + 17, label, anchor="middle", size=FONT - 1, fill=GREY))
    frame = f"{xs.start:.1f},{ys.end:.1f} {xs.start:.1f},{ys.start:.1f} {xs.end:.1f},{ys.start:.1f}"
    parts.append(tag("polyline", points=frame, fill="none", stroke=GREY, class_="axis"))
    middle = (ys.start + ys.end) / 2
    parts.append(text((xs.start + xs.end) / 2, ys.start + 34, x_label, anchor="middle", size=FONT - 1, fill=GREY))
    parts.append(
        f'<text transform="translate(16 {middle:.1f}) rotate(-90)" text-anchor="middle" font-size="{FONT - 1}" '
        f'fill="{GREY}" class="grey">{escape(y_label)}</text>'
    )
    return parts


def _finite(points: Sequence[Point], log_x: bool, log_y: bool) -> list[Point]:
    return [
        (x, y)
        for x, y in points
        if math.isfinite(x) and math.isfinite(y) and not (log_x and x <= 0) and not (log_y and y <= 0)
    ]


def _line_told(name: str, points: Sequence[Point]) -> str:
    """A line in words: every point where they are few, else the first, the last, the lowest and the highest."""
    if not points:
        return f"{name}: no points."
    if len(points) > 12:
        picked = {points[0], points[-1], min(points, key=lambda p: p[1]), max(points, key=lambda p: p[1])}
        points = [point for point in points if point in picked]
    told = ", ".join(f"{number_text(y)} at {number_text(x)}" for x, y in dict.fromkeys(points))
    return f"{name}: {told}."
