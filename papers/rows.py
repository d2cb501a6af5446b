"""Rows of a table: what was measured, as one line for all repetitions, and how to find one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

Row = Mapping[str, Any]  # one line of a table, or the coordinates or values of a cell: what JSON can hold
Rows = Sequence[Row]
Line = dict[str, Any]  # a row that is still being made


def over_seeds(measured: Iterable[Row], key: Iterable[str]) -> list[Line]:
    """One line for each key but its seed: the mean of each value, its deviation NAME_sd, and `runs`.

    A value may be a list (a curve), of which every point has its own mean and deviation; text that is the same in all
    runs stays. Runs that lack a value (None) do not count. Where the key has no seed, rows are as they were measured.
    """
    if "seed" not in key:
        return [dict(row) for row in measured]
    names = [name for name in key if name != "seed"]
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in measured:
        if None not in row.values():
            groups.setdefault(tuple(row[name] for name in names), []).append(row)
    lines: list[Line] = []
    for place, rows in groups.items():
        line: Line = dict(zip(names, place, strict=True))
        for name in rows[0]:
            values = [row[name] for row in rows]
            if name in line or name == "seed":
                continue
            if isinstance(values[0], str):
                line[name] = values[0] if len(set(values)) == 1 else None
                continue
            found = np.array(values, dtype=np.float64)
            line[name], line[f"{name}_sd"] = found.mean(axis=0).tolist(), found.std(axis=0).tolist()
        lines.append({**line, "runs": len(rows)})
    return lines


def picked(rows: Iterable[Row], /, **wanted: Any) -> list[Row]:
    """The rows that have all these values."""
    return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]


def the(rows: Iterable[Row], name: str, /, **wanted: Any) -> Any:
    """One value of the first row that has all these, or None."""
    return next((row[name] for row in picked(rows, **wanted)), None)


def by(rows: Rows, name: str) -> Iterator[tuple[Any, list[Row]]]:
    """Each value of a column, in the order in which they come, and the rows that have it."""
    for value in dict.fromkeys(row[name] for row in rows):
        yield value, picked(rows, **{name: value})


def curve(row: Row, name: str) -> list[tuple[float, float, float]]:
    """A list of values after each tree, for a plot, with their deviations."""
    values, deviations = row[name], row.get(f"{name}_sd") or [0.0] * len(row[name])
    return [(float(at), *both) for at, both in enumerate(zip(values, deviations, strict=True), start=1)]


def point(row: Row, x: str, y: str) -> tuple[float, float, float]:
    """A point of a plot, with its deviation."""
    return row[x], row[y], row.get(f"{y}_sd") or 0.0
