"""`masked`: one candidate's noised gradients without what lies in the span of its masks.

The passive party made the masks B. Of <g> = g + Bc it does not know the W numbers c, which least squares finds but for
the small part of g that lies along B. In the first tree g has two values, and fitting them as well finds c exactly.
"""

from __future__ import annotations

import numpy as np

from veilboost.audit.attacks.equations import least_squares
from veilboost.audit.attacks.masked_answers import MaskedNode, masked_node
from veilboost.audit.attacks.recovered import labels_of, scored, tells_classes
from veilboost.audit.replay import rounds
from veilboost.audit.result import Outcome
from veilboost.audit.view import Truth, View
from veilboost.protocols.masked.options import MaskedOptions
from veilboost.types import BoolArray, Float64Array, PartyName

NAME = "projection off the masks"
PROTOCOLS = frozenset({"masked"})
ADVERSARY, VICTIM, DATA = "passive", "active", "labels"

_PASSES = 20


def run(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    played = rounds(view, victim)
    if not tells_classes(view) or not played or not played[0].levels:
        return None
    width = MaskedOptions.from_dict(view.config.options).vectors
    root = played[0].levels[0]
    nodes = [masked_node(root, place, width, most=1) for place in range(root.build.nodes)]
    found = [_two_values(node) for node in nodes if node is not None]
    if not found or len(found) < len(nodes):
        return None
    return scored(
        truth,
        victim,
        played[0].fit,
        labels_of(np.stack(found)),
        "one candidate of the first root without the span of its masks gives {value:.3f} of the labels",
    )


def _two_values(node: MaskedNode) -> Float64Array:
    """Gradients from the first candidate: projected, then fitted to two values until nothing changes."""
    noise, noised = node.masks[0].T, node.vectors[0, 0]
    found = noised - noise @ least_squares(noise, noised)
    below: BoolArray = found < 0
    for _ in range(_PASSES):
        # noised = Bc + a + d * below
        fit = least_squares(np.column_stack((noise, np.ones(len(noised)), below.astype(np.float64))), noised)
        found = noised - noise @ fit[:-2]
        middle = fit[-2] + fit[-1] / 2
        better: BoolArray = found < middle
        if np.array_equal(better, below) or not 0 < better.sum() < len(better):
            break
        below = better
    return found
