"""`masked` with one noise vector: c lies on a sphere, which in one dimension is two points.

sum c^2 = C and W = 1 leave c = 1 and c = -1 (C is 1 here): one of the two differences is the gradients, the other one
is far too large.
"""

from __future__ import annotations

import numpy as np

from veilboost.audit.attacks.masked_answers import MaskedNode, masked_node
from veilboost.audit.attacks.recovered import labels_of, scored, tells_classes
from veilboost.audit.replay import rounds
from veilboost.audit.result import Outcome
from veilboost.audit.view import Truth, View
from veilboost.protocols.masked.options import MaskedOptions
from veilboost.types import Float64Array, PartyName

NAME = "sphere intersection for one noise vector"
PROTOCOLS = frozenset({"masked"})
ADVERSARY, VICTIM, DATA = "passive", "active", "labels"


def run(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    played = rounds(view, victim)
    one = MaskedOptions.from_dict(view.config.options).vectors == 1
    if not one or not tells_classes(view) or not played or not played[-1].levels:
        return None
    root = played[-1].levels[0]
    nodes = [masked_node(root, place, 1, most=1) for place in range(root.build.nodes)]
    found = [_smaller(node) for node in nodes if node is not None]
    if not found or len(found) < len(nodes):
        return None
    return scored(
        truth,
        victim,
        played[-1].fit,
        labels_of(np.stack(found)),
        "the mask added or subtracted, whichever leaves less, gives {value:.3f} of the labels in the last tree",
    )


def _smaller(node: MaskedNode) -> Float64Array:
    mask, noised = node.masks[0, 0], node.vectors[0, 0]
    return min(noised - mask, noised + mask, key=lambda each: float(each @ each))
