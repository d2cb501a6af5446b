"""A second measurement of some of the cells that were measured before, chosen by chance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import stdev
from typing import Any

import numpy as np

from papers.rows import Row
from papers.runner import Cells, cells_of
from papers.target import Cell, Context, Target

# Probability that an unchanged noisy value is said to differ. A tenth of the published cells are some 300 such values.
_BY_CHANCE = 1e-4


@dataclass(frozen=True)
class Checked:
    """A value of a cell, measured twice."""

    target: Target
    key: Row
    value: str
    first: float
    second: float
    allowed: float

    @property
    def same(self) -> bool:
        return abs(self.first - self.second) <= self.allowed

    def to_dict(self) -> dict[str, Any]:
        return {
            "paper": self.target.paper,
            "target": self.target.name,
            "key": dict(self.key),
            "value": self.value,
            "first": self.first,
            "second": self.second,
            "allowed": self.allowed,
            "same": self.same,
        }


def check(
    targets: Sequence[Target],
    context: Context,
    out: Path,
    share: float,
    watch: Callable[[Target, Cell], None] = lambda target, cell: None,
) -> Iterator[Checked]:
    """Measure this share of the stored cells again, at least one, and compare the values that must repeat."""
    every = [
        (target, cell, stored)
        for target in targets
        for stored in [cells_of(target, context, out)]
        for cell in target.planned(context)
        if stored.get(cell) is not None
    ]
    count = min(len(every), max(1, math.ceil(share * len(every))))
    chosen: list[int] = np.random.default_rng().choice(len(every), count, replace=False).tolist()
    for target, cell, stored in [every[place] for place in chosen]:
        watch(target, cell)
        before, after = stored.get(cell) or {}, cell.measure()
        alike = [each for each in target.planned(context) if _words(each.key) == _words(cell.key)]
        for name, near in target.repeats.items():
            if before.get(name) is not None and after.get(name) is not None:
                first, second = _number(before[name]), _number(after[name])
                allowed = near.of(first) + _difference(alike, stored, name)
                yield Checked(target, cell.key, name, first, second, allowed)


def _difference(cells: Sequence[Cell], stored: Cells, value: str) -> float:
    """How far two drawings of one of these cells may be apart.

    Three drawings say little about their deviation. Cells that differ in numbers only (budgets, trees) say more
    together: the largest of their deviations counts, with the degrees of freedom of all, in Student's distribution.
    """
    drawn: dict[str, list[float]] = {}
    for cell in cells:
        row = stored.get(cell)
        if row is not None and row.get(value) is not None:
            drawn.setdefault(repr({**cell.key, "seed": 0}), []).append(_number(row[value]))
    repeated = [values for values in drawn.values() if len(values) > 1]
    largest = max((stdev(values) for values in repeated), default=0.0)
    if not largest:
        return 0.0
    functions: Any = import_module("scipy.special")
    freedom = sum(len(values) - 1 for values in repeated)
    return math.sqrt(2.0) * float(functions.stdtrit(freedom, 1.0 - _BY_CHANCE / 2.0)) * largest


def _number(value: Any) -> float:
    """A curve is compared by its mean."""
    return float(np.asarray(value, dtype=np.float64).mean())


def _words(key: Row) -> dict[str, str]:
    return {name: value for name, value in key.items() if isinstance(value, str)}
