"""What `federboost` leaves open: buckets as they are reported, and which of one's own cuts won."""

from __future__ import annotations

from itertools import chain

import numpy as np

from veilboost.audit.attack import declare
from veilboost.audit.attacks.nodes import labels_from_groups
from veilboost.audit.result import Outcome, share_right
from veilboost.audit.view import Truth, View
from veilboost.protocols.federboost.messages import Buckets, BucketSplits
from veilboost.types import PartyName


@declare("labels from own cuts that won", "passive", "active", "labels", (BucketSplits,))
def own_cuts(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Labels from which of one's own cuts won: all that a passive party of `federboost` is told about them.

    Cuts that the active party chose part the labels. The owner knows on which side of each of them its rows lie, and
    learns from a few known labels what that means, as it would from nodes if it were told any.
    """
    if view.part is None or view.own is None:
        return None
    records, values = view.part.records, view.part.matrix(view.own.columns, view.rows)
    every = np.arange(view.rows, dtype=np.int32)
    sides = [
        records.goes_left(values, np.full(view.rows, at, dtype=np.int32), every) for at in range(len(records.tree))
    ]
    groups = list(chain.from_iterable((every[left], every[~left]) for left in sides))
    return labels_from_groups(groups, f"{len(sides)} own cuts that won", view, truth, victim, rng)


@declare("buckets as reported", "active", "passive", "features", (Buckets,))
def reported_buckets(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Buckets as they were reported: randomized response tells the true one more often than any other."""
    reported, block = view.received(Buckets, victim), truth.block(victim)
    if not reported or block.shared is None or block.layout.features == 0:
        return None
    true = block.shared.bins[0].astype(np.int64)
    hits = reported[0].buckets == true
    fullest = float(np.mean([np.bincount(column).max() / len(column) for column in true.T]))
    sentence = f"{float(hits.mean()):.3f} of reported buckets are the true ones; the fullest bucket holds {fullest:.3f}"
    return share_right("buckets right", hits, fullest, sentence)
