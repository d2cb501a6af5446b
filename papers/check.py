"""A second measurement of some of the cells that were measured before, chosen by chance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import pstdev
from typing import Any

import numpy as np

from papers.rows import Row
from papers.runner import cells_of
from papers.target import Cell, Context, Near, Target

_DEVIATIONS = 4.0  # of the stored drawings: one noisy value in some ten thousand is farther off by chance


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
        drawings = [stored.get(each) or {} for each in target.planned(context) if _alike(each.key, cell.key)]
        for name, near in target.repeats.items():
            if before.get(name) is not None and after.get(name) is not None:
                first, second = _number(before[name]), _number(after[name])
                spread = [_number(row[name]) for row in drawings if row.get(name) is not None]
                yield Checked(target, cell.key, name, first, second, _allowed(near, first, spread))


def _allowed(near: Near, value: float, drawings: Sequence[float]) -> float:
    return near.of(value) + (_DEVIATIONS * pstdev(drawings) if len(drawings) > 1 else 0.0)


def _number(value: Any) -> float:
    """A curve is compared by its mean."""
    return float(np.asarray(value, dtype=np.float64).mean())


def _alike(one: Row, other: Row) -> bool:
    return {**one, "seed": 0} == {**other, "seed": 0}
