"""Labels from which of one's own cuts won: all that a passive party of `federboost` is told about them.

Cuts that the active party chose part the labels. The owner knows on which side of each of them its rows lie, and learns
from a few known labels what that means, as it would from nodes if it were told any.
"""

from __future__ import annotations

from itertools import chain

import numpy as np

from veilboost.audit.attacks.instance_clusters import labels_from_groups
from veilboost.audit.result import Outcome
from veilboost.audit.view import Truth, View
from veilboost.types import PartyName

NAME = "labels from own cuts that won"
PROTOCOLS = frozenset({"federboost"})
ADVERSARY, VICTIM, DATA = "passive", "active", "labels"


def run(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    if view.part is None or view.own is None:
        return None
    records, values = view.part.records, view.part.matrix(view.own.columns, view.rows)
    every = np.arange(view.rows, dtype=np.int32)
    sides = [
        records.goes_left(values, np.full(view.rows, at, dtype=np.int32), every) for at in range(len(records.tree))
    ]
    groups = list(chain.from_iterable((every[left], every[~left]) for left in sides))
    return labels_from_groups(groups, f"{len(sides)} own cuts that won", view, truth, victim, rng)
