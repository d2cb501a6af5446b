"""What rows by node tell: labels from which rows stand together, the order of values from the sides of cuts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from veilboost.audit.attack import Outcome, balanced_accuracy, declare, share_right
from veilboost.audit.replay import ReplayedRound, assignments_of, foreign_assignments, rounds
from veilboost.audit.solvers import forest_guess, logistic
from veilboost.audit.view import TOGETHER, Truth, View
from veilboost.protocols.federboost.messages import Buckets, BucketSplits
from veilboost.types import Column, Float64Array, Int32Array, Int64Array, PartyName

KNOWN = 40  # labels that the attacker knows beforehand
COLUMNS_COUNT = 0.5  # a standard deviation of a column, where a node counts 1


@declare("labels from rows that stand together", "passive", "active", "labels")
def instance_clusters(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Labels from which rows stand together: every vertical protocol that grows trees over parties tells it.

    Rows that share nodes in many trees tend to share labels. A passive party that knows the labels of a few rows (they
    may be its customers too) learns from them what it means to stand in each node, by a logistic regression over nodes,
    and guesses all other labels. What the same few labels and its own columns give without any run is the baseline.
    """
    played = rounds(view, victim)
    nodes = [rows for one in played for rows in _nodes(one)]
    return labels_from_groups(nodes, f"{len(played)} rounds", [view], truth, victim, rng)


@declare("labels from rows that stand together, pooled", TOGETHER, "active", "labels")
def pooled_clusters(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Labels from the views of all passive parties put together: their nodes, and their columns beside them.

    All are told the same nodes but for the last level of a tree, whose sides each knows where the cut is its own. What
    the columns of all and the same known labels give without any run is the baseline.
    """
    seed = int(rng.integers(1 << 32))  # all know the same labels

    def reached(members: Sequence[View]) -> Outcome | None:
        played = [one for member in members for one in rounds(member, victim)]
        nodes = {rows.tobytes(): rows for one in played for rows in _nodes(one)}
        what = f"{len(nodes)} groups of rows and {len(members)} parties' columns"
        return labels_from_groups([*nodes.values()], what, members, truth, victim, np.random.default_rng(seed), True)

    together = reached(view.members)
    singles = [found.value for found in (reached([member]) for member in view.members) if found is not None]
    if together is None or not singles:
        return None
    gain = together.value - max(singles)
    return replace(together, sentence=f"{together.sentence}; {gain:+.3f} beside the best party by itself")


def labels_from_groups(
    groups: Sequence[Int32Array],
    what: str,
    views: Sequence[View],
    truth: Truth,
    victim: PartyName,
    rng: np.random.Generator,
    with_columns: bool = False,
) -> Outcome | None:
    """Labels from groups of rows and a few known labels, and from the own columns too where these are to be used.

    None where there is nothing to learn from.
    """
    labels, rows = truth.labels(victim), views[0].rows
    classes = np.unique(labels)
    tables = [
        view.share.matrix(view.own.columns, rows) for view in views if view.own is not None and view.share is not None
    ]
    if not groups or len(classes) > 20 or rows < 2 * KNOWN or len(tables) < len(views):
        return None
    known = _known_rows(labels, classes, rng)
    others = np.setdiff1d(np.arange(rows), known)
    columns = np.nan_to_num(np.concatenate(tables).T, nan=0.0)
    alone = balanced_accuracy(labels[others], forest_guess(columns[known], labels[known], columns[others]), "").value
    scaled = columns[:, :0].astype(np.float64)
    if with_columns:
        scaled = COLUMNS_COUNT * (columns - columns.mean(axis=0)) / (columns.std(axis=0) + 1e-9)
        by_columns = _by_nodes([], rows, known, labels[known], scaled)
        alone = max(alone, balanced_accuracy(labels[others], by_columns[others], "").value)
    guess = _by_nodes(groups, rows, known, labels[known], scaled)
    sentence = (
        f"from {len(known)} known labels and {what}, {{value:.3f}} balanced accuracy; "
        f"the same labels and {'its' if len(views) == 1 else 'their'} own columns alone give {alone:.3f}"
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


def _by_nodes(
    nodes: Sequence[Int32Array], rows: int, known: Int64Array, labels: Float64Array, columns: Float64Array
) -> Float64Array:
    inside = np.zeros((len(known), len(nodes)))
    place = np.full(rows, -1)
    place[known] = np.arange(len(known))
    for node, members in enumerate(nodes):
        there = place[members]
        inside[there[there >= 0], node] = 1.0
    start, weights, classes = logistic(np.hstack([inside, columns[known]]), labels)
    score = start[:, None] + weights[:, len(nodes) :] @ columns.T
    for node, members in enumerate(nodes):
        score[:, members] += weights[:, node, None]
    return classes[(score[0] > 0).astype(np.int64) if len(score) == 1 else score.argmax(axis=0)]


MOST_CUTS, LEAST_SHARED = 200, 20


@dataclass
class _Chain:
    """Cuts that could be of one column: for each row the sum of its sides, and the cuts themselves."""

    score: Float64Array
    cuts: list[Int32Array] = field(default_factory=list[Int32Array])

    def shared(self, side: Int32Array) -> int:
        """How many rows of the cut stood at one of these cuts; -1 where one contradicts it."""
        seen = 0
        for cut in self.cuts:
            here, there = side[cut != 0], cut[cut != 0]
            both = int(np.count_nonzero(here))
            if np.any((here < 0) & (there > 0)) and np.any((here > 0) & (there < 0)):
                return -1
            seen += both
        return seen


@declare("order of values from winning cuts", "active", "passive", "features")
def feature_order(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """The order of a column's values, from the sides of winning cuts: told row by row by every protocol that splits
    nodes.

    A cut says that all rows on its left have smaller values than those on its right. Two cuts of one column never
    contradict each other, two of different columns nearly always do: so cuts are sorted into columns without knowing
    which handle belongs to which, and the cuts of one column are added up to an order of its rows.
    """
    return order_from(assignments_of(view, victim).values(), view.rows, truth.tables[victim].columns)


def order_from(sides: Iterable[tuple[Int32Array, Int32Array]], rows: int, columns: Sequence[Column]) -> Outcome | None:
    """How well cuts, each its left and its right rows, order some column; None where there are none."""
    found = sorted(sides, key=lambda pair: -len(pair[0]) - len(pair[1]))[:MOST_CUTS]
    if not found or not columns:
        return None
    chains: list[_Chain] = []
    for left, right in found:
        side = np.zeros(rows, dtype=np.int32)
        side[left], side[right] = -1, 1
        shared = [chain.shared(side) for chain in chains]
        best = int(np.argmax(shared)) if shared else 0
        if not shared or shared[best] < LEAST_SHARED:
            if np.count_nonzero(side) < rows / 4:
                continue  # too small to start a column of its own
            chains.append(_Chain(np.zeros(rows)))
            best = -1
        chains[best].cuts.append(side)
        chains[best].score += side
    values = [column.values.astype(np.float64) for column in columns]
    reached = [max(_likeness(chain.score, column) for chain in chains) for column in values] if chains else [0.0]
    value = float(np.max(reached))
    error = 1.96 / np.sqrt(max(rows - 3, 1))  # of a rank correlation, Fisher
    low, high = (float(np.tanh(np.arctanh(min(value, 0.999999)) + sign * error)) for sign in (-1, 1))
    sentence = (
        f"{len(found)} winning cuts order the rows of one column with rank correlation {value:.3f}, "
        f"and of the average column with {float(np.mean(reached)):.3f}"
    )
    return Outcome("rank correlation", value, 0.0, max(low, 0.0), high, sentence)


def _likeness(score: Float64Array, column: Float64Array) -> float:
    """Spearman's correlation without its sign: the direction of an order is one bit."""
    there = np.isfinite(column)
    if np.ptp(score[there]) == 0 or np.ptp(column[there]) == 0:
        return 0.0
    one, other = (_ranks(each[there]) for each in (score, column))
    one, other = one - one.mean(), other - other.mean()
    return abs(float(one @ other / np.sqrt((one @ one) * (other @ other))))


def _ranks(values: Float64Array) -> Float64Array:
    """Ranks, equal values in the middle of theirs."""
    _, at, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count + 1) / 2)[at]


