"""Charts as SVG text, without a plotting library: lines, bars, several charts on one sheet, and their axes.

Each chart is a complete file and can be embedded in a page. Each has a title and a description with its numbers for
screen readers. Values that are not finite are left out.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from veilboost.report import svg

Point = tuple[float, float] | tuple[float, float, float]  # x and y, and how far y varies: drawn as a band
_MANY = 40  # the most points that are drawn with marks
_FINEST = 1e-6  # the finest step of an axis, relative to the largest value
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_SUFFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


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
    order: Sequence[str] | None = None,
    reach: Iterable[float] = (),
    width: float = 560,
    height: float = 340,
) -> str:
    """Lines through points, one for each name.

    Parameters
    ----------
    series
        Points by name, in the order in which they are joined: (x, y), or (x, y, deviation) with a band around the line.
    dashed
        Names whose lines are dashed.
    across
        Levels that do not depend on x (baselines): dashed lines over the whole width.
    order
        All names of a sheet of charts, so that a name looks the same in each chart; the sheet has the legend.
    reach
        Values that the y axis includes, so that several charts have the same axis.
    """
    found = {name: _finite(points, log_x, log_y) for name, points in series.items()}
    lines = {name: [(x, y) for x, y, _ in points] for name, points in found.items()}
    bands = {
        name: [(x, max(y - d, y / 10) if log_y else y - d, y + d) for x, y, d in points]
        for name, points in found.items()
        if any(d > 0.0 for _, _, d in points)
    }
    levels = {name: y for name, y in (across or {}).items() if math.isfinite(y) and not (log_y and y <= 0)}
    names = list(order or [*lines, *levels])
    parts, top = svg.heading(title, width)
    if order is None:
        keys, top = svg.legend(names, width, top, "line", dashed, levels)
        parts += keys
    every = [point for points in lines.values() for point in points]
    edges = [y for points in bands.values() for _, low, high in points for y in (low, high)]
    ys = fit([*(y for _, y in every), *edges, *levels.values(), *reach], height - 44, top + 22, log=log_y)
    left = 34 + max(svg.width_of(label) for _, label in ys.labels)
    xs = fit((x for x, _ in every), left, width - 18, log=log_x, margin=0.02)
    parts += _axes(xs, ys, x_label, y_label)
    for name, points in bands.items():
        lower, upper = ([(xs.place(x), ys.place(edge)) for x, *both in points for edge in [both[at]]] for at in (0, 1))
        parts.append(svg.band(names.index(name), lower, upper))
    for name, points in lines.items():
        at, placed = names.index(name), [(xs.place(x), ys.place(y)) for x, y in points]
        parts.append(svg.stroke(at, placed, dashed=name in dashed))
        if len(placed) <= _MANY:
            parts += [svg.mark(at, x, y) for x, y in placed]
    for name, level in levels.items():
        y = ys.place(level)
        parts.append(svg.stroke(names.index(name), [(xs.start, y), (xs.end, y)], dashed=True))
    if not every and not levels:
        parts.append(svg.text(left + 12, height / 2, "no points", fill=svg.GREY))
    words = [_line_text(name, points) for name, points in lines.items()]
    words += [f"{name}: {number_text(y)} throughout." for name, y in levels.items()]
    return svg.drawing(parts, width, height, title, f"{y_label} over {x_label}. {' '.join(words)}")


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
    """Horizontal bars: a group for each outer name, with a bar for each inner name (a series, with its colour).

    Parameters
    ----------
    errors
        Half lengths of intervals, by the same names.
    start
        Where bars begin (0.5 for an AUC); with `log` they begin at the left edge.
    digits
        Decimal places of the numbers at the ends of bars; None chooses automatically.
    """
    kinds = list(dict.fromkeys(name for group in bars.values() for name in group))
    flat = [_bar(group, name, value, errors, digits) for group, of in bars.items() for name, value in of.items()]
    flat = [each for each in flat if math.isfinite(each.value) and not (log and each.value <= 0)]
    named = [svg.wrapped(group, width * 0.34) for group in bars]
    left = 20 + max((svg.width_of(line) for lines in named for line in lines), default=0.0)
    parts, top = svg.heading(title, width)
    keys, top = svg.legend(kinds, width, top, "box")
    parts += keys
    ends = [each.value + each.error for each in flat] + ([each.value for each in flat] if log else [start])
    room = max((svg.width_of(each.label) for each in flat), default=0.0) + 12
    xs = fit(ends, left, width - room, log=log, margin=0.0 if not log else 0.1)
    zero, thick, y = xs.start if log else xs.place(start), (18 if len(kinds) < 4 else 14), top + 10.0
    for group, lines in zip(bars, named, strict=True):
        own = [each for each in flat if each.group == group]
        tall = max(len(own) * (thick + 2), 15 * len(lines))
        middle = y + tall / 2 - 7.5 * (len(lines) - 1) + 4
        parts += [svg.text(left - 8, middle + 15 * n, line, anchor="end") for n, line in enumerate(lines)]
        down = y + (tall - len(own) * (thick + 2)) / 2
        for each in own:
            parts += _drawn_bar(each, kinds.index(each.name), xs, zero, down, thick)
            down += thick + 2
        y += tall + 10
    parts.append(svg.tag("line", x1=xs.start, x2=xs.start, y1=top + 4, y2=y - 4, stroke=svg.GREY, class_="axis"))
    parts.append(svg.text((left + width) / 2, y + 14, x_label, anchor="middle", fill=svg.GREY))
    words = "; ".join(f"{each.group}{f', {each.name}' if len(kinds) > 1 else ''}: {each.label}" for each in flat)
    return svg.drawing(parts, width, y + 24, title, f"{x_label}. {words}.")


def sheet(
    title: str,
    charts: Sequence[str],
    columns: int = 2,
    *,
    names: Sequence[str] = (),
    dashed: Collection[str] = (),
    across: Collection[str] = (),
) -> str:
    """Several charts of any size on one drawing, row by row; `names` (the `order` of each) make one legend for all."""
    sizes = [svg.size_of(chart) for chart in charts]
    wide = [max((w for w, _ in sizes[at::columns]), default=0.0) for at in range(columns)]
    width = max(sum(wide), 240.0)
    parts, y = svg.heading(title, width)
    keys, y = svg.legend(names, width, y, "line", dashed, across)
    parts += keys
    for first in range(0, len(charts), columns):
        for at, chart in enumerate(charts[first : first + columns]):
            parts.append(chart.replace("<svg ", f'<svg x="{sum(wide[:at]):g}" y="{y:g}" ', 1))
        y += max(high for _, high in sizes[first : first + columns])
    return svg.drawing(parts, width, y, title, f"{len(charts)} charts, each with its own description.")


class _Bar(NamedTuple):
    group: str
    name: str
    value: float
    error: float
    label: str


def _bar(
    group: str, name: str, value: float, errors: Mapping[str, Mapping[str, float]] | None, digits: int | None
) -> _Bar:
    error = (errors or {}).get(group, {}).get(name, 0.0)
    error = error if math.isfinite(error) else 0.0
    numbers = [number_text(each) if digits is None else f"{each:.{digits}f}" for each in (value, error)]
    return _Bar(group, name, value, error, " ± ".join(numbers if error else numbers[:1]))


def _drawn_bar(each: _Bar, at: int, xs: Scale, zero: float, y: float, thick: float) -> list[str]:
    end = tip = xs.place(each.value)
    parts = [
        svg.tag("rect", x=min(zero, end), y=y, width=max(abs(end - zero), 1.0), height=thick, rx=2, **svg.filled(at))
    ]
    middle = y + thick / 2
    if each.error:
        low = xs.start if xs.log and each.value <= each.error else xs.place(each.value - each.error)
        tip = xs.place(each.value + each.error)
        parts.append(
            svg.tag("line", x1=low, x2=tip, y1=middle, y2=middle, stroke=svg.INK, stroke_width=1.5, class_="axis")
        )
    return [*parts, svg.text(max(tip, zero) + 6, middle + 4, each.label)]


def _axes(xs: Scale, ys: Scale, x_label: str, y_label: str) -> list[str]:
    parts: list[str] = []
    for value, label in ys.labels:
        y = ys.place(value)
        parts.append(svg.tag("line", x1=xs.start, x2=xs.end, y1=y, y2=y, stroke=svg.GRID, class_="grid"))
        parts.append(svg.text(xs.start - 6, y + 4, label, anchor="end", fill=svg.GREY))
    for value, label in xs.labels:
        x = xs.place(value)
        parts.append(svg.tag("line", x1=x, x2=x, y1=ys.start, y2=ys.start + 4, stroke=svg.GREY, class_="axis"))
        parts.append(svg.text(x, ys.start + 17, label, anchor="middle", fill=svg.GREY))
    frame = f"{xs.start:.1f},{ys.end:.1f} {xs.start:.1f},{ys.start:.1f} {xs.end:.1f},{ys.start:.1f}"
    parts.append(svg.tag("polyline", points=frame, fill="none", stroke=svg.GREY, class_="axis"))
    parts.append(svg.text((xs.start + xs.end) / 2, ys.start + 34, x_label, anchor="middle", fill=svg.GREY))
    parts.append(
        f'<text transform="translate(16 {(ys.start + ys.end) / 2:.1f}) rotate(-90)" text-anchor="middle" '
        f'font-size="{svg.FONT}" fill="{svg.GREY}" class="grey">{escape(y_label)}</text>'
    )
    return parts


def _finite(points: Sequence[Point], log_x: bool, log_y: bool) -> list[tuple[float, float, float]]:
    """The points that can be drawn, with their deviations; 0 where there is none."""
    found = [(point[0], point[1], point[2] if len(point) == 3 else 0.0) for point in points]
    return [
        (x, y, d if math.isfinite(d) and d > 0.0 else 0.0)
        for x, y, d in found
        if math.isfinite(x) and math.isfinite(y) and not (log_x and x <= 0) and not (log_y and y <= 0)
    ]


def _line_text(name: str, points: Sequence[tuple[float, float]]) -> str:
    """A line in words: all points if there are few, otherwise the first, last, lowest and highest."""
    if not points:
        return f"{name}: no points."
    if len(points) > 12:
        picked = {points[0], points[-1], min(points, key=lambda p: p[1]), max(points, key=lambda p: p[1])}
        points = [point for point in points if point in picked]
    listed = ", ".join(f"{number_text(y)} at {number_text(x)}" for x, y in dict.fromkeys(points))
    return f"{name}: {listed}."


# --- axes: positions of numbers, and tick labels --------------------------------------------------------------------


@dataclass(frozen=True)
class Scale:
    """Numbers from `low` to `high` on a line from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def place(self, value: float) -> float:
        low, high, at = (math.log10(x) if self.log else x for x in (self.low, self.high, value))
        return self.start + (self.end - self.start) * ((at - low) / (high - low) if high > low else 0.5)

    @property
    def ticks(self) -> list[float]:
        return _log_ticks(self.low, self.high) if self.log else _even_ticks(self.low, self.high)

    @property
    def labels(self) -> list[tuple[float, str]]:
        """The ticks of an axis with their labels."""
        found = self.ticks
        if self.log:
            return [(value, number_text(value)) for value in found]
        step = found[1] - found[0] if len(found) > 1 else abs(found[0]) or 1.0
        return [(value, number_text(value, step)) for value in found]


