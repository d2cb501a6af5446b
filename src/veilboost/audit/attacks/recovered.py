"""From gradients to labels: what whoever has a round's gradients, or something close to them, reads off them."""

from __future__ import annotations

import numpy as np

from veilboost.audit.view import View
from veilboost.protocols.common.messages import BeginTraining
from veilboost.types import Float64Array


def labels_of(gradients: Float64Array) -> Float64Array:
    """Labels from gradients (trees of the round, rows): p - y is below 0 only where y is 1."""
    if len(gradients) == 1:
        return (gradients[0] < 0).astype(np.float64)
    return gradients.argmin(axis=0).astype(np.float64)


def has_classes(view: View) -> bool:
    """Does the job tell classes apart, so that signs of gradients are labels?"""
    said = view.received(BeginTraining) + view.sent(BeginTraining)
    many = bool(said) and said[0].trees_per_round > 1
    return many or view.config.objective in ("binary", "multiclass")
