"""Attacks on a model's scores: which rows were used in training, and other parties' values of a row."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from veilboost.audit.attack import Z95, Outcome, declare, share_right
from veilboost.audit.view import USER, Truth, View
from veilboost.boost.grower import LEAF, Tree
from veilboost.boost.metrics import auc, ks
from veilboost.boost.regression import LogLink
from veilboost.data.table import PartyTable
from veilboost.model.share import ModelShare, Skeleton, SplitRecords
from veilboost.types import AnyArray, BoolArray, Float64Array, Int64Array, PartyName

SCORED = 200  # rows whose scores are attacked
MOST_SUMS = 1 << 16  # possible sums of half of the trees for one row; beyond that, they are not enumerated
EXACT = 1e-9  # precision of a sum of leaf weights derived from a score
FALSE_ALARMS = 0.01
EXPLAINED = 1000  # rows whose explanations are attacked
LINKED = 500  # splits whose columns are compared
CROSSED = 0.1  # two thresholds of a column never cross; rows that cross them, relative to independent columns

Assignments = Mapping[tuple[int, int], AnyArray]  # for each node (tree, node): the probability that each row goes left


@declare("membership from scores", USER, "active", "membership in the training data")
def membership(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Whether a row was used in training, from its score and its label: a model fits its training rows better.

    The smaller the loss, the more likely a row was used in training (Yeom et al. 2018). The value is the area under the
    ROC curve, training rows against rows that were held back. A blind guess gives 0.5.
    """
    skeleton = _full_skeleton(truth)
    if skeleton is None:
        return None
    # The model of a horizontal job is a single share, and every participant has all of its columns.
    inside = {name: truth.tables.get(name, truth.tables[victim]) for name in truth.shares}
    if truth.held_out is not None:
        fitted = np.flatnonzero(~truth.held_out)
        inside = {name: table.take(fitted) for name, table in inside.items()}
    losses = [_losses(skeleton, truth.shares, tables) for tables in (inside, truth.untrained)]
    member = np.repeat([1.0, 0.0], [len(each) for each in losses])
    value = auc(member, -np.concatenate(losses))
    bar = np.quantile(losses[1], FALSE_ALARMS)
    sentence = (
        f"the loss separates {len(losses[0])} training rows from {len(losses[1])} others with AUC {value:.3f}, "
        f"advantage {ks(member, -np.concatenate(losses)):.3f}; at {FALSE_ALARMS:.0%} false alarms it finds "
        f"{float(np.mean(losses[0] < bar)):.3f} of the training rows"
    )
    error = Z95 * _auc_error(value, len(losses[0]), len(losses[1]))
    return Outcome("AUC", value, 0.5, max(value - error, 0.0), min(value + error, 1.0), sentence)


