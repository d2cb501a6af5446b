"""`mal`: buckets as they were sent: randomized response tells the true one more often than any other."""

from __future__ import annotations

import numpy as np

from veilboost.audit.result import Outcome, share_right
from veilboost.audit.view import Truth, View
from veilboost.boost.cuts import equal_width
from veilboost.protocols.mal.messages import MaskedRows
from veilboost.types import BoolArray, PartyName

NAME = "buckets as sent"
PROTOCOLS = frozenset({"mal"})
ADVERSARY, VICTIM, DATA = "server", "participant", "features"


def run(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    sent, table = view.received(MaskedRows, victim), truth.tables[victim]
    if not sent or len(sent[-1].buckets) != table.rows:
        return None
    numeric = [at for at, column in enumerate(table.columns) if column.categories is None]
    hits: list[BoolArray] = []
    fullest: list[float] = []
    for at, low, high in zip(numeric, sent[-1].low.tolist(), sent[-1].high.tolist(), strict=True):
        values = table.columns[at].values
        there = np.isfinite(values)
        if there.any():
            # The ranges are told to everybody: they say where buckets begin.
            cuts = equal_width(low, high, view.config.max_bin)
            true = cuts.searchsorted(values[there], side="right")
            hits.append(sent[-1].buckets[there, at] == true)
            fullest.append(float(np.bincount(true).max() / len(true)))
    if not fullest:
        return None
    every = np.concatenate(hits)
    common = float(np.mean(fullest))
    sentence = f"{float(every.mean()):.3f} of the buckets sent are the true ones; the fullest bucket holds {common:.3f}"
    return share_right("buckets right", every, common, sentence, clusters=table.rows)
