"""The order of the active party's own values, from the sides of its cuts: every passive party keeps rows by node too.

A passive party is not told whose a cut is. With two parties it is the active one's if it is not its own; with more the
cuts of all others come together, and sort themselves into columns.
"""

from __future__ import annotations

import numpy as np

from veilboost.audit.attacks.feature_order import order_from
from veilboost.audit.replay import foreign_sides
from veilboost.audit.result import Outcome
from veilboost.audit.view import Truth, View
from veilboost.types import PartyName

NAME = "order of the active party's values"
PROTOCOLS = None
ADVERSARY, VICTIM, DATA = "passive", "active", "features"


def run(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    return order_from(foreign_sides(view, victim), view.rows, truth.tables[victim].columns)
