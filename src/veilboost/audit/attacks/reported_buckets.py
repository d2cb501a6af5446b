"""Buckets as they were reported: randomized response tells the true one more often than any other."""

from __future__ import annotations

import numpy as np

from veilboost.audit.result import Outcome, share_right
from veilboost.audit.view import Truth, View
from veilboost.protocols.federboost.messages import Buckets
from veilboost.types import PartyName

NAME = "buckets as reported"
PROTOCOLS = frozenset({"federboost"})
ADVERSARY, VICTIM, DATA = "active", "passive", "features"


def run(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    reported, block = view.received(Buckets, victim), truth.block(victim)
    if not reported or block.shared is None or block.layout.features == 0:
        return None
    true = block.shared.bins[0].astype(np.int64)
    hits = reported[0].buckets == true
    fullest = float(np.mean([np.bincount(column).max() / len(column) for column in true.T]))
    sentence = f"{float(hits.mean()):.3f} of reported buckets are the true ones; the fullest bucket holds {fullest:.3f}"
    return share_right("buckets right", hits, fullest, sentence)
