"""Figures 5 and 11: AUC after each tree, for several budgets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from papers.context import PAPER_NAMES, Context
from papers.maskedxgboost.curves import MASKED, cells_of, with_budget, without_budget
from papers.maskedxgboost.setting import APPENDIX, SETS, figure
from papers.summary import over_seeds, picked, points
from papers.target import Cell, Claim, Row
from veilboost.report.plots import line_chart, sheet

PUBLISHED: tuple[Row, ...] = (
    {"statement": "MaskedXGBoost's training is stable and its test AUC rises gradually, higher with more epsilon"},
    {"statement": "the AUC of XGBoost-LDP and FedXGBoost-LDP does not rise with more trees, even at eps_AP = 8"},
)
READING = "composed"
CLEAR = "XGBoost-NonPrivate"
_RISE = 0.005  # of AUC between the first trees and the last: less is no rise


def cells(context: Context, sets: Sequence[str]) -> list[Cell]:
    budgets = (0.5, 8.0) if context.quick else (0.5, 2.0, 8.0)
    curves = without_budget() + [curve for epsilon in budgets for curve in with_budget(READING, epsilon)]
    return cells_of(context, sets, curves, lambda areas: [round(area, 5) for area in areas])


def table(measured: Sequence[Row]) -> list[Row]:
    """A line for each curve: AUC after each tree, and how it rose and shook."""
    lines = over_seeds(measured, ("data", "method", "reading", "eps_ap", "eps_pp"), ("auc",))
    for line in lines:
        areas = np.array(line["auc"])
        few = max(len(areas) // 6, 1)
        line["first"], line["last"] = float(areas[:few].mean()), float(areas[-few:].mean())
        line["largest_drop"] = float((np.maximum.accumulate(areas) - areas).max())
    return list(lines)


def claim(rows: Sequence[Row]) -> Claim:
    largest = max((row["eps_ap"] for row in rows), default=0.0)
    told: list[str] = []
    rising: list[bool] = []
    for row in (row for row in rows if row["eps_ap"] == largest):
        rise = row["last"] - row["first"]
        rising.append((rise > _RISE) == (row["method"] == MASKED))
        told.append(f"{PAPER_NAMES[row['data']]} {row['method']} {row['first']:.3f} to {row['last']:.3f}")
    return Claim(
        "MaskedXGBoost rises steadily with the trees, and more with more epsilon; XGBoost-LDP and FedXGBoost-LDP shake "
        "and do not rise, even at eps_AP = 8",
        f"mean AUC of the first and the last trees at eps_AP = {largest:g}: {'; '.join(told)}",
        "yes" if rising and all(rising) else "partly" if any(rising) else "no",
        "Leaf weights are computed from true gradients, as published, so that splits by noise alone learn a little "
        "with every tree too; and the noise that Theorem 2 asks for leaves MaskedXGBoost little more than that.",
    )


def plot(rows: Sequence[Row], number: str) -> str:
    charts: list[str] = []
    for data in dict.fromkeys(row["data"] for row in rows):
        own = picked(rows, data=data)
        for epsilon in sorted({row["eps_ap"] for row in own} - {0.0}):
            lines = {row["method"]: points(row["auc"]) for row in own if row["eps_ap"] in (0.0, epsilon)}
            title = f"{PAPER_NAMES[data]}, epsilon {epsilon:g}"
            charts.append(line_chart(title, "trees", "AUC", lines, dashed=(CLEAR,)))
    return sheet(f"MaskedXGBoost, Figure {number}: training", charts)


_figure = partial(figure, "AUC after each tree for several budgets", PUBLISHED, cells, table, claim, plot)
FIGURE_5, FIGURE_11 = _figure("5", SETS[:1]), _figure("11", SETS[1:], APPENDIX)
