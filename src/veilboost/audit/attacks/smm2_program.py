"""`smm2`: one masked answer about the first root, and linear programming.

In the first tree hessians are all p(1 - p), so the node's exact sum of them tells p, and gradients are p or p - 1: a
two-valued vector behind a projector that the passive party made itself.
"""

from __future__ import annotations

import numpy as np

from veilboost.audit.attacks.projector_program import two_valued
from veilboost.audit.attacks.recovered import scored, tells_two_classes
from veilboost.audit.attacks.smm2_answers import MaskedBlock, masked_blocks
from veilboost.audit.replay import rounds
from veilboost.audit.result import Outcome
from veilboost.audit.view import Truth, View
from veilboost.protocols.smm2.messages import Smm2Round
from veilboost.protocols.smm2.options import Smm2Options
from veilboost.types import BoolArray, PartyName

NAME = "one masked answer by linear programming"
PROTOCOLS = frozenset({"smm2"})
ADVERSARY, VICTIM, DATA = "passive", "active", "labels"


def run(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    played = rounds(view, victim)
    if not played or not tells_two_classes(view, played[0]) or not played[0].levels:
        return None
    opening = played[0].opening
    blocks = masked_blocks(played[0].levels[0], Smm2Options.from_dict(view.config.options))
    if not blocks or not isinstance(opening, Smm2Round):
        return None
    guess = first_labels(blocks[0], opening, rng)
    return scored(
        truth,
        victim,
        blocks[0].rows,
        guess.astype(np.float64),
        f"one answer under {blocks[0].hidden.shape[1]} kernel vectors gives {{value:.3f}} of the labels",
    )


def first_labels(block: MaskedBlock, opening: Smm2Round, rng: np.random.Generator) -> BoolArray:
    """Labels of a block of the first tree: for both p that fit the sum of hessians, and the one that fits all else."""
    gradients = block.seen[:, :1] / 2.0**opening.g_exponent
    spread = float(block.totals[1]) / 2.0**opening.h_exponent / len(block.rows)  # p(1 - p)
    step = float(np.sqrt(max(0.25 - spread, 0.0)))
    mean = float(block.totals[0]) / 2.0**opening.g_exponent / len(block.rows)
    guesses: list[tuple[bool, BoolArray]] = []
    for near in (0.5 - step, 0.5 + step):
        p = round((near - mean) * len(block.rows)) / len(block.rows) + mean  # p - mean is the share of ones
        high, fits = two_valued(gradients, block.hidden, p - 1.0, p, rng)
        guesses.append((bool(fits[0]), ~high[:, 0]))
    return max(guesses, key=lambda each: each[0])[1]
