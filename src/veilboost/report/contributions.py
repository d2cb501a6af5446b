"""Charts of explanations: a beeswarm for all rows, a waterfall for one row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from veilboost.model.explanation import Explanation
from veilboost.report import svg
from veilboost.report.plots import Scale, fit, number_text
from veilboost.types import AnyArray, Float64Array

MOST_ROWS = 200  # of a beeswarm
_MOST_FEATURES, _MOST_CLASSES = 12, 6
_SHADES = ("low value", "high value", "category, or value not known")
_MARGIN = "contribution to the margin"


def beeswarm(title: str, features: Mapping[str, Sequence[tuple[float, int]]], width: float = 460) -> str:
    """A line of points for each feature: (contribution, shade), where the shade is a position in `_SHADES`."""
    parts, top = svg.heading(title, width)
    keys, top = svg.legend(_SHADES, width, top, "box")
    parts += keys
    left = 20 + max((svg.width_of(_short(name)) for name in features), default=0.0)
    every = [value for points in features.values() for value, _ in points if math.isfinite(value)]
    xs, high = fit([0.0, *every], left, width - 14), 30.0
    end = top + 12 + high * len(features)
    parts += _axis(xs, top + 8, end, _MARGIN)
    for at, (name, points) in enumerate(features.items()):
        middle, crowd = top + 12 + high * (at + 0.5), dict[int, int]()
        parts.append(svg.text(left - 8, middle + 4, _short(name), anchor="end"))
        for value, shade in points:
            if math.isfinite(value):
                x = xs.place(value)
                place = crowd[round(x / 3)] = crowd.get(round(x / 3), 0) + 1
                off = min(1.7 * (place // 2), high / 2 - 3) * (-1 if place % 2 else 1)
                parts.append(svg.tag("circle", cx=x, cy=middle + off, r=2, **svg.filled(shade)))
    words = "; ".join(f"{name}: {_spread([value for value, _ in points])}" for name, points in features.items())
    return svg.drawing(parts, width, end + 40, title, f"{_MARGIN}, a point for each row. {words}.")


def waterfall(title: str, base: float, steps: Mapping[str, float], width: float = 460) -> str:
    """Bars from the expected margin to the margin of one row, the largest contribution first."""
    order = sorted(steps, key=lambda name: -abs(steps[name]))
    shown = {name: steps[name] for name in order[:_MOST_FEATURES]}
    if len(order) > _MOST_FEATURES:
        shown[f"{len(order) - _MOST_FEATURES} others"] = sum(steps[name] for name in order[_MOST_FEATURES:])
    ends = np.cumsum([base, *shown.values()]).tolist()
    parts, top = svg.heading(title, width)
    keys, top = svg.legend(("lowers", "raises"), width, top, "box")
    parts += keys
    left = 20 + max((svg.width_of(_short(name)) for name in shown), default=0.0)
    xs, high = fit(ends, left, width - 64), 22.0
    end = top + 12 + high * len(shown)
    parts += _axis(xs, top + 8, end, "margin")
    for at, (name, value) in enumerate(shown.items()):
        y, low, up = top + 12 + high * at, *sorted((xs.place(ends[at]), xs.place(ends[at + 1])))
        parts.append(svg.tag("rect", x=low, y=y, width=max(up - low, 1.0), height=high - 4, **svg.filled(value > 0)))
        parts.append(svg.text(left - 8, y + 13, _short(name), anchor="end"))
        parts.append(svg.text(up + 5, y + 13, f"{value:+.3g}"))
    words = "; ".join(f"{name}: {value:+.4g}" for name, value in shown.items())
    total = f"From the expected margin {base:.4g} to {ends[-1]:.4g}"
    return svg.drawing(parts, width, end + 40, title, f"{total}. {words}.")


def sample(found: Explanation) -> list[dict[str, Any]]:
    """What beeswarms of the most important features show, as plain data: one for each class."""
    rows = np.unique(np.linspace(0, max(len(found.values) - 1, 0), MOST_ROWS).astype(int))[: len(found.values)]
    best = np.argsort(-found.importance, kind="stable")[:_MOST_FEATURES].tolist()
    some = found.take(rows).pick(best)
    shades = [_shades(some.data[:, at]) for at in range(len(best))]
    classes = [None] if found.output_names is None else found.output_names[:_MOST_CLASSES]
    return [
        {
            "class": name,
            "features": {
                feature: list(zip(some.output(at).values[:, nth].tolist(), shades[nth], strict=True))
                for nth, feature in enumerate(some.feature_names)
            },
        }
        for at, name in enumerate(classes)
    ]


def beeswarms(samples: Sequence[Mapping[str, Any]]) -> list[str]:
    """The drawings of `sample`."""
    names = [each["class"] for each in samples]
    titles = ["Contributions of features" if name is None else f"Contributions to class {name}" for name in names]
    return [beeswarm(title, each["features"]) for title, each in zip(titles, samples, strict=True)]


def picked_rows(found: Explanation) -> list[str]:
    """Waterfalls of the rows with the lowest, median and highest score; for classes, that of the predicted one."""
    if not len(found.values):
        return []
    top = found.margins.argmax(axis=0)
    ranked = np.argsort(found.margins.max(axis=0), kind="stable").tolist()
    drawings: list[str] = []
    for name, row in (("lowest", ranked[0]), ("median", ranked[len(ranked) // 2]), ("highest", ranked[-1])):
        one = found.output(int(top[row]))
        steps = dict(zip(one.feature_names, one.values[row].tolist(), strict=True))
        drawings.append(waterfall(f"The row with the {name} score", float(one.base_values[row]), steps))
    return drawings


def _shades(values: AnyArray) -> list[int]:
    """For numbers 1 above their mean and 0 otherwise; 2 for all else."""
    numbers = np.array([value if isinstance(value, float) else math.nan for value in values.tolist()], dtype=np.float64)
    known = ~np.isnan(numbers)
    middle = float(numbers[known].mean()) if known.any() else 0.0
    return np.where(known, (numbers > middle).astype(int), 2).tolist()


def _axis(xs: Scale, top: float, end: float, label: str) -> list[str]:
    parts = [svg.text((xs.start + xs.end) / 2, end + 32, label, anchor="middle", fill=svg.GREY)]
    for value, words in xs.labels:
        x = xs.place(value)
        look = (svg.GREY, "axis") if value == 0 else (svg.GRID, "grid")
        parts.append(svg.tag("line", x1=x, x2=x, y1=top, y2=end, stroke=look[0], class_=look[1]))
        parts.append(svg.text(x, end + 16, words, anchor="middle", fill=svg.GREY))
    return parts


def _short(name: str, most: int = 22) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _spread(values: Sequence[float]) -> str:
    found: Float64Array = np.array([value for value in values if math.isfinite(value)])
    if not len(found):
        return "no points"
    return f"{number_text(float(found.min()))} to {number_text(float(found.max()))}"
