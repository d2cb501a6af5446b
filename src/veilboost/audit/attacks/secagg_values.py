"""`secagg`: exact values of single rows, from the search for cuts over all participants.

The search ends at the two values that a cut lies between. Where the counts of two neighbouring numbers differ, somebody
has the larger one; whose it is is not told.
"""

from __future__ import annotations

import numpy as np

from veilboost.audit.attacks.secagg_counts import counted, sorted_values
from veilboost.audit.result import Outcome, share_right
from veilboost.audit.view import Truth, View
from veilboost.types import BoolArray, PartyName, UInt32Array

NAME = "values that the search for cuts found"
PROTOCOLS = frozenset({"secagg"})
ADVERSARY, VICTIM, DATA = "server", "participant", "rows, through sums of all"


def run(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    own = sorted_values(truth.tables[victim], view.config.categories == "ordinal")
    steps = list(counted(view, victim))
    if not steps or not own:
        return None
    hits: list[BoolArray] = []
    for at, column in enumerate(own):
        asked, places = np.unique(np.concatenate([step.values[at] for step in steps]), return_index=True)
        found = _present(asked, np.concatenate([step.together[at] for step in steps])[places])
        hits.append(np.isin(column, found))
    every = np.concatenate(hits)
    sentence = (
        f"{float(every.mean()):.3f} of the values of {victim} are known exactly after {len(steps)} steps of the search "
        "for cuts, though not whose they are"
    )
    return share_right("values known", every, 0.0, sentence)


def _present(asked: UInt32Array, counts: np.ndarray) -> UInt32Array:
    """Numbers that somebody has: more values are not above them than are not above the number before."""
    next_to = asked[1:] == asked[:-1] + np.uint32(1)
    return asked[1:][next_to & (counts[1:] > counts[:-1])]
