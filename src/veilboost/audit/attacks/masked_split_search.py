"""`masked`: the search of its own paper for the splitting vector (MaskedXGBoost, section 6.6).

Active noise sums to 0, so among all sets of as many rows as the candidate sends left the true one has a small sum. The
paper tries all sets and lets the attacker know their size. All sets are tried where they are few, otherwise rows change
places while that makes the sum smaller; there are then very many sets with a sum near 0, and the first one is no better
than any.
"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np

from veilboost.audit.attacks.masked_candidates import RootMasks, balanced_bits, true_vectors
from veilboost.audit.result import Outcome, wilson
from veilboost.audit.view import Truth, View
from veilboost.types import BoolArray, Float64Array, PartyName

NAME = "search for the smallest sum"
PROTOCOLS = frozenset({"masked"})
ADVERSARY, VICTIM, DATA = "active", "passive", "features"

_ALL_SETS = 200_000
_CANDIDATES = 12
_EXCHANGES = 600
_OUTSIDE = 500


def run(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    roots = RootMasks.of(view, victim, trees=1)
    if roots is None:
        return None
    true = true_vectors(view, truth, victim, roots.rounds[0])
    if true is None or len(true) != len(roots.masks):
        return None
    some = rng.permutation(len(true))[:_CANDIDATES]
    # The paper lets the attacker know how many rows go left; nothing else is taken from the truth before scoring.
    guess = np.stack([smallest_sum(roots.masks[k], int(true[k].sum()), rng) for k in some])
    value = float(balanced_bits(true[some], guess).mean())
    return Outcome(
        "balanced bit accuracy",
        value,
        0.5,
        *wilson(value, true.shape[1]),  # sides of nested cuts depend on each other
        f"the set of rows whose noise sums to least gives {value:.3f} of who is left of a cut",
    )


def smallest_sum(masks: Float64Array, size: int, rng: np.random.Generator) -> BoolArray:
    """The set of `size` rows with the smallest sum of noise (over all noise vectors, in squares)."""
    rows = masks.shape[1]
    best = np.zeros(rows, dtype=np.bool_)
    if math.comb(rows, size) <= _ALL_SETS:
        sets = np.array(list(combinations(range(rows), size)))
        sums = masks[:, sets].sum(axis=2)
        best[sets[int((sums**2).sum(axis=0).argmin())]] = True
        return best
    best[rng.permutation(rows)[:size]] = True
    total = masks[:, best].sum(axis=1)
    for _ in range(_EXCHANGES):
        # The best of some rows to come in for one row that leaves.
        leaving = rng.choice(np.flatnonzero(best))
        outside = rng.choice(np.flatnonzero(~best), min(_OUTSIDE, rows - size), replace=False)
        sums = total[:, None] - masks[:, leaving, None] + masks[:, outside]
        squares = (sums**2).sum(axis=0)
        entering = int(squares.argmin())
        if squares[entering] < float(total @ total):
            best[leaving], best[outside[entering]] = False, True
            total = sums[:, entering]
    return best
