"""`mal`: the two ends of every column, which are somebody's exact values, as everybody is told them."""

from __future__ import annotations

import numpy as np

from veilboost.audit.result import Outcome
from veilboost.audit.view import Truth, View
from veilboost.protocols.mal.messages import MaskedRows
from veilboost.types import PartyName

NAME = "ends of columns as told"
PROTOCOLS = frozenset({"mal"})
ADVERSARY, VICTIM, DATA = "server", "participant", "the lowest and highest value of all"


def run(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    sent = view.received(MaskedRows)
    numeric = [
        [table.columns[at].values.astype(np.float64) for table in truth.tables.values()]
        for at, column in enumerate(truth.tables[victim].columns)
        if column.categories is None
    ]
    if not sent or not numeric:
        return None
    own = list(truth.tables).index(victim)
    told = np.stack((sent[-1].low, sent[-1].high), axis=1)
    mine = np.array([(np.nanmin(column[own]), np.nanmax(column[own])) for column in numeric])
    every = [np.concatenate(column) for column in numeric]
    hers = mine == np.array([(np.nanmin(column), np.nanmax(column)) for column in every])
    if not hers.any():
        return None
    value = float((told == mine)[hers].mean())
    sentence = f"{int(hers.sum())} ends of columns are values of single rows of {victim}, and everybody is told them"
    return Outcome("ends told", value, 0.0, value, value, sentence)  # nothing is left to chance
