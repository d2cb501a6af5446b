"""Labels from noisy gradients added up over all levels and trees: noise averages out, labels do not."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from veilboost.audit.result import Outcome, balanced_accuracy
from veilboost.audit.view import Truth, View
from veilboost.protocols.elxgb.messages import NoisyRound
from veilboost.protocols.ldp.messages import LdpRequest, LdpRound
from veilboost.types import Float64Array, PartyName

NAME = "noisy gradients added up"
PROTOCOLS = frozenset({"ldp", "elxgb"})
ADVERSARY, VICTIM, DATA = "passive", "active", "labels"
NOISY = (LdpRound, LdpRequest, NoisyRound)


def run(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    releases = list(noisy_gradients(view, victim))
    labels = truth.labels(victim)
    if not releases or not np.isin(labels, (0.0, 1.0)).all():
        return None
    return balanced_accuracy(
        labels,
        sign_guess(np.sum(releases, axis=0)),
        f"{len(releases)} noisy gradients of each row added up give {{value:.3f}} balanced accuracy of labels",
    )


def noisy_gradients(view: View, peer: PartyName) -> Iterator[Float64Array]:
    """Every release of one tree's gradients: a number a row, 0 where the row was not released."""
    for seen in view.messages:
        message = seen.message
        if seen.direction != "received" or seen.peer != peer or not isinstance(message, NOISY):
            continue
        if message.gradients.size and message.gradients.shape[0] == 1:
            yield message.gradients[0, :, 0].astype(np.float64)


def sign_guess(gradients: Float64Array) -> Float64Array:
    """The gradient p - y is negative where the label is 1 and positive where it is 0."""
    return (gradients < 0).astype(np.float64)
