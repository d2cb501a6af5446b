"""Labels from which rows stand together: every vertical protocol that grows trees over parties tells it.

Rows that share leaves in many trees tend to share labels. A passive party that knows the labels of a few rows (it may
be a customer of the same people) gives every other row the label of those it stands with most. What it could guess
from the same few labels and its own columns, without any run, is the baseline.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from veilboost.audit.replay import ReplayedRound, rounds
from veilboost.audit.result import Outcome, balanced_accuracy
from veilboost.audit.view import Truth, View
from veilboost.types import AnyArray, Float64Array, Int64Array, PartyName

NAME = "labels from rows that stand together"
PROTOCOLS = None
ADVERSARY, VICTIM, DATA = "passive", "active", "labels"
KNOWN = 40  # labels that the attacker knows beforehand
MOST_ROWS = 20_000


def run(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    played = [one for one in rounds(view, victim) if one.levels]
    labels = truth.labels(victim)
    classes = np.unique(labels)
    if not played or len(classes) > 20 or view.rows < 2 * KNOWN or view.own is None or view.part is None:
        return None
    rows = np.sort(rng.permutation(view.rows)[:MOST_ROWS])
    known = _known_rows(labels[rows], classes, rng)
    places = np.stack([place[rows] for one in played for place in _places(one, view.rows)], axis=1)
    others = np.setdiff1d(np.arange(len(rows)), known)
    guess = _by_company(places, known, labels[rows][known], classes)
    columns = np.nan_to_num(view.part.matrix(view.own.columns, view.rows)[:, rows].T, nan=0.0)
    alone = balanced_accuracy(labels[rows][others], _by_columns(columns, known, labels[rows][known])[others], "")
    sentence = (
        f"from {len(known)} known labels and {places.shape[1]} trees, {{value:.3f}} balanced accuracy; "
        f"the same labels and its own columns alone give {alone.value:.3f}"
    )
    found = balanced_accuracy(labels[rows][others], guess[others], sentence)
    baseline = max(alone.value, found.baseline)
    # Halfway to everything is out of reach where labels are noise: a quarter of the way is most of what can be had.
    return Outcome(
        found.metric, found.value, baseline, found.low, found.high, found.sentence, baseline + (1 - baseline) / 4
    )


def _known_rows(labels: Float64Array, classes: Float64Array, rng: np.random.Generator) -> Int64Array:
    """A few rows of every class."""
    each = max(KNOWN // len(classes), 1)
    picked = [rng.permutation(np.flatnonzero(labels == one))[:each] for one in classes.tolist()]
    return np.sort(np.concatenate(picked))


def _places(one: ReplayedRound, rows: int) -> list[Int64Array]:
    """For each tree of a round: where every row was last seen, a number for each node or leaf."""
    places = [np.zeros(rows, dtype=np.int64) for _ in range(one.trees)]
    fresh = 1
    for level in one.levels:
        for groups in (level.fit, level.follow):
            for node in range(groups.nodes):
                places[int(groups.group[node])][groups.rows[groups.begin[node] : groups.end[node]]] = fresh + node
        fresh += level.fit.nodes
        for _, _, left, right in level.sides():  # the last level is known where this party split it itself
            tree = places[0] if one.trees == 1 else None
            if tree is not None:
                tree[left], tree[right] = fresh, fresh + 1
            fresh += 2
    return places


def _by_company(places: AnyArray, known: Int64Array, labels: Float64Array, classes: Float64Array) -> Float64Array:
    """The class with whose known rows a row shares most places; rows of unknown label pass on what they were given."""
    shares = np.full((len(places), len(classes)), 1.0 / len(classes))
    given = (labels[:, None] == classes[None, :]).astype(np.float64)
    shares[known] = given
    coded = [np.unique(column, return_inverse=True)[1].ravel() for column in places.T]
    for _ in range(10):
        passed = np.zeros_like(shares)
        for place in coded:
            count = np.bincount(place)
            for k in range(len(classes)):
                mean = np.bincount(place, shares[:, k]) / count
                passed[:, k] += mean[place]
        centred = passed / len(coded)
        centred -= centred.mean(axis=0)
        # Stretched to the unit interval again: averages of averages shrink, their order is what counts.
        spread = centred.std(axis=0)
        shares = 1.0 / (1.0 + np.exp(-2.0 * centred / np.where(spread > 0, spread, 1.0)))
        shares[known] = given
    return classes[shares.argmax(axis=1)]


def _by_columns(columns: AnyArray, known: Int64Array, labels: Float64Array) -> Float64Array:
    from sklearn.ensemble import RandomForestClassifier  # pyright: ignore[reportMissingTypeStubs]

    forest: Any = RandomForestClassifier(200, class_weight="balanced", random_state=0)
    forest.fit(columns[known], labels)
    return np.asarray(forest.predict(columns), dtype=np.float64)
