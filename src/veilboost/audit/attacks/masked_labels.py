"""The labels of `masked`, from noised gradients and the masks that the passive party made itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from veilboost.audit.attack import declare
from veilboost.audit.attacks.gradients import labels_of, scored, tells_classes, tells_two_classes
from veilboost.audit.replay import ReplayedLevel, rounds
from veilboost.audit.result import Outcome
from veilboost.audit.solvers import least_squares
from veilboost.audit.view import Truth, View
from veilboost.protocols.masked.messages import Masks, NoisedVectors
from veilboost.protocols.masked.options import MaskedOptions
from veilboost.types import BoolArray, Float64Array, Int32Array, PartyName

_PASSES = 20
# What the network learns from: made-up queries, each with coefficients of its own, and examples of all of them.
_QUERIES, _EXAMPLES, _CANDIDATES = 40, 4_000, 8


@dataclass(frozen=True)
class MaskedNode:
    """A node's candidates as both parties saw them: B (candidates, W, rows) and <g>, <h> (candidates, kinds, rows)."""

    tree: int
    rows: Int32Array
    masks: Float64Array
    vectors: Float64Array


def masked_node(level: ReplayedLevel, place: int, width: int, most: int | None = None) -> MaskedNode | None:
    """The node at a place of those asked for, with its first `most` candidates of `width` noise vectors each."""
    build = level.build
    rows = build.rows[build.begin[place] : build.end[place]]
    masks: list[Float64Array] = []
    vectors: list[Float64Array] = []
    sent: Masks | None = None
    for message in level.messages:
        if isinstance(message, Masks):
            sent = message
        elif isinstance(message, NoisedVectors) and sent is not None:
            counts = build.counts[sent.nodes]
            ends = np.cumsum(counts)
            kinds = 2 if message.hessians else 1
            for at in np.flatnonzero(sent.nodes == place).tolist():
                if most is not None and len(masks) == most:
                    break
                start, end = int(ends[at] - counts[at]), int(ends[at])
                masks.append(_block(sent.masks, width, start, end))
                vectors.append(_block(message.vectors, kinds, start, end))
    if not masks:
        return None
    return MaskedNode(int(build.group[place]), rows, np.stack(masks), np.stack(vectors))


def _block(flat: np.ndarray, height: int, start: int, end: int) -> Float64Array:
    return flat[height * start : height * end].reshape(height, end - start).astype(np.float64)


def _from_root(
    view: View,
    truth: Truth,
    victim: PartyName,
    tree: int,
    candidates: int,
    gradients: Callable[[MaskedNode], Float64Array],
    sentence: str,
) -> Outcome | None:
    """Labels by the gradients that a function finds in the first candidates of a round's roots."""
    played = rounds(view, victim)
    if not tells_classes(view) or not played or not played[tree].levels:
        return None
    width, root = MaskedOptions.from_dict(view.config.options).vectors, played[tree].levels[0]
    nodes = [masked_node(root, place, width, candidates) for place in range(root.build.nodes)]
    found = [gradients(node) for node in nodes if node is not None and len(node.masks) == candidates]
    if not found or len(found) < len(nodes):
        return None
    return scored(truth, victim, played[tree].fit, labels_of(np.stack(found)), sentence)


@declare("projection off the masks", "passive", "active", "labels", (Masks,))
def masked_projection(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """One candidate's noised gradients without what lies in the span of its masks.

    The passive party made the masks B. Of <g> = g + Bc it does not know the W numbers c, which least squares finds but
    for the small part of g that lies along B. In the first tree g has two values, and fitting them as well finds c
    exactly.
    """
    sentence = "one candidate of the first root without the span of its masks gives {value:.3f} of the labels"
    return _from_root(view, truth, victim, 0, 1, _two_values, sentence)


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


@declare("sphere intersection for one noise vector", "passive", "active", "labels", (Masks,))
def masked_sphere(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """`masked` with one noise vector: c lies on a sphere, which in one dimension is two points.

    sum c^2 = C and W = 1 leave c = 1 and c = -1 (C is 1 here): one of the two differences is the gradients, the other
    one is far too large.
    """
    if MaskedOptions.from_dict(view.config.options).vectors != 1:
        return None
    sentence = "the mask added or subtracted, whichever leaves less, gives {value:.3f} of the labels in the last tree"
    return _from_root(view, truth, victim, -1, 1, _smaller, sentence)


def _smaller(node: MaskedNode) -> Float64Array:
    mask, noised = node.masks[0, 0], node.vectors[0, 0]
    return min(noised - mask, noised + mask, key=lambda each: float(each @ each))


@declare("stacking two candidates' masks", "passive", "active", "labels", (Masks,))
def masked_stacking(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Two candidates of one node mask the same gradients, and that gives them exactly.

    g + B1 c1 and g + B2 c2 differ by B1 c1 - B2 c2, in which g does not occur: least squares finds c1 and c2, and what
    is left of the first vector is g. No tree, loss or noise is different, as long as a node has twice W rows.
    """
    sentence = "two candidates of the last tree's root give its gradients, and {value:.3f} of the labels by their signs"
    return _from_root(view, truth, victim, -1, 2, gradients_of, sentence)  # in the last tree they take all values


def gradients_of(node: MaskedNode, kind: int = 0) -> Float64Array:
    """The gradients (kind 0) or hessians (kind 1) of a node with two candidates."""
    one, other = node.masks[0].T, node.masks[1].T
    first, second = node.vectors[0, kind], node.vectors[1, kind]
    by = least_squares(np.hstack((one, -other)), first - second)
    return first - one @ by[: one.shape[1]]


@declare("network of five layers", "passive", "active", "labels", (Masks,))
def masked_network(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """The attacker of its own paper, a network of five layers (MaskedXGBoost, section 6.5 and figure 6).

    The passive party makes up gradients, puts them under its own masks as the active party would, and trains a network
    to tell labels from a row's noised gradient, noised hessian and noise. It fails where one network is to fit all
    queries, as c is different in each: its failure says nothing about the other attacks on the same messages.
    """
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
