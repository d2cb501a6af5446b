"""Table 5: how often a passive party guesses a label right from one tree's noisy gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from papers.elxgb.setting import DELTA, EPSILONS, NAMES, PAPER, PARTIES, SETS, TREES, job, table_of
from papers.fingerprint import small_run
from papers.rows import Line, Row, Rows, by, picked, point
from papers.rules import Rule
from papers.tables import among, hold_out, labels
from papers.target import EXACT, Cell, Claim, Context, Near, Target
from veilboost.boost.metrics import auc
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.party.simulation import simulate_training
from veilboost.protocols.elxgb.messages import NoisyRound
from veilboost.report.plots import line_chart, sheet
from veilboost.types import BoolArray, Float64Array

PAPER_GUESSES = {
    2.0: (0.6001, 0.5383, 0.5358, 0.5227, 0.5288),
    4.0: (0.6823, 0.5718, 0.5598, 0.5544, 0.5584),
    6.0: (0.7560, 0.5988, 0.5916, 0.5904, 0.5773),
    8.0: (0.8229, 0.6384, 0.6165, 0.6107, 0.6071),
    10.0: (0.8773, 0.6652, 0.6392, 0.6287, 0.6312),
}
PUBLISHED: tuple[Row, ...] = tuple(
    {"epsilon": epsilon, **{f"tree_{at}": rate for at, rate in enumerate(rates, start=1)}}
    for epsilon, rates in PAPER_GUESSES.items()
)
_NEAR = 0.03
RATES = (1.0, 0.3)  # of Eq. 4, which has no learning rate, and of Table 2


def _sigma(epsilon: float) -> float:
    return math.sqrt(2 * math.log(1.25 / DELTA)) / epsilon  # section 3.3, over a range of 1


def _job(epsilon: float, rate: float) -> TrainingConfig:
    return replace(job(backend="lattice", noise_multiplier=_sigma(epsilon)), learning_rate=rate)


def guesses(table: PartyTable, epsilon: float, rate: float, seed: int) -> dict[str, Any]:
    """Shares of rows whose noisy gradient has the sign of their label: tree by tree, and all later trees added up, of
    which also the AUC, because that of the larger class would be a good guess too.

    The paper forbids noise on tree 1; its row is made here by putting the same noise on the first gradients.
    """
    train = table.take(hold_out(table.rows, seed=seed)[0])
    positive: BoolArray = labels(train) == 1
    share = float(np.mean(positive))
    sigma = _sigma(epsilon)
    config = replace(_job(epsilon, rate), random_state=seed)
    run = simulate_training(among(train, PARTIES), "party0", "elxgb", config, record="payload")
    rounds = [message for _, _, message in run.transcripts["party1"].messages if isinstance(message, NoisyRound)]
    noise = np.random.default_rng(seed).normal(scale=sigma, size=len(positive))
    trees = [np.where(positive, -0.5, 0.5) + noise]
    trees += [message.gradients[0, :, 0].astype(np.float64) for message in rounds]
    together: Float64Array = np.sum(trees[1:], axis=0)
    return {
        "trees": [1.0 - float(np.mean((gradient < 0) ^ positive)) for gradient in trees],
        "together": 1.0 - float(np.mean((together < 0) ^ positive)),
        "together_auc": float(auc(positive.astype(np.float64), -together)),
        "majority": max(share, 1 - share),
    }


def _measured(context: Context, name: str, epsilon: float, rate: float, seed: int) -> Row:
    return guesses(table_of(context, name), epsilon, rate, seed)


def cells(context: Context, sets: Sequence[str]) -> list[Cell]:
    return [
        Cell(
            {"data": name, "rate": rate, "epsilon": epsilon, "seed": seed},
            partial(_measured, context, name, epsilon, rate, seed),
            small_run("elxgb", _job(epsilon, rate)),
            1.0,
        )
        for name in sets
        for rate in RATES
        for epsilon in EPSILONS
        for seed in context.seeds
    ]


def table(lines: list[Line]) -> Rows:
    found: list[Row] = []
    for line in lines:
        rates = {f"tree_{at}": rate for at, rate in enumerate(line["trees"], start=1)}
        rates |= {f"tree_{at}_sd": spread for at, spread in enumerate(line["trees_sd"], start=1)}
        printed = {f"paper_tree_{at}": rate for at, rate in enumerate(PAPER_GUESSES[line["epsilon"]], start=1)}
        others = {name: value for name, value in line.items() if name not in ("trees", "trees_sd", "majority_sd")}
        found.append({**others, **rates, **printed})
    return found


def _later(rows: Rows) -> list[float]:
    """How far the later trees are from the paper's."""
    return [row[f"tree_{at}"] - row[f"paper_tree_{at}"] for row in rows for at in range(2, TREES + 1)]


