"""Repetitions as one line: means and standard deviations over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from papers.target import Row


def over_seeds(measured: Iterable[Row], by: Sequence[str], values: Sequence[str]) -> list[dict[str, Any]]:
    """One line for each combination of `by`: the mean of each value, its deviation NAME_sd, and `runs`.

    A value may be a list (a curve), of which every point has its own mean and deviation.
    """
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in measured:
        groups.setdefault(tuple(row[name] for name in by), []).append(row)
    lines: list[dict[str, Any]] = []
    for key, rows in groups.items():
        line = dict(zip(by, key, strict=True))
        for name in values:
            found = np.array([row[name] for row in rows], dtype=np.float64)
            line[name], line[f"{name}_sd"] = found.mean(axis=0).tolist(), found.std(axis=0).tolist()
        lines.append({**line, "runs": len(rows)})
    return lines


def points(values: Sequence[float]) -> list[tuple[float, float]]:
    """A curve that has a value after each tree, for a plot."""
    return [(float(number), value) for number, value in enumerate(values, start=1)]


def picked(rows: Iterable[Row], /, **wanted: Any) -> list[Row]:
    """The rows that have all these values."""
    return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]


def the(rows: Iterable[Row], name: str, /, **wanted: Any) -> Any:
    """One value of the first row that has all these, or None."""
    return next((row[name] for row in picked(rows, **wanted)), None)
