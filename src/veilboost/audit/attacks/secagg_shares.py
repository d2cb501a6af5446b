"""`secagg`: is a participant's count above the average? Read off its masked answer, as if there were no mask.

Under masks that do their work an answer is uniform, and this is the toss of a coin.
"""

from __future__ import annotations

import numpy as np

from veilboost.audit.attacks.secagg_counts import counted, sorted_values
from veilboost.audit.result import Outcome, balanced_accuracy
from veilboost.audit.view import Truth, View
from veilboost.types import BoolArray, PartyName

NAME = "one share under its masks"
PROTOCOLS = frozenset({"secagg"})
ADVERSARY, VICTIM, DATA = "server", "participant", "its own sums, counts and gradients"


def run(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    own = sorted_values(truth.tables[victim], view.config.categories == "ordinal")
    true: list[BoolArray] = []
    guess: list[BoolArray] = []
    for step in counted(view, victim):
        pairs = zip(own, step.values, strict=True)
        counts = np.array([np.searchsorted(column, asked, side="right") for column, asked in pairs], dtype=np.int64)
        average = step.together / step.participants
        told = counts != average
        true.append((counts > average)[told])
        guess.append((step.masked.view(np.int64) > average)[told])
    every, guesses = (np.concatenate([np.empty(0, dtype=np.bool_), *each]) for each in (true, guess))
    if len(np.unique(every)) < 2:
        return None
    return balanced_accuracy(
        every, guesses, f"whether each of {len(every)} counts is above the average: {{value:.3f}} of the answers tell"
    )
