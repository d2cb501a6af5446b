"""`smm2`: the answers about one tree, taken together.

Every block of every level tells n - r' numbers about the same gradients, under another mask. Once they add up to as
many as there are rows, one system of linear equations gives every gradient and hessian: in any tree, for any loss.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veilboost.audit.attacks.equations import conjugate_gradients
from veilboost.audit.attacks.recovered import labels_of, scored, tells_classes
from veilboost.audit.attacks.smm2_answers import MaskedBlock, masked_blocks
from veilboost.audit.replay import rounds
from veilboost.audit.result import Outcome
from veilboost.audit.view import Truth, View
from veilboost.protocols.smm2.options import Smm2Options
from veilboost.types import Float64Array, PartyName

NAME = "stacking the answers of a tree"
PROTOCOLS = frozenset({"smm2"})
ADVERSARY, VICTIM, DATA = "passive", "active", "labels"

_STEPS = 2_000
_EXACT = 1e-11


def run(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    played = rounds(view, victim)
    if not tells_classes(view) or not played or not played[-1].levels:
        return None
    last = played[-1]
    options = Smm2Options.from_dict(view.config.options)
    blocks = [block for level in last.levels for block in masked_blocks(level, options)]
    if not blocks:
        return None
    found = np.stack(
        [stacked([each for each in blocks if each.tree == tree], view.rows, 0) for tree in range(last.trees)]
    )
    return scored(
        truth,
        victim,
        last.fit,
        labels_of(found[:, last.fit]),
        f"{len(blocks)} answers about the last round give {{value:.3f}} of the labels",
    )


def stacked(blocks: Sequence[MaskedBlock], rows: int, kind: int) -> Float64Array:
    """Least squares for the gradients (kind 0) or hessians (kind 1) of all rows, 0 for rows of no block.

    The sum over blocks of |P (x - seen)|^2 is least where (sum of P) x = sum of seen, each on its own rows.
    """

    def sums(x: Float64Array) -> Float64Array:
        total = np.zeros(rows)
        for block in blocks:
            own = x[block.rows]
            total[block.rows] += own - block.hidden @ (block.hidden.T @ own)
        return total

    known = np.zeros(rows)
    for block in blocks:
        known[block.rows] += block.seen[:, kind]
    return conjugate_gradients(sums, known, _EXACT, _STEPS)
