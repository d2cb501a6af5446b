"""Labels from the gradients of a round, noisy or recovered."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from veilboost.audit.attack import Outcome, balanced_accuracy, declare
from veilboost.audit.replay import ReplayedRound
from veilboost.audit.view import Truth, View
from veilboost.protocols.elxgb.messages import NoisyRound
from veilboost.protocols.ldp.messages import LdpRequest, LdpRound
from veilboost.types import Float64Array, Int32Array, PartyName

NOISY = (LdpRound, LdpRequest, NoisyRound)


def may_have_classes(view: View) -> bool:
    """Whether the labels may be classes, so that the signs of gradients reveal them."""
    return view.config.objective in ("auto", "binary", "multiclass")


def may_have_two_classes(view: View, played: ReplayedRound) -> bool:
    return may_have_classes(view) and played.trees == 1


def labels_of(gradients: Float64Array) -> Float64Array:
    """Labels from gradients (trees of the round, rows): p - y is below 0 only where y is 1."""
    if len(gradients) == 1:
        return (gradients[0] < 0).astype(np.float64)
    return gradients.argmin(axis=0).astype(np.float64)


def scored(truth: Truth, victim: PartyName, rows: Int32Array, guess: Float64Array, sentence: str) -> Outcome | None:
    """Score guessed labels of these rows; None if the labels are not classes after all."""
    labels = truth.labels(victim)[rows]
    if len(np.unique(labels)) > max(2, len(np.unique(guess))):
        return None
    return balanced_accuracy(labels, guess, sentence)


@declare("sum of noisy gradients", "passive", "active", "labels", NOISY)
def noisy_gradients(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Labels from the sum of noisy gradients over all levels and trees: noise averages out, labels do not."""
    releases = list(_released(view, victim))
    sentence = f"{len(releases)} noisy gradients of each row, summed, give {{value:.3f}} balanced accuracy of labels"
    return _by_sign(truth, victim, np.sum(releases, axis=0), sentence) if releases else None


@declare("sign of one tree's noisy gradient", "passive", "active", "labels", NOISY)
def gradient_signs(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Labels from the sign of one tree's noisy gradient (the guess probability of ELXGB, Table 5)."""
    first = next(_released(view, victim), None)
    sentence = "one noisy gradient gives {value:.3f} balanced accuracy"
    return None if first is None else _by_sign(truth, victim, first, sentence)


def _released(view: View, peer: PartyName) -> Iterator[Float64Array]:
    """Every release of one tree's gradients: one number per row, 0 if the row was not released."""
    for seen in view.messages:
        message = seen.message
        if seen.direction != "received" or seen.peer != peer or not isinstance(message, NOISY):
            continue
        if message.gradients.size and message.gradients.shape[0] == 1:
            yield message.gradients[0, :, 0].astype(np.float64)


def _by_sign(truth: Truth, victim: PartyName, gradients: Float64Array, sentence: str) -> Outcome | None:
    labels = truth.labels(victim)
    if not np.isin(labels, (0.0, 1.0)).all():
        return None
    return balanced_accuracy(labels, labels_of(gradients[None]), sentence)
