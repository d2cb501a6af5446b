"""`masked`: the attacker of its own paper, a network of five layers (MaskedXGBoost, section 6.5 and figure 6).

The passive party makes up gradients, puts them under its own masks as the active party would, and trains a network to
tell labels from a row's noised gradient, noised hessian and noise. It fails where one network is to fit all queries, as
c is different in each: its failure says nothing about the other attacks on the same messages.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from veilboost.audit.attacks.masked_answers import MaskedNode, masked_node
from veilboost.audit.attacks.recovered import scored, tells_two_classes
from veilboost.audit.replay import rounds
from veilboost.audit.result import Outcome
from veilboost.audit.view import Truth, View
from veilboost.protocols.masked.options import MaskedOptions
from veilboost.types import Float64Array, PartyName

NAME = "network of five layers"
PROTOCOLS = frozenset({"masked"})
ADVERSARY, VICTIM, DATA = "passive", "active", "labels"

_QUERIES = 40  # made up, each with coefficients of its own
_EXAMPLES = 4_000
_CANDIDATES = 8


def run(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    played = rounds(view, victim)
    if not played or not tells_two_classes(view, played[0]) or not played[0].levels:
        return None
    root = played[0].levels[0]
    node = masked_node(root, 0, MaskedOptions.from_dict(view.config.options).vectors, _CANDIDATES)
    if node is None or node.vectors.shape[1] < 2:
        return None
    network = _trained(node, rng)
    real = np.stack([_inputs(node.masks[k], node.vectors[k]) for k in range(len(node.masks))])
    chances = np.mean([network.predict_proba(each)[:, 1] for each in real], axis=0)
    return scored(
        truth,
        victim,
        played[0].fit,
        (chances > 0.5).astype(np.float64),
        "a network trained on made-up gradients under the same masks gets {value:.3f} of the labels",
    )


def _trained(node: MaskedNode, rng: np.random.Generator) -> Any:
    """Section 6.5: L2 regularisation with parameter 0.01, trained to convergence or until it no longer improves."""
    from sklearn.neural_network import MLPClassifier  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]
    from sklearn.pipeline import make_pipeline  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]
    from sklearn.preprocessing import (  # pyright: ignore[reportMissingTypeStubs]
        StandardScaler,  # pyright: ignore[reportUnknownVariableType]
    )

    inputs: list[Float64Array] = []
    labels: list[Float64Array] = []
    each = max(_EXAMPLES // _QUERIES, 1)
    for query in range(_QUERIES):
        masks = node.masks[query % len(node.masks)]
        label: Float64Array = (rng.random(int(masks.shape[1])) < 0.5).astype(np.float64)
        values = np.stack((0.5 - label, np.full(len(label), 0.25)))  # a first tree that starts from even odds
        by = rng.normal(size=(2, len(masks)))
        by /= np.sqrt((by**2).sum(axis=1, keepdims=True))
        rows = rng.permutation(len(label))[:each]
        inputs.append(_inputs(masks, values + by @ masks)[rows])
        labels.append(label[rows])
    network = MLPClassifier(
        (64, 32, 16, 8), alpha=0.01, max_iter=40, early_stopping=True, random_state=int(rng.integers(2**31))
    )
    whole: Any = make_pipeline(StandardScaler(), network)
    return whole.fit(np.concatenate(inputs), np.concatenate(labels))


def _inputs(masks: Float64Array, vectors: Float64Array) -> Float64Array:
    """A row's noised gradient and hessian and its entries of the noise vectors."""
    return np.concatenate((vectors, masks)).T
