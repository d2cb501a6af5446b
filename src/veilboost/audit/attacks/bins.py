"""Which rows lie in which bin, from sums per bin."""

from __future__ import annotations

import numpy as np

from veilboost.audit.attack import Outcome, declare, share_right
from veilboost.audit.solvers import between
from veilboost.audit.sums import Histograms, Summed, equations, histograms, least_solution
from veilboost.audit.view import Truth, View
from veilboost.protocols.lattice.messages import LatticeSums
from veilboost.protocols.paillier.messages import PaillierSums
from veilboost.protocols.vertical.messages import ClearSums
from veilboost.types import BoolArray, Float64Array, PartyName

MOST_EQUATIONS, MOST_CELLS, COLUMNS = 1500, 30_000_000, 2
PROGRAM_SIZE = 5_000  # rows times bins that linear programs are solved for


@declare("bins from sums", "active", "passive", "features", (ClearSums, PaillierSums, LatticeSums))
def histogram_bins(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Which rows lie in which bin, from exact sums per bin over many nodes and trees.

    Every sum is an equation about the rows of a bin, with coefficients that the active party knows: its own gradients.
    The solution nearest to the prior names many bins; where rows are few, a linear program with every row in [0, 1]
    names all of them (a vector of zeros and ones is determined by half as many equations as rows, Mangasarian and
    Recht). The sides of winning cuts, which every protocol tells, narrow the bins down before; the baseline is what
    they give alone.
    """
    seen = histograms(view, truth, victim, rng)
    block = truth.block(victim)
    if seen is None or block.shared is None:
        return None
    nodes = _chosen(seen, view.rows)
    coefficients, known = equations(nodes, view.rows)
    fit = np.unique(np.concatenate([node.rows for node in nodes]))
    hits: list[BoolArray] = []
    chances: list[float] = []
    for column in rng.permutation(seen.layout.features)[:COLUMNS].tolist():
        low, high = int(seen.layout.offsets[column]), int(seen.layout.offsets[column + 1])
        possible = seen.possible(column, view.rows)[fit]
        guess = _solve(coefficients[:, fit], known[:, low:high], possible).argmax(axis=1)
        # Columns of the same shape stand in an order that the active party is not told: it finds the bins of one of
        # them, and is scored by the one it comes nearest to.
        alike = np.flatnonzero(seen.layout.widths == seen.layout.widths[column])
        own = block.shared.bins[0][fit][:, alike].astype(np.int64)
        nearest = own[:, int((own == guess[:, None]).mean(axis=0).argmax())]
        hits.append(nearest == guess)
        by_sides = possible[np.arange(len(fit)), nearest] / possible.sum(axis=1)
        chances.append(max(float(by_sides.mean()), float(np.bincount(nearest).max() / len(fit))))
    rate, chance, each = float(np.mean(hits)), float(np.mean(chances)), len(fit) / max(len(coefficients), 1)
    sentence = (
        f"{rate:.3f} of rows are put into their true bin from {len(coefficients)} equations about {len(fit)} rows "
        f"({each:.2g} rows to an equation); the sides of winning cuts alone give {chance:.3f}"
    )
    return share_right("bins right", np.concatenate(hits), chance, sentence, clusters=len(fit))


def _chosen(seen: Histograms, rows: int) -> list[Summed]:
    """The smallest nodes tell most about each of their rows; no more of them than fit into memory."""
    most = max(1, min(MOST_EQUATIONS, MOST_CELLS // max(rows, 1)) // 2)
    return sorted(seen.nodes, key=lambda node: len(node.rows))[:most]


def _solve(a: Float64Array, known: Float64Array, possible: BoolArray) -> Float64Array:
    """How much each row (rows, bins) belongs to each bin of one column; nothing where it cannot."""
    guess = least_solution(a, known, possible / possible.sum(axis=1, keepdims=True))
    if guess.size <= PROGRAM_SIZE:
        for each in range(known.shape[1]):
            solved = between(guess[:, each] - 0.5, a, known[:, each], possible[:, each].astype(np.float64))
            if solved is not None:
                guess[:, each] = solved
    return np.where(possible, guess, -np.inf)