def _amounts(rows: Rows) -> list[float]:
    own = picked(rows, rate=RATES[0])
    first = [row["tree_1"] - row["paper_tree_1"] for row in own]
    return [_NEAR - abs(off) for off in (*first, *_later(own))]


RULE = Rule(
    "With learning rate 1, because Eq. 4 has none. Cases: each data set, epsilon and tree; the share of labels guessed "
    f"right is within {_NEAR:g} of the printed one.",
    0.005,
    _amounts,
)


def _extremes(rows: Rows, name: str) -> str:
    values = [row[name] for row in rows]
    return f"{min(values):.3f} to {max(values):.3f}"


def claim(rows: Rows) -> Claim:
    one, slow = (picked(rows, rate=rate) for rate in RATES)
    first = [abs(row["tree_1"] - row["paper_tree_1"]) for row in one]
    weakest = max(one, key=lambda row: (row["epsilon"], row["together"]))
    means = "; ".join(
        f"{NAMES[data]} {np.mean(_later(picked(one, data=data))):+.3f} at rate 1 and "
        f"{np.mean(_later(picked(slow, data=data))):+.3f} at rate {RATES[1]:g}"
        for data, _ in by(rows, "data")
    )
    return Claim(
        "with noise a label of the first tree is guessed right in 60 % (epsilon 2) to 88 % (epsilon 10) of cases, of "
        "later trees in 52 % to 67 %: so the first tree is encrypted, and noise does for the others",
        f"first tree within {max(first):.3f} of the paper's; later trees, mean difference from the paper's: {means}; "
        f"at epsilon 10 on {NAMES[weakest['data']]} tree 2 gives {weakest['tree_2']:.3f} (published "
        f"{weakest['paper_tree_2']:.3f}), and all later trees added up {weakest['together']:.3f} (AUC "
        f"{weakest['together_auc']:.3f}; the larger class has {weakest['majority']:.3f} of the labels)",
        "Trees add up, which the table leaves out: their noise is independent and their signs agree, so that all later "
        f"trees together rank labels with an AUC of {_extremes(one, 'together_auc')} and guess "
        f"{_extremes(one, 'together')} of them right; at rate {RATES[1]:g}, that of the paper's other figures, "
        f"{_extremes(slow, 'together_auc')} and {_extremes(slow, 'together')}. Tree by tree, the first row follows "
        "from the noise alone, and the later ones depend on how far a tree moves the gradients: the differences are "
        f"{np.mean(np.abs(_later(one))):.3f} at rate 1 and {np.mean(np.abs(_later(slow))):.3f} at rate {RATES[1]:g} "
        "in the mean.",
    )


def plot(rows: Rows, label: str) -> str:
    charts: list[str] = []
    for data, own in by(picked(rows, rate=RATES[0]), "data"):
        lines = {
            f"tree {at}": [point(row, "epsilon", f"tree_{at}") for row in own]
            for at in range(1, TREES + 1)
            if all(f"tree_{at}" in row for row in own)
        }
        lines["later trees added up"] = [point(row, "epsilon", "together") for row in own]
        lines |= {f"tree {at}, published": [(row["epsilon"], row[f"paper_tree_{at}"]) for row in own] for at in (1, 2)}
        published = [name for name in lines if "published" in name]
        charts.append(line_chart(NAMES[data], "epsilon", "labels guessed right", lines, dashed=published))
    return sheet(f"{label}: guesses of labels", charts)


REPEATS = {"trees": Near(0.01), "together": Near(0.01), "together_auc": Near(0.01), "majority": EXACT}
TITLE = "labels guessed from noisy gradients"
TABLE_5 = Target(PAPER, "table-5", TITLE, SETS, PUBLISHED, cells, table, RULE, claim, plot, REPEATS)
