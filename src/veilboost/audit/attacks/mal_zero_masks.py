"""`mal`: labels that stand in the clear, because every mask that cancels in all buckets is zero at their rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from veilboost.audit.attacks.mal_rows import bucket_sums
from veilboost.audit.result import Outcome, balanced_accuracy
from veilboost.audit.view import Truth, View
from veilboost.types import PartyName

NAME = "labels where no mask can hide them"
PROTOCOLS = frozenset({"mal"})
ADVERSARY, VICTIM, DATA = "server", "participant", "labels"

_CLEAR = 1 - 1e-6  # leverage from which on a mask is nothing but rounding


def run(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    seen = bucket_sums(view, truth, victim)
    if seen is None:
        return None
    clear = seen.leverage() > _CLEAR
    read = seen.masked.argmax(axis=1) if seen.masked.shape[1] > 1 else seen.masked[:, 0] > 0.5
    found = balanced_accuracy(
        seen.labels,
        np.where(clear, read, seen.others),
        f"{int(clear.sum())} of {seen.rows} labels stand in the clear; with these, and the other participants' sums "
        "for the rest, {value:.3f} of the labels are known",
    )
    return replace(found, baseline=seen.baseline)