def fit(values: Iterable[float], start: float, end: float, *, log: bool = False, margin: float = 0.04) -> Scale:
    """A scale that includes all values with a margin."""
    found = [value for value in values if math.isfinite(value) and not (log and value <= 0)]
    low, high = (min(found), max(found)) if found else (1.0, 10.0)
    if log:
        room = (high / low) ** margin if high > low else 3.0
        return Scale(low / room, high * room, start, end, log=True)
    largest = max(abs(low), abs(high))
    # Values that differ by less than the finest step are drawn in the middle.
    room = (high - low) * margin if high - low > largest * _FINEST else largest * 0.1 or 1.0
    return Scale(low - room, high + room, start, end)


def number_text(value: float, step: float | None = None) -> str:
    """A number, as short as possible to differ from its neighbours `step` away."""
    if value == 0:
        return "0"
    for size, suffix in _SUFFIXES:
        # Numbers below ten thousand are easier to read in full.
        if abs(value) >= max(size, 1e4):
            return f"{value / size:.{_digits(step / size) if step else 3}{'f' if step else 'g'}}{suffix}"
    if step is None:
        return f"{value:.4g}"
    if step >= 1e-6:
        return f"{value:.{_digits(step)}f}"
    return f"{value:.{max(0, math.ceil(math.log10(abs(value) / step))) + 1}e}"


def _digits(step: float) -> int:
    """Digits after the point that a multiple of `step` needs."""
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    return digits + (abs(step * 10**digits - round(step * 10**digits)) > 1e-6)


def _even_ticks(low: float, high: float, about: int = 5) -> list[float]:
    if high <= low:
        return [low]
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in _STEPS if power * factor >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [float(f"{at * step:.10g}") for at in range(first, math.floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float, most: int = 7) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for factors in ((1, 2, 5), (1, 3), (1,)):
        found = [f * 10.0**power for power in range(first, last + 1) for f in factors]
        found = [value for value in found if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]
        if len(found) <= most:
            return found or [low, high]
    return found[:: math.ceil(len(found) / most)]
