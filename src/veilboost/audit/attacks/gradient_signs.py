"""How often one tree's noisy gradient gives the label away by its sign (the guess probability of ELXGB, Table 5)."""

from __future__ import annotations

import numpy as np

from veilboost.audit.attacks.noisy_gradients import noisy_gradients, sign_guess
from veilboost.audit.result import Outcome, balanced_accuracy
from veilboost.audit.view import Truth, View
from veilboost.types import PartyName

NAME = "sign of one tree's noisy gradient"
PROTOCOLS = frozenset({"ldp", "elxgb"})
ADVERSARY, VICTIM, DATA = "passive", "active", "labels"


def run(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    first = next(noisy_gradients(view, victim), None)
    labels = truth.labels(victim)
    if first is None or not np.isin(labels, (0.0, 1.0)).all():
        return None
    return balanced_accuracy(labels, sign_guess(first), "one noisy gradient gives {value:.3f} balanced accuracy")
