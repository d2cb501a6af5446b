"""`masked`: two candidates of one node mask the same gradients, and that gives them exactly.

g + B1 c1 and g + B2 c2 differ by B1 c1 - B2 c2, in which g does not occur: least squares finds c1 and c2, and what is
left of the first vector is g. No tree, loss or noise is different, as long as a node has twice W rows.
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
from veilboost.types import Float64Array, PartyName

NAME = "stacking two candidates' masks"
PROTOCOLS = frozenset({"masked"})
ADVERSARY, VICTIM, DATA = "passive", "active", "labels"


def run(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    played = rounds(view, victim)
    if not tells_classes(view) or not played or not played[-1].levels:
        return None
    width = MaskedOptions.from_dict(view.config.options).vectors
    root = played[-1].levels[0]  # of the last tree, where gradients take all values
    nodes = [masked_node(root, place, width, most=2) for place in range(root.build.nodes)]
    found = [gradients_of(node) for node in nodes if node is not None and len(node.masks) == 2]
    if not found or len(found) < len(nodes):
        return None
    return scored(
        truth,
        victim,
        played[-1].fit,
        labels_of(np.stack(found)),
        "two candidates of the last tree's root give its gradients, and {value:.3f} of the labels by their signs",
    )


def gradients_of(node: MaskedNode, kind: int = 0) -> Float64Array:
    """The gradients (kind 0) or hessians (kind 1) of a node with two candidates."""
    one, other = node.masks[0].T, node.masks[1].T
    first, second = node.vectors[0, kind], node.vectors[1, kind]
    by = least_squares(np.hstack((one, -other)), first - second)
    return first - one @ by[: one.shape[1]]
