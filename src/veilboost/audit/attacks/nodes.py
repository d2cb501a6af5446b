"""Labels from which rows stand together: every vertical protocol that grows trees over parties tells it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from veilboost.audit.attack import declare
from veilboost.audit.replay import ReplayedRound, rounds
from veilboost.audit.result import Outcome, balanced_accuracy
from veilboost.audit.solvers import forest_guess, logistic
from veilboost.audit.view import Truth, View
from veilboost.types import Float64Array, Int32Array, Int64Array, PartyName

KNOWN = 40  # labels that the attacker knows beforehand


@declare("labels from rows that stand together", "passive", "active", "labels")
def instance_clusters(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Labels from which rows stand together: every vertical protocol that grows trees over parties tells it.

    Rows that share nodes in many trees tend to share labels. A passive party that knows the labels of a few rows (they
    may be its customers too) learns from them what it means to stand in each node, by a logistic regression over nodes,
    and guesses all other labels. What the same few labels and its own columns give without any run is the baseline.
    """
    played = rounds(view, victim)
    nodes = [rows for one in played for rows in _nodes(one)]
    return labels_from_groups(nodes, f"{len(played)} rounds", view, truth, victim, rng)


def labels_from_groups(
    groups: Sequence[Int32Array], what: str, view: View, truth: Truth, victim: PartyName, rng: np.random.Generator
) -> Outcome | None:
    """Labels from groups of rows and a few known labels; None where there is nothing to learn from."""
    labels = truth.labels(victim)
    classes = np.unique(labels)
    if not groups or len(classes) > 20 or view.rows < 2 * KNOWN or view.own is None or view.part is None:
        return None
    known = _known_rows(labels, classes, rng)
    others = np.setdiff1d(np.arange(view.rows), known)
    guess = _by_nodes(groups, view.rows, known, labels[known])
    columns = np.nan_to_num(view.part.matrix(view.own.columns, view.rows).T, nan=0.0)
    alone = balanced_accuracy(labels[others], forest_guess(columns[known], labels[known], columns[others]), "").value
    sentence = (
        f"from {len(known)} known labels and {what}, {{value:.3f}} balanced accuracy; "
        f"the same labels and its own columns alone give {alone:.3f}"
    )
    found = balanced_accuracy(labels[others], guess[others], sentence)
    baseline = max(alone, found.baseline)
    # Labels are partly chance, so not all of them can be had: a quarter of the way counts as success.
    return replace(found, baseline=baseline, bar=baseline + (1 - baseline) / 4)


def _known_rows(labels: Float64Array, classes: Float64Array, rng: np.random.Generator) -> Int64Array:
    """A few rows of every class."""
    each = max(KNOWN // len(classes), 1)
    picked = [rng.permutation(np.flatnonzero(labels == one))[:each] for one in classes.tolist()]
    return np.sort(np.concatenate(picked))


def _nodes(one: ReplayedRound) -> Iterator[Int32Array]:
    """The rows of every node of a round that is known to this party; of the last level those it split itself."""
    for level in one.levels:
        for groups in (level.fit, level.follow):
            for begin, end in zip(groups.begin.tolist(), groups.end.tolist(), strict=True):
                yield groups.rows[begin:end]
        for _, _, left, right in level.sides():
            yield left
            yield right


def _by_nodes(nodes: Sequence[Int32Array], rows: int, known: Int64Array, labels: Float64Array) -> Float64Array:
    inside = np.zeros((len(known), len(nodes)))
    place = np.full(rows, -1)
    place[known] = np.arange(len(known))
    for node, members in enumerate(nodes):
        there = place[members]
        inside[there[there >= 0], node] = 1.0
    model = logistic(inside, labels)
    score = np.repeat(model.start[:, None], rows, axis=1)
    for node, members in enumerate(nodes):
        score[:, members] += model.weights[:, node, None]
    return model.classes[(score[0] > 0).astype(np.int64) if len(score) == 1 else score.argmax(axis=0)]
