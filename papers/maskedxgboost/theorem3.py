"""Figure 10: delta_PP of Theorem 3 against the ratio of the two noises, as printed and as it is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from papers.maskedxgboost.setting import PAPER
from papers.rows import Row, Rows, by
from papers.rules import Rule
from papers.target import Cell, Claim, Context, Near, Target
from veilboost.protocols.masked.theorems import mask_delta, printed_delta
from veilboost.report.plots import line_chart, sheet

PUBLISHED: tuple[Row, ...] = (
    {"statement": "with eps_PP fixed and W = 1, delta_PP increases with sigma1^2 / sigma2^2"},
)
EPSILONS = (1.0, 2.0, 4.0, 6.0)
RATIOS = tuple(float(ratio) for ratio in np.round(np.geomspace(0.01, 100.0, 17), 4))
ACTIVE = 1_000  # entries of the active set; beyond some dozens the number no longer matters
TELLING = 1e-9  # deltas below this protect everybody, whatever the bound
SMALLEST = 4  # the set that reveals most


def _deltas(epsilon: float, ratio: float) -> dict[str, Any]:
    """Exact integrals where the paper draws at random."""
    return {
        "printed": printed_delta(epsilon, ratio, ACTIVE, 1),
        "true": mask_delta(epsilon, ratio, ACTIVE, 1),
        "true_small_set": mask_delta(epsilon, ratio, SMALLEST, 1),
    }


def cells(context: Context, sets: Sequence[str]) -> list[Cell]:
    return [
        Cell(
            {"eps_pp": epsilon, "ratio": ratio},
            partial(_deltas, epsilon, ratio),
            partial(_deltas, epsilon, ratio),
            0.01,
        )
        for epsilon in EPSILONS
        for ratio in RATIOS
    ]


def _steps(rows: Rows) -> list[float]:
    """How much each delta rises from one ratio to the next."""
    found: list[float] = []
    for _, own in by(rows, "eps_pp"):
        for earlier, later in pairwise(own):
            found += [later[name] - earlier[name] for name in ("printed", "true")]
    return found


def _amounts(rows: Rows) -> list[float]:
    telling = [row for row in rows if row["true"] > TELLING]
    return [min(_steps(rows)), *(1.0 - row["true"] / max(row["printed"], 1e-300) for row in telling)]


RULE = Rule(
    "Cases: both deltas rise with the ratio everywhere; at each point whose true delta is above 1e-9, it is not "
    "above the printed bound (the amount is 1 less their ratio).",
    1e-6,
    _amounts,
)


def claim(rows: Rows) -> Claim:
    rising = min(_steps(rows)) >= -1e-12
    telling = [row for row in rows if row["true"] > TELLING]
    worst = max(telling, key=lambda row: row["true"] / max(row["printed"], 1e-300))
    above = sum(row["true"] > row["printed"] for row in telling)
    return Claim(
        "for a fixed eps_PP the delta of a mask rises with sigma1^2 / sigma2^2",
        f"it {'rises' if rising else 'does not always rise'}; the true delta is above the printed bound at {above} of "
        f"{len(telling)} points, most at eps_PP = {worst['eps_pp']:g}, ratio {worst['ratio']:g}: {worst['true']:.2g} "
        f"for {worst['printed']:.2g}",
        'The proof bounds one direction, a bit that leaves the active set, and says "similarly" of the other, for '
        "which the determinants' ratio is turned round and the bound does not hold. Small active sets reveal more than "
        "large ones, and the theorem takes all rows for their number.",
    )


def plot(rows: Rows, label: str) -> str:
    names = {"printed": "as printed", "true": "true", "true_small_set": f"true, {SMALLEST} rows left"}
    charts: list[str] = []
    for epsilon, own in by(rows, "eps_pp"):
        lines = {words: [(row["ratio"], row[name]) for row in own] for name, words in names.items()}
        axes = (f"eps_PP = {epsilon:g}", "sigma1² / sigma2²", "delta_PP")
        charts.append(line_chart(*axes, lines, log_x=True, log_y=True))
    return sheet(f"{label}: what a mask reveals", charts)


REPEATS = {"printed": Near(1e-9, 1e-3), "true": Near(1e-9, 1e-3)}
TARGET = Target(
    PAPER, "figure-10", "delta of a mask by Theorem 3", (), PUBLISHED, cells, list, RULE, claim, plot, REPEATS
)
