"""Attacks on the rows of nodes: labels from rows that share nodes, order of values from left/right assignments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from veilboost.audit.attack import Outcome, balanced_accuracy, declare, share_right
from veilboost.audit.replay import ReplayedRound, assignments_of, foreign_assignments, rounds
from veilboost.audit.solvers import forest_guess, logistic
from veilboost.audit.view import POOLED, Truth, View
from veilboost.protocols.federboost.messages import Buckets, BucketSplits
from veilboost.types import Column, Float64Array, Int32Array, Int64Array, PartyName

KNOWN = 40  # labels that the attacker knows in advance
COLUMN_SCALE = 0.5  # weight of one standard deviation of a column; a node has weight 1


@declare("labels from rows that share a node", "passive", "active", "labels")
def instance_clusters(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Labels from rows that share a node, which every vertical protocol that grows trees over parties reveals.

    Rows that share nodes in many trees tend to share labels. A passive party that knows the labels of a few rows (they
    may be its customers too) fits a logistic regression over nodes to them and guesses all other labels. The baseline
    uses the same labels and the party's own columns without any run.
    """
    played = rounds(view, victim)
    nodes = [rows for one in played for rows in _nodes(one)]
    return labels_from_groups(nodes, f"{len(played)} rounds", [view], truth, victim, rng)


