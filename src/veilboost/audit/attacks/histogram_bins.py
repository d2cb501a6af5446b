"""Which rows lie in which bin, from exact sums per bin over many nodes and trees.

Every sum is an equation about the rows of a bin, with coefficients that the active party knows: its own gradients. The
least solution near the prior rounds to most bins; where rows are few, a linear program with every row in [0, 1] gives
all of them (a vector of zeros and ones is determined by half as many equations as rows, Mangasarian and Recht).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from veilboost.audit.result import Outcome, share_right
from veilboost.audit.sums import Histograms, Summed, equations, histograms, least_solution
from veilboost.audit.view import Truth, View
from veilboost.types import BoolArray, Float64Array, PartyName

NAME = "bins from sums"
PROTOCOLS = frozenset({"plain", "paillier", "lattice", "sealed"})
ADVERSARY, VICTIM, DATA = "active", "passive", "features"
MOST_EQUATIONS, MOST_CELLS, PROGRAM_ROWS, COLUMNS = 1500, 30_000_000, 1200, 2


def run(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    seen = histograms(view, truth, victim, rng)
    if seen is None or not seen.nodes:
        return None
    nodes = _chosen(seen, view.rows)
    coefficients, known = equations(nodes, view.rows)
    true_bins = truth.block(victim)
    if true_bins.shared is None or not len(coefficients):
        return None
    hits: list[BoolArray] = []
    priors: list[float] = []
    fit = np.unique(np.concatenate([node.rows for node in nodes]))
    for column in rng.permutation(seen.layout.features)[:COLUMNS].tolist():
        low, high = int(seen.layout.offsets[column]), int(seen.layout.offsets[column + 1])
        guess = _solve(coefficients[:, fit], known[:, low:high]).argmax(axis=1)
        # Columns of the same shape stand in an order that the active party is not told: it finds the bins of one of
        # them, and is scored by the one it comes nearest to.
        alike = np.flatnonzero(seen.layout.widths == seen.layout.widths[column])
        own = true_bins.shared.bins[0][fit][:, alike].astype(np.int64)
        hits.append(own[:, int((own == guess[:, None]).mean(axis=0).argmax())] == guess)
        priors.append(max(float(np.bincount(each).max() / len(each)) for each in own.T))
    rate, prior = float(np.mean(hits)), float(np.mean(priors))
    each = len(fit) / max(len(coefficients), 1)
    sentence = (
        f"{rate:.3f} of rows are put into their true bin from {len(coefficients)} equations of {len(fit)} rows "
        f"({each:.2f} rows to an equation); always naming the fullest bin gives {prior:.3f}"
    )
    return share_right("bins right", np.concatenate(hits), prior, sentence, clusters=len(fit))


def _chosen(seen: Histograms, rows: int) -> list[Summed]:
    """The smallest nodes tell most about each of their rows; no more of them than fit into memory."""
    most = max(1, min(MOST_EQUATIONS, MOST_CELLS // max(rows, 1)) // 2)
    return sorted(seen.nodes, key=lambda node: len(node.rows))[:most]


def _solve(a: Float64Array, known: Float64Array) -> Float64Array:
    """How much each row (rows, bins) belongs to each bin of one column."""
    guess = least_solution(a, known, np.full(known.shape[1], 1.0 / known.shape[1]))
    if a.shape[1] > PROGRAM_ROWS:
        return guess
    from scipy.optimize import linprog  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

    for each in range(known.shape[1]):
        # Of all solutions in [0, 1] the one furthest towards the guess.
        solved: Any = linprog(0.5 - guess[:, each], A_eq=a, b_eq=known[:, each], bounds=(0.0, 1.0), method="highs")
        if solved.status == 0:
            guess[:, each] = solved.x
    return guess