@declare("membership of a participant's rows from scores", USER, "participant", "membership in the training data")
def membership_horizontal(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """`membership` for one participant's rows."""
    return membership.run(view, truth, victim, rng)


@declare("path restriction from scores", "active", "passive", "features")
def path_restriction(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """A row's left/right assignments at a passive party's splits, from its score, the own columns and the tree shapes.

    The own columns leave a few possible leaves in each tree; only combinations whose weights add up to the score remain
    (path restriction, Luo et al. 2021). They are enumerated if they are few; otherwise the weights of all other trees
    count as normal noise. The value is over the victim's splits on the true paths of rows that were not used in
    training; the baseline guesses the child that most training rows went to. In joint prediction the active party
    receives these assignments anyway: the attack matters for scores without paths, as in secure inference.
    """
    skeleton = _full_skeleton(truth)
    if skeleton is None or view.share is None or not skeleton.trees or skeleton.trees_per_round > 1:
        return None
    some = rng.permutation(next(iter(truth.untrained.values())).rows)[:SCORED]
    tables = {name: table.take(some) for name, table in truth.untrained.items()}
    true, own = _assignments(truth.shares, tables), _assignments({view.party: view.share}, tables)
    paths, prior = (
        [_reach(tree, at, known, len(some)) for at, tree in enumerate(skeleton.trees)] for known in (true, own)
    )
    hits, usual, sure = list[bool](), list[bool](), list[bool]()
    for row, total in enumerate(_sums_from_scores(skeleton, paths).tolist()):
        leaves, complete = _leaves_of(skeleton.trees, [each[:, row] for each in prior], total)
        for number, tree in enumerate(skeleton.trees):
            for node in reversed(np.flatnonzero(tree.left != LEAF).tolist()):  # children before their parents
                at = tree.left[node]
                left, right = leaves[number][at], leaves[number][at + 1]
                leaves[number][node] = left + right
                if paths[number][node, row] and skeleton.parties[tree.owner[node]] == victim:
                    went, mostly = bool(true[number, node][row]), _share_left(tree, node) > 0.5
                    hits.append((left > right if left != right else mostly) == went)
                    usual.append(mostly == went)
                    sure.append(complete and min(left, right) == 0.0)
    if not hits:
        return None
    right, baseline = np.array(hits), float(np.mean(usual))
    sentence = (
        f"the scores of {len(some)} rows give {float(right.mean()):.3f} of the left/right assignments on their paths, "
        f"and determine {float(np.mean(sure)):.3f} of them; the more common child is right for {baseline:.3f}"
    )
    return share_right("assignments right", right, baseline, sentence, len(some))


@declare("column order from explanations", "active", "passive", "features")
def explained_order(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """The order of rows by a passive party's columns, from their left/right assignments at all of its splits.

    An explanation at the level `party` reveals which splits of one tree share a column. Splits of different trees are
    linked if the rows that go left at one are among those that go left at the other, as with two thresholds of one
    column. A row's place is the number of linked splits at which it goes right. The value is the mean rank correlation
    with the true numeric columns, over rows that were not used in training. The baseline is what predictions alone
    give: the assignments on the rows' paths, with the columns of all splits known.
    """
    skeleton = _full_skeleton(truth)
    if skeleton is None or not skeleton.trees:
        return None
    some = rng.permutation(next(iter(truth.untrained.values())).rows)[:EXPLAINED]
    tables, share = {name: table.take(some) for name, table in truth.untrained.items()}, truth.shares[victim]
    first = itertools.islice(share.records.rules().items(), LINKED)  # linking takes the square of their number
    true, records = _assignments(truth.shares, tables), SplitRecords.of(dict(first))
    keys: list[tuple[int, int]] = list(zip(records.tree.tolist(), records.node.tolist(), strict=True))
    values = share.matrix(tables[victim].columns, len(some))
    used: list[int] = np.unique(records.feature).tolist()
    columns = [f for f in used if share.columns[f].categories is None and np.isfinite(values[f]).sum() > 3]
    if not columns or len(some) < 4:
        return None
    right: BoolArray = ~np.stack([true[key] for key in keys])
    reached = [_reach(tree, at, true, len(some)) for at, tree in enumerate(skeleton.trees)]
    visited = np.stack([reached[tree][node] for tree, node in keys]) > 0
    usual = (right & visited).sum(axis=1, keepdims=True) / np.maximum(visited.sum(axis=1, keepdims=True), 1)
    linked = _linked(right, records)
    found: dict[str, list[float]] = {"linked": [], "columns": [], "paths": []}
    for feature in columns:
        own, known = records.feature == feature, np.isfinite(values[feature])
        group = np.bincount(linked[own]).argmax()
        paths = np.where(visited, right - usual, 0.0)[own].sum(axis=0) / np.maximum(visited[own].sum(axis=0), 1)
        places = {"linked": right[linked == group].sum(axis=0), "columns": right[own].sum(axis=0), "paths": paths}
        for name, place in places.items():
            found[name].append(_rank_correlation(place[known], values[feature][known]))
    value, by_columns, baseline = (max(sum(each) / len(each), 0.0) for each in found.values())
    pairs = (records.feature[:, None] == records.feature) & (records.tree[:, None] != records.tree)
    together: BoolArray = pairs & (linked[:, None] == linked)
    share_linked = np.count_nonzero(together) / max(np.count_nonzero(pairs), 1)
    sentence = (
        f"explanations of {len(some)} rows order them by {len(columns)} numeric columns with a rank correlation of "
        f"{value:.3f}, {by_columns:.3f} if columns have pseudonyms; {share_linked:.3f} of the splits of one column in "
        f"two trees are linked; the paths of predictions give {baseline:.3f}"
    )
    # Fisher's interval of a correlation of that many rows.
    centre, half = math.atanh(min(value, 1 - 1e-9)), Z95 / math.sqrt(len(some) - 3)
    low, high = max(math.tanh(centre - half), 0.0), math.tanh(centre + half)
    return Outcome("rank correlation", value, baseline, low, high, sentence)


def _linked(right: BoolArray, records: SplitRecords) -> Int64Array:
    """Groups of splits that seem to use one column; splits of one tree by different columns are never together."""
    count, ones = len(right), right.astype(np.float64)
    share = ones.mean(axis=1)
    both = ones @ ones.T / right.shape[1]
    crossed = np.minimum(share[:, None] - both, share - both)  # rows on one side of each split only
    chance = np.minimum(share[:, None] * (1 - share), share * (1 - share[:, None]))
    ratio = np.where(chance > 0, crossed / np.maximum(chance, 1e-12), 1.0)
    one_tree = records.tree[:, None] == records.tree
    same = records.feature[:, None] == records.feature
    ratio[one_tree] = np.where(same[one_tree], 0.0, np.inf)
    group = np.arange(count)
    first, second = np.nonzero(np.triu(ratio <= CROSSED, 1))
    for at in np.argsort(ratio[first, second], kind="stable").tolist():
        a, b = group[first[at]], group[second[at]]
        if a != b and not np.isinf(ratio[np.ix_(group == a, group == b)]).any():
            group[group == b] = a
    return group


def _rank_correlation(first: AnyArray, second: AnyArray) -> float:
    """Spearman's; 0 if one of them does not vary."""
    one, two = (each - each.mean() for each in (_ranks(first), _ranks(second)))
    size = math.sqrt(float(one @ one) * float(two @ two))
    return float(one @ two) / size if size > 0 else 0.0


def _ranks(values: AnyArray) -> Float64Array:
    """The rank of each value; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


# --- scores of the model ------------------------------------------------------------------------------------------


def _full_skeleton(truth: Truth) -> Skeleton | None:
    """The skeleton, if all model shares and rows that were not used in training are available."""
    found = next((share.skeleton for share in truth.shares.values() if share.skeleton is not None), None)
    complete = found is not None and set(found.parties) == set(truth.shares) == set(truth.untrained)
    return found if complete else None


def _assignments(
    shares: Mapping[PartyName, ModelShare], tables: Mapping[PartyName, PartyTable]
) -> dict[tuple[int, int], BoolArray]:
    found: dict[tuple[int, int], BoolArray] = {}
    for name, share in shares.items():
        every = np.arange(tables[name].rows, dtype=np.int32)
        values = share.matrix(tables[name].columns, len(every))
        for record, key in enumerate(zip(share.records.tree.tolist(), share.records.node.tolist(), strict=True)):
            found[key] = share.records.goes_left(values, np.full(len(every), record, dtype=np.int32), every)
    return found


def _share_left(tree: Tree, node: int) -> float:
    """The share of training rows that went left, from the covers in the skeleton."""
    left, right = np.maximum(tree.cover[tree.left[node] :][:2], 0.0) + 1.0
    return float(left / (left + right))


def _reach(tree: Tree, number: int, assignments: Assignments, rows: int) -> Float64Array:
    """The probability (nodes, rows) that a row reaches a node; unknown assignments count with the training share."""
    reach = np.zeros((tree.nodes, rows))
    reach[0] = 1.0
    for node in np.flatnonzero(tree.left != LEAF).tolist():  # parents come before their children
        left, at = assignments.get((number, node), _share_left(tree, node)), tree.left[node]
        reach[at], reach[at + 1] = reach[node] * left, reach[node] * (1.0 - left)
    return reach


def _losses(
    skeleton: Skeleton, shares: Mapping[PartyName, ModelShare], tables: Mapping[PartyName, PartyTable]
) -> Float64Array:
    label = next(table.label for table in tables.values() if table.label is not None)
    assignments = _assignments(shares, tables)
    score = _scores(
        skeleton, (_reach(tree, at, assignments, len(label)) for at, tree in enumerate(skeleton.trees)), len(label)
    )
    if skeleton.objective == "multiclass":
        return -np.log(score[np.arange(len(label)), label.astype(np.int64)] + 1e-300)
    if skeleton.objective == "binary":
        return -np.log(np.where(label > 0, score, 1.0 - score) + 1e-300)
    return (score - label) ** 2


def _scores(skeleton: Skeleton, paths: Iterable[Float64Array], rows: int) -> Float64Array:
    """The scores of rows that take these paths."""
    margin = np.repeat(skeleton.base_margin[:, None], rows, axis=1)
    for number, (tree, path) in enumerate(zip(skeleton.trees, paths, strict=True)):
        margin[number % skeleton.trees_per_round] += np.where(tree.left == LEAF, tree.weight, 0.0) @ path
    return skeleton.loss.predict(margin)


def _sums_from_scores(skeleton: Skeleton, paths: Sequence[Float64Array]) -> Float64Array:
    """The sums of leaf weights that follow from the scores of these rows."""
    score = _scores(skeleton, paths, paths[0].shape[1])
    if skeleton.objective == "binary":
        score = np.clip(score, 1e-300, 1.0 - 2.0**-53)  # a score that is rounded to 0 or 1 reveals only that
        score = np.log(score) - np.log1p(-score)
    elif isinstance(skeleton.loss, LogLink):
        score = np.log(score)
    return score - skeleton.base_margin[0]


def _auc_error(value: float, members: int, others: int) -> float:
    """The standard error of an AUC (Hanley and McNeil 1982)."""
    one, two = value / (2 - value), 2 * value * value / (1 + value)
    spread = value * (1 - value) + (members - 1) * (one - value**2) + (others - 1) * (two - value**2)
    return math.sqrt(max(spread, 0.25) / (members * others))


# --- which leaves add up to a score -------------------------------------------------------------------------------


def _leaves_of(trees: Sequence[Tree], prior: Sequence[Float64Array], total: float) -> tuple[list[Float64Array], bool]:
    """The probability of each leaf of each tree for a row, and whether all combinations were enumerated."""
    leaves = [np.flatnonzero((tree.left == LEAF) & (p > 0)) for tree, p in zip(trees, prior, strict=True)]
    weights = [tree.weight[at].astype(np.float64) for tree, at in zip(trees, leaves, strict=True)]
    chances = [p[at] for p, at in zip(prior, leaves, strict=True)]
    likely = _enumerated(weights, chances, total)
    complete = likely is not None
    if likely is None:
        mean = [float(w @ p) for w, p in zip(weights, chances, strict=True)]
        spread = [float((w - m) ** 2 @ p) for w, p, m in zip(weights, chances, mean, strict=True)]
        likely = [
            p * np.exp(-((total - w - sum(mean) + m) ** 2) / (2 * (sum(spread) - s) + EXACT))
            for w, p, m, s in zip(weights, chances, mean, spread, strict=True)
        ]
    found = [np.zeros(tree.nodes) for tree in trees]
    for nodes, at, p in zip(found, leaves, likely, strict=True):
        nodes[at] = p
    return found, complete


def _enumerated(
    weights: Sequence[Float64Array], chances: Sequence[Float64Array], total: float
) -> list[Float64Array] | None:
    """The probability of each leaf, from all combinations with this total; None if there are too many, or none."""
    bits: Float64Array = np.cumsum(np.log2([len(each) for each in weights]))
    middle = int(np.count_nonzero(bits < bits[-1] / 2))
    halves = [(weights[:middle], chances[:middle]), (weights[middle:], chances[middle:])]
    if any(math.prod(map(len, half)) > MOST_SUMS for half, _ in halves):
        return None
    (one, p, first), (two, q, second) = (_combined(*half) for half in halves)
    order = np.argsort(two)
    begin, end = (np.searchsorted(two[order], total - one + sign * EXACT) for sign in (-1, 1))
    count = end - begin
    if not 0 < count.sum() <= MOST_SUMS * 16:
        return None
    here = np.repeat(np.arange(len(one)), count)
    there = order[np.arange(len(here)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(begin, count)]
    chance = p[here] * q[there]
    picked = [*first[:, here], *second[:, there]]
    return [np.bincount(at, chance, len(each)).astype(np.float64) for at, each in zip(picked, weights, strict=True)]


def _combined(
    weights: Sequence[Float64Array], chances: Sequence[Float64Array]
) -> tuple[Float64Array, Float64Array, Int64Array]:
    """All combinations of one leaf per tree: sums, probabilities and leaves (trees, combinations)."""
    total, chance, picked = np.zeros(1), np.ones(1), np.empty((0, 1), dtype=np.int64)
    for weight, p in zip(weights, chances, strict=True):
        picked = np.vstack([picked.repeat(len(weight), axis=1), np.tile(np.arange(len(weight)), len(total))])
        total, chance = (total[:, None] + weight).ravel(), (chance[:, None] * p).ravel()
    return total, chance, picked