@declare("labels from rows that share a node, pooled", POOLED, "active", "labels")
def pooled_clusters(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Labels from the pooled views of all passive parties: their nodes and their columns.

    All receive the same nodes except in the last level of a tree, where each knows the assignments of its own splits.
    The baseline uses the columns of all passive parties and the same known labels without any run.
    """
    seed = int(rng.integers(1 << 32))  # the same known labels for all

    def reached(members: Sequence[View]) -> Outcome | None:
        played = [one for member in members for one in rounds(member, victim)]
        nodes = {rows.tobytes(): rows for one in played for rows in _nodes(one)}
        what = f"{len(nodes)} groups of rows and {len(members)} parties' columns"
        return labels_from_groups([*nodes.values()], what, members, truth, victim, np.random.default_rng(seed), True)

    pooled = reached(view.members)
    singles = [found.value for found in (reached([member]) for member in view.members) if found is not None]
    if pooled is None or not singles:
        return None
    gain = pooled.value - max(singles)
    return replace(pooled, sentence=f"{pooled.sentence}; {gain:+.3f} compared with the best single party")


def labels_from_groups(
    groups: Sequence[Int32Array],
    what: str,
    views: Sequence[View],
    truth: Truth,
    victim: PartyName,
    rng: np.random.Generator,
    with_columns: bool = False,
) -> Outcome | None:
    """Labels from groups of rows and a few known labels; `with_columns` also uses the adversaries' own columns.

    None if there is nothing to learn from.
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
        scaled = COLUMN_SCALE * (columns - columns.mean(axis=0)) / (columns.std(axis=0) + 1e-9)
        by_columns = _by_nodes([], rows, known, labels[known], scaled)
        alone = max(alone, balanced_accuracy(labels[others], by_columns[others], "").value)
    guess = _by_nodes(groups, rows, known, labels[known], scaled)
    sentence = (
        f"from {len(known)} known labels and {what}, {{value:.3f}} balanced accuracy; "
        f"the same labels and {'its' if len(views) == 1 else 'their'} own columns alone give {alone:.3f}"
    )
    found = balanced_accuracy(labels[others], guess[others], sentence)
    baseline = max(alone, found.baseline)
    # Labels are partly random, so not all can be recovered: a quarter of the way counts as success.
    return replace(found, baseline=baseline, bar=baseline + (1 - baseline) / 4)


def _known_rows(labels: Float64Array, classes: Float64Array, rng: np.random.Generator) -> Int64Array:
    """A few rows of every class."""
    each = max(KNOWN // len(classes), 1)
    picked = [rng.permutation(np.flatnonzero(labels == one))[:each] for one in classes.tolist()]
    return np.sort(np.concatenate(picked))


def _nodes(one: ReplayedRound) -> Iterator[Int32Array]:
    """The rows of every node of a round that this party knows; in the last level, of the nodes it split itself."""
    for level in one.levels:
        for groups in (level.fit, level.routed):
            for begin, end in zip(groups.begin.tolist(), groups.end.tolist(), strict=True):
                yield groups.rows[begin:end]
        for _, _, left, right in level.assignments():
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


MOST_SPLITS, LEAST_SHARED = 200, 20


@dataclass
class _Chain:
    """Splits that may be on one column: the sum of each row's directions (-1 left, 1 right), and the splits."""

    score: Float64Array
    splits: list[Int32Array] = field(default_factory=list[Int32Array])

    def shared(self, direction: Int32Array) -> int:
        """The number of rows that a split shares with these splits; -1 if it contradicts one of them."""
        seen = 0
        for split in self.splits:
            here, there = direction[split != 0], split[split != 0]
            both = int(np.count_nonzero(here))
            if np.any((here < 0) & (there > 0)) and np.any((here > 0) & (there < 0)):
                return -1
            seen += both
        return seen


@declare("order of values from winning splits", "active", "passive", "features")
def feature_order(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """The order of a column's values, from the left/right assignments of winning splits.

    Every protocol that splits nodes reveals these assignments row by row. Rows on the left of a split have smaller
    values than rows on the right. Two splits on one column never contradict each other, two on different columns nearly
    always do. The attack groups splits into columns without knowing their handles, and sums the splits of a column to
    an order of its rows.
    """
    return order_from(assignments_of(view, victim).values(), view.rows, truth.tables[victim].columns)


def order_from(
    assignments: Iterable[tuple[Int32Array, Int32Array]], rows: int, columns: Sequence[Column]
) -> Outcome | None:
    """How well splits, each with its left and right rows, order some column; None if there are no splits."""
    found = sorted(assignments, key=lambda pair: -len(pair[0]) - len(pair[1]))[:MOST_SPLITS]
    if not found or not columns:
        return None
    chains: list[_Chain] = []
    for left, right in found:
        direction = np.zeros(rows, dtype=np.int32)
        direction[left], direction[right] = -1, 1
        shared = [chain.shared(direction) for chain in chains]
        best = int(np.argmax(shared)) if shared else 0
        if not shared or shared[best] < LEAST_SHARED:
            if np.count_nonzero(direction) < rows / 4:
                continue  # too small to start a column of its own
            chains.append(_Chain(np.zeros(rows)))
            best = -1
        chains[best].splits.append(direction)
        chains[best].score += direction
    values = [column.values.astype(np.float64) for column in columns]
    reached = [max(_correlation(chain.score, column) for chain in chains) for column in values] if chains else [0.0]
    value = float(np.max(reached))
    error = 1.96 / np.sqrt(max(rows - 3, 1))  # of a rank correlation, Fisher
    low, high = (float(np.tanh(np.arctanh(min(value, 0.999999)) + sign * error)) for sign in (-1, 1))
    sentence = (
        f"{len(found)} winning splits order the rows of one column with rank correlation {value:.3f}, "
        f"and of the average column with {float(np.mean(reached)):.3f}"
    )
    return Outcome("rank correlation", value, 0.0, max(low, 0.0), high, sentence)


def _correlation(score: Float64Array, column: Float64Array) -> float:
    """The absolute value of Spearman's correlation: the direction of an order is one bit."""
    there = np.isfinite(column)
    if np.ptp(score[there]) == 0 or np.ptp(column[there]) == 0:
        return 0.0
    one, other = (_ranks(each[there]) for each in (score, column))
    one, other = one - one.mean(), other - other.mean()
    return abs(float(one @ other / np.sqrt((one @ one) * (other @ other))))


def _ranks(values: Float64Array) -> Float64Array:
    """Ranks; equal values get their mean rank."""
    _, at, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count + 1) / 2)[at]


@declare("order of the active party's values", "passive", "active", "features")
def active_order(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """The order of the active party's values, from the left/right assignments of its splits.

    Every passive party receives these assignments because it tracks the rows of each node. It does not receive the
    owner of a split. With two parties, a split that is not its own is the active party's; with more parties, the splits
    of all others are mixed, and the attack groups them into columns.
    """
    return order_from(foreign_assignments(view, victim), view.rows, truth.tables[victim].columns)


@declare("labels from own winning splits", "passive", "active", "labels", (BucketSplits,))
def own_cuts(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Labels from the passive party's own splits that won, which is all that `federboost` reveals to it about labels.

    The splits that the active party chose separate the labels. The owner knows the left/right assignments of its rows
    and learns from a few known labels what they mean, as `instance_clusters` does with nodes.
    """
    if view.share is None or view.own is None:
        return None
    records, values = view.share.records, view.share.matrix(view.own.columns, view.rows)
    every = np.arange(view.rows, dtype=np.int32)
    splits = [
        records.goes_left(values, np.full(view.rows, at, dtype=np.int32), every) for at in range(len(records.tree))
    ]
    groups = list(chain.from_iterable((every[left], every[~left]) for left in splits))
    return labels_from_groups(groups, f"{len(splits)} own winning splits", [view], truth, victim, rng)


@declare("buckets as reported", "active", "passive", "features", (Buckets,))
def reported_buckets(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Buckets as reported: randomized response reports the true bucket more often than any other."""
    reported, block = view.received(Buckets, victim), truth.block(victim)
    if not reported or block.shared is None or block.layout.features == 0:
        return None
    true = block.shared.bins[0].astype(np.int64)
    hits = reported[0].buckets == true
    fullest = float(np.mean([np.bincount(column).max() / len(column) for column in true.T]))
    sentence = f"{float(hits.mean()):.3f} of reported buckets are the true ones; the fullest bucket holds {fullest:.3f}"
    return share_right("buckets right", hits, fullest, sentence)