@declare("order of the active party's values", "passive", "active", "features")
def active_order(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """The order of the active party's own values, from the sides of its cuts: every passive party keeps rows by node
    too.

    A passive party is not told whose a cut is. With two parties it is the active one's if it is not its own; with more
    the cuts of all others come together, and sort themselves into columns.
    """
    return order_from(foreign_assignments(view, victim), view.rows, truth.tables[victim].columns)


@declare("labels from own cuts that won", "passive", "active", "labels", (BucketSplits,))
def own_cuts(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Labels from which of one's own cuts won: all that a passive party of `federboost` is told about them.

    Cuts that the active party chose part the labels. The owner knows on which side of each of them its rows lie, and
    learns from a few known labels what that means, as it would from nodes if it were told any.
    """
    if view.share is None or view.own is None:
        return None
    records, values = view.share.records, view.share.matrix(view.own.columns, view.rows)
    every = np.arange(view.rows, dtype=np.int32)
    sides = [
        records.goes_left(values, np.full(view.rows, at, dtype=np.int32), every) for at in range(len(records.tree))
    ]
    groups = list(chain.from_iterable((every[left], every[~left]) for left in sides))
    return labels_from_groups(groups, f"{len(sides)} own cuts that won", [view], truth, victim, rng)


@declare("buckets as reported", "active", "passive", "features", (Buckets,))
def reported_buckets(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Buckets as they were reported: randomized response tells the true one more often than any other."""
    reported, block = view.received(Buckets, victim), truth.block(victim)
    if not reported or block.shared is None or block.layout.features == 0:
        return None
    true = block.shared.bins[0].astype(np.int64)
    hits = reported[0].buckets == true
    fullest = float(np.mean([np.bincount(column).max() / len(column) for column in true.T]))
    sentence = f"{float(hits.mean()):.3f} of reported buckets are the true ones; the fullest bucket holds {fullest:.3f}"
    return share_right("buckets right", hits, fullest, sentence)
