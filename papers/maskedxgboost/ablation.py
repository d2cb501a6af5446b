"""Figures 9 and 15: what the passive party's epsilon does to MaskedXGBoost."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from papers.context import PAPER_NAMES, Context
from papers.maskedxgboost.curves import READINGS, cells_of, masked_curve
from papers.maskedxgboost.setting import APPENDIX, SETS, figure
from papers.summary import over_seeds, picked, points
from papers.target import Cell, Claim, Row
from veilboost.report.plots import line_chart, sheet

PUBLISHED: tuple[Row, ...] = ({"statement": "MaskedXGBoost's utility improves with higher eps_PP"},)
EPSILONS_PP = (1.0, 2.0, 4.0, 8.0)
EPS_AP = 4.0


def cells(context: Context, sets: Sequence[str]) -> list[Cell]:
    curves = [masked_curve(reading, EPS_AP, eps_pp) for reading in READINGS for eps_pp in EPSILONS_PP]
    return cells_of(context, sets, curves, lambda areas: [round(area, 5) for area in areas])


def table(measured: Sequence[Row]) -> list[Row]:
    lines = over_seeds(measured, ("data", "method", "reading", "eps_ap", "eps_pp"), ("auc",))
    return [{**line, "final_auc": line["auc"][-1], "final_auc_sd": line["auc_sd"][-1]} for line in lines]


def claim(rows: Sequence[Row]) -> Claim:
    told: list[str] = []
    better: list[bool] = []
    for data in dict.fromkeys(row["data"] for row in rows):
        for reading in READINGS:
            own = {row["eps_pp"]: row["final_auc"] for row in picked(rows, data=data, reading=reading)}
            better.append(own[EPSILONS_PP[-1]] > own[EPSILONS_PP[0]])
            shown = ", ".join(f"{area:.3f}" for area in own.values())
            told.append(f"{PAPER_NAMES[data]} {reading} {shown}")
    budgets = ", ".join(f"{eps:g}" for eps in EPSILONS_PP)
    return Claim(
        "the AUC improves with eps_PP, and training converges quickly at any eps_PP",
        f"AUC at eps_PP = {budgets} (eps_AP = {EPS_AP:g}): {'; '.join(told)}",
        "yes" if better and all(better) else "partly" if 2 * sum(better) >= len(better) else "no",
        "A larger eps_PP puts more of the noise into the null space, where it costs nothing. Theorem 2's scale, which "
        "grows with the rows, outweighs that: differences between neighbouring budgets are within what one draw of "
        "noise gives.",
    )


def plot(rows: Sequence[Row], number: str) -> str:
    charts: list[str] = []
    for data in dict.fromkeys(row["data"] for row in rows):
        own = picked(rows, data=data)
        final = {
            reading: [(row["eps_pp"], row["final_auc"]) for row in picked(own, reading=reading)] for reading in READINGS
        }
        trees = {f"eps_PP {row['eps_pp']:g}": points(row["auc"]) for row in picked(own, reading=READINGS[0])}
        name = PAPER_NAMES[data]
        charts.append(line_chart(f"{name}, after 60 trees", "epsilon of the passive party", "AUC", final))
        charts.append(line_chart(f"{name}, epsilon {READINGS[0]}", "trees", "AUC", trees))
    return sheet(f"MaskedXGBoost, Figure {number}: eps_PP", charts)


_figure = partial(figure, "the passive party's epsilon and AUC", PUBLISHED, cells, table, claim, plot)
FIGURE_9, FIGURE_15 = _figure("9", SETS[:1]), _figure("15", SETS[1:], APPENDIX)
