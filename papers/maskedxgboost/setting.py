"""What MaskedXGBoost's section 6.1 and 6.2 say about their experiments, and what they leave open.

Not stated there, and chosen here: bins (32, the candidates of appendix F), learning rate (0.1), which columns the
active party holds (the first half), and the rows for testing (a fifth).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from papers.context import Context
from papers.target import Cell, Claim, Row, Target
from veilboost.config import TrainingConfig

PAPER = "maskedxgboost"
SETS = ("give_credit", "adult", "higgs46k", "bank", "default_credit", "nomao")
FIRST_FOUR = SETS[:4]  # figures 4, 7 and 8
THE_OTHERS = SETS[4:]  # figures 12, 13 and 14, in appendix H
EPSILONS = (0.5, 1.0, 2.0, 4.0, 6.0, 8.0)
TREES, DEPTH, BINS, RATE = 60, 6, 32, 0.1
OWN_COLUMNS = 0.5
QUICK_ROWS = 8_000
REPETITIONS = 10
APPENDIX = "appendix-h"

CONFIG = TrainingConfig(
    objective="binary",
    n_estimators=TREES,
    max_depth=DEPTH,
    max_bin=BINS,
    learning_rate=RATE,
    categories="ordinal",
)


def seeds(context: Context) -> range:
    return range(1 if context.quick else REPETITIONS)


def rows_of(context: Context) -> int:
    """How many rows of a data set take part; 0: all."""
    return QUICK_ROWS if context.quick else 0


def epsilons(context: Context) -> tuple[float, ...]:
    return (0.5, 2.0, 8.0) if context.quick else EPSILONS


def figure(
    title: str,
    published: tuple[Row, ...],
    cells: Callable[[Context, Sequence[str]], Sequence[Cell]],
    table: Callable[[Sequence[Row]], Sequence[Row]],
    claim: Callable[[Sequence[Row]], Claim],
    plot: Callable[[Sequence[Row], str], str],
    number: str,
    sets: tuple[str, ...],
    group: str = "",
) -> Target:
    """A figure that the paper has twice: for some data sets in the text, for the others in an appendix."""
    return Target(
        PAPER,
        f"figure-{number}",
        title,
        sets,
        published,
        lambda context: cells(context, sets),
        table,
        claim,
        lambda rows: plot(rows, number),
        group,
    )
