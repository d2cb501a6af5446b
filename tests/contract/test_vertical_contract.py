"""Every vertical protocol keeps the public contract."""

from __future__ import annotations

from typing import Any

import pytest

from support import QUICK_OPTIONS, QUIET_OPTIONS
from veilboost.protocols.registry import protocols_of
from veilboost.testing.contract import VerticalContract

pytestmark = pytest.mark.fast

EXPANSION = {"ExpansionKeys", "ExpansionReady", "ExpandedRequest", "ExpandedSums"}
SETTINGS: dict[str, dict[str, Any]] = {
    # Of two ways to encrypt, a run takes one; and only very many rows come in several messages.
    "elxgb": {"unsent": {"LatticeRound", "LatticeRequest", "LatticeSums"}, "exchanges_of_two": 1},
    "plain": {"unsent": {"MoreGradients"}, "exchanges_of_two": 1},
    "ldp": {"exchanges_of_two": 1},
    "paillier": {"exchanges_of_two": 1},
    # Vectors under reused masks at roots, runs below: both layouts are used. The masks are fetched once.
    "lattice": {"unsent": {"LatticeMore", *EXPANSION}, "options": {"layout": "root"}, "exchanges_once": 1},
    "sealed": {"unsent": EXPANSION, "options": {"layout": "root"}, "exchanges_once": 1},
    # Where the passive side asks back before it can score, a level takes one exchange more.
    "smm2": {"exchanges": 3, "exchanges_of_two": 2},
    "masked": {"exchanges": 3, "exchanges_of_two": 2},
}

for name, spec in protocols_of("vertical").items():
    common = {"spec": spec, "options": QUICK_OPTIONS.get(name, {}), "quiet": name in QUIET_OPTIONS}
    globals()[f"Test{name.title()}"] = type(f"Test{name.title()}", (VerticalContract,), common | SETTINGS.get(name, {}))
