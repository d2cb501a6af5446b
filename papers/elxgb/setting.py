"""What ELXGB's section 8.1 and Table 2 say about their experiments, and the lines that figures 4 to 7 share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from papers.rows import Rows, by, picked, point
from papers.target import Context
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.report.plots import line_chart, sheet

PAPER = "elxgb"
NAMES = {"default_credit": "Credit card", "bank": "Bank marketing"}
SETS = tuple(NAMES)
PARTIES = 4
TREES, DEPTH, EPSILON, DELTA = 5, 3, 10.0, 1e-4
SWEEP = (2, 3, 4, 5, 6)  # of T and of D
EPSILONS = (2.0, 4.0, 6.0, 8.0, 10.0)
QUICK_ROWS = 4_000
SHORT_KEY = {"key_bits": 512, "allow_insecure_key": True}  # the paper's, which can be factored


@dataclass(frozen=True)
class Point:
    """One place on an axis of a figure: `along` T, D or epsilon, all else at the defaults of Table 2."""

    along: str
    value: float

    @property
    def trees(self) -> int:
        return int(self.value) if self.along == "T" else TREES

    @property
    def depth(self) -> int:
        return int(self.value) if self.along == "D" else DEPTH

    @property
    def epsilon(self) -> float:
        return self.value if self.along == "epsilon" else EPSILON

    @property
    def key(self) -> dict[str, Any]:
        return {"along": self.along, "value": self.value}


DEFAULT = Point("T", TREES)


def structures(context: Context) -> list[Point]:
    """The points along T and along D."""
    defaults = {"T": TREES, "D": DEPTH}
    return [
        Point(along, value)
        for along, default in defaults.items()
        for value in SWEEP
        if not context.quick or value in (SWEEP[0], default, SWEEP[-1])
    ]


def table_of(context: Context, name: str) -> PartyTable:
    return context.table(name, QUICK_ROWS if context.quick else 0)


# Table 2. The paper has one-number comparisons, so categories are ordinal, and no base score of its own.
_JOB = TrainingConfig(
    objective="binary", max_bin=32, learning_rate=0.3, reg_lambda=1.0, categories="ordinal", base_score=0.5
)


def job(trees: int = TREES, depth: int = DEPTH, **options: Any) -> TrainingConfig:
    return replace(_JOB, n_estimators=trees, max_depth=depth, options=options)


def panels(title: str, rows: Rows, y: str, label: str, axes: Sequence[str], *, log: bool = False) -> str:
    """A chart for each data set and axis, a line for each method: the paper's arrangement."""
    charts: list[str] = []
    for data, of_data in by(rows, "data"):
        for along in axes:
            own = picked(of_data, along=along)
            lines = {name: [point(row, "value", y) for row in of] for name, of in by(own, "method")}
            charts.append(line_chart(NAMES[data], along, label, lines, log_y=log))
    return sheet(title, charts)
