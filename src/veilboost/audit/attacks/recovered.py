"""From gradients to labels: what whoever has a round's gradients, or something close to them, reads off them."""

from __future__ import annotations

import numpy as np

from veilboost.audit.replay import ReplayedRound
from veilboost.audit.result import Outcome, balanced_accuracy
from veilboost.audit.view import Truth, View
from veilboost.types import Float64Array, Int32Array, PartyName


def tells_classes(view: View) -> bool:
    """May the job's labels be classes, so that signs of gradients tell them? A passive party need not know more."""
    return view.config.objective in ("auto", "binary", "multiclass")


def tells_two_classes(view: View, played: ReplayedRound) -> bool:
    return tells_classes(view) and played.trees == 1


def labels_of(gradients: Float64Array) -> Float64Array:
    """Labels from gradients (trees of the round, rows): p - y is below 0 only where y is 1."""
    if len(gradients) == 1:
        return (gradients[0] < 0).astype(np.float64)
    return gradients.argmin(axis=0).astype(np.float64)


def scored(truth: Truth, victim: PartyName, rows: Int32Array, guess: Float64Array, sentence: str) -> Outcome | None:
    """How many labels of these rows a guess has right; None where they are no classes after all."""
    labels = truth.labels(victim)[rows]
    if len(np.unique(labels)) > max(2, len(np.unique(guess))):
        return None
    return balanced_accuracy(labels, guess, sentence)
