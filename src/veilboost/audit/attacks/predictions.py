"""What a model's scores tell whoever asks for them: which rows were trained on, and what others hold of a row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from veilboost.audit.attack import Z95, Outcome, declare, share_right
from veilboost.audit.view import ASKER, Truth, View
from veilboost.boost.grower import LEAF, Tree
from veilboost.boost.metrics import auc, ks
from veilboost.data.table import PartyTable
from veilboost.model.share import ModelShare, Skeleton
from veilboost.types import AnyArray, BoolArray, Float64Array, Int64Array, PartyName

ASKED = 200  # rows whose scores are looked into
MOST_SUMS = 1 << 16  # that half of the trees may give one row; beyond, they are not listed
EXACT = 1e-9  # to which a sum of leaf weights follows from a score
FALSE_ALARMS = 0.01

Assignments = Mapping[tuple[int, int], AnyArray]  # at each node (tree, node): how likely each row goes left


@declare("membership from scores", ASKER, "active", "who was trained on")
def membership(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Whether a row was trained on, from its score and its label: a model fits its own rows better than others.

    The smaller the loss, the more likely a row was trained on (Yeom et al. 2018). The value is the area under the ROC
    curve, rows of the training against rows that were kept from it. Knowing nothing gives 0.5.
    """
    skeleton = _whole(truth)
    if skeleton is None:
        return None
    # A model of a horizontal job is in one hand, and every participant has all of its columns.
    inside = {name: truth.tables.get(name, truth.tables[victim]) for name in truth.shares}
    if truth.held_out is not None:
        fitted = np.flatnonzero(~truth.held_out)
        inside = {name: table.take(fitted) for name, table in inside.items()}
    losses = [_losses(skeleton, truth.shares, tables) for tables in (inside, truth.strangers)]
    member = np.repeat([1.0, 0.0], [len(each) for each in losses])
    value = auc(member, -np.concatenate(losses))
    bar = np.quantile(losses[1], FALSE_ALARMS)
    sentence = (
        f"the loss tells {len(losses[0])} trained rows from {len(losses[1])} others with AUC {value:.3f}, advantage "
        f"{ks(member, -np.concatenate(losses)):.3f}; at {FALSE_ALARMS:.0%} false alarms it finds "
        f"{float(np.mean(losses[0] < bar)):.3f} of the trained"
    )
    error = Z95 * _auc_error(value, len(losses[0]), len(losses[1]))
    return Outcome("AUC", value, 0.5, max(value - error, 0.0), min(value + error, 1.0), sentence)


@declare("membership of a participant's rows from scores", ASKER, "participant", "who was trained on")
def membership_horizontal(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """`membership`, of one participant's rows."""
    return membership.run(view, truth, victim, rng)


@declare("sides of cuts from scores", "active", "passive", "features")
def path_restriction(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """On which side of a passive party's cuts a row lies, from its score, the own columns and the trees' shape.

    The own columns leave a few leaves of each tree; of their combinations only those count whose weights add up to the
    score (path restriction, Luo et al. 2021). They are listed where they are few enough; elsewhere the weights of all
    other trees count as normal noise. The value is over the victim's cuts on the rows' true paths, for rows that were
    not trained on; the baseline guesses the side that most of the training went to. In joint prediction the active
    party is told these sides anyway: this is for scores without paths, as in secure inference.
    """
    skeleton = _whole(truth)
    if skeleton is None or view.share is None or not skeleton.trees or skeleton.trees_per_round > 1:
        return None
    some = rng.permutation(next(iter(truth.strangers.values())).rows)[:ASKED]
    tables = {name: table.take(some) for name, table in truth.strangers.items()}
    true, own = _assignments(truth.shares, tables), _assignments({view.party: view.share}, tables)
    paths, prior = ([_reach(tree, at, way, len(some)) for at, tree in enumerate(skeleton.trees)] for way in (true, own))
    hits, usual, sure = list[bool](), list[bool](), list[bool]()
    for row, total in enumerate(_sums_told(skeleton, paths).tolist()):
        leaves, listed = _leaves_of(skeleton.trees, [each[:, row] for each in prior], total)
        for number, tree in enumerate(skeleton.trees):
            for node in reversed(np.flatnonzero(tree.left != LEAF).tolist()):  # children before their parents
                at = tree.left[node]
                left, right = leaves[number][at], leaves[number][at + 1]
                leaves[number][node] = left + right
                if paths[number][node, row] and skeleton.parties[tree.owner[node]] == victim:
                    went, mostly = bool(true[number, node][row]), _share_left(tree, node) > 0.5
                    hits.append((left > right if left != right else mostly) == went)
                    usual.append(mostly == went)
                    sure.append(listed and min(left, right) == 0.0)
    if not hits:
        return None
    right, baseline = np.array(hits), float(np.mean(usual))
    sentence = (
        f"the scores of {len(some)} rows give {float(right.mean()):.3f} of the sides of the cuts they met, and leave "
        f"only one side for {float(np.mean(sure)):.3f}; the more common side is right for {baseline:.3f}"
    )
    return share_right("sides right", right, baseline, sentence, len(some))


# --- answers of the model -----------------------------------------------------------------------------------------


def _whole(truth: Truth) -> Skeleton | None:
    """The skeleton, where the model's shares are all there and rows that were not trained on can be asked for."""
    found = next((share.skeleton for share in truth.shares.values() if share.skeleton is not None), None)
    whole = found is not None and set(found.parties) == set(truth.shares) == set(truth.strangers)
    return found if whole else None


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
    """Of the training, as the trees' shape tells it."""
    left, right = np.maximum(tree.cover[tree.left[node] :][:2], 0.0) + 1.0
    return float(left / (left + right))


def _reach(tree: Tree, number: int, sides: Assignments, rows: int) -> Float64Array:
    """How likely each row comes to each node, (nodes, rows); where a side is not known by the share of the training."""
    reach = np.zeros((tree.nodes, rows))
    reach[0] = 1.0
    for node in np.flatnonzero(tree.left != LEAF).tolist():  # parents come before their children
        left, at = sides.get((number, node), _share_left(tree, node)), tree.left[node]
        reach[at], reach[at + 1] = reach[node] * left, reach[node] * (1.0 - left)
    return reach


def _losses(
    skeleton: Skeleton, shares: Mapping[PartyName, ModelShare], tables: Mapping[PartyName, PartyTable]
) -> Float64Array:
    label = next(table.label for table in tables.values() if table.label is not None)
    sides = _assignments(shares, tables)
    score = _scores(
        skeleton, (_reach(tree, at, sides, len(label)) for at, tree in enumerate(skeleton.trees)), len(label)
    )
    if skeleton.objective == "multiclass":
        return -np.log(score[np.arange(len(label)), label.astype(np.int64)] + 1e-300)
    if skeleton.objective == "binary":
        return -np.log(np.where(label > 0, score, 1.0 - score) + 1e-300)
    return (score - label) ** 2


def _scores(skeleton: Skeleton, paths: Iterable[Float64Array], rows: int) -> Float64Array:
    """What the model answers for rows that take these paths."""
    margin = np.repeat(skeleton.base_margin[:, None], rows, axis=1)
    for number, (tree, path) in enumerate(zip(skeleton.trees, paths, strict=True)):
        margin[number % skeleton.trees_per_round] += np.where(tree.left == LEAF, tree.weight, 0.0) @ path
    return skeleton.loss.predict(margin)


def _sums_told(skeleton: Skeleton, paths: Sequence[Float64Array]) -> Float64Array:
    """The sums of leaf weights that follow from the scores of these rows."""
    score = _scores(skeleton, paths, paths[0].shape[1])
    if skeleton.objective == "binary":
        score = np.clip(score, 1e-300, 1.0 - 2.0**-53)  # a score that is rounded to 0 or 1 says no more than that
        score = np.log(score) - np.log1p(-score)
    elif skeleton.objective == "poisson":
        score = np.log(score)
    return score - skeleton.base_margin[0]


def _auc_error(value: float, members: int, others: int) -> float:
    """The standard error of an AUC (Hanley and McNeil 1982)."""
    one, two = value / (2 - value), 2 * value * value / (1 + value)
    spread = value * (1 - value) + (members - 1) * (one - value**2) + (others - 1) * (two - value**2)
    return math.sqrt(max(spread, 0.25) / (members * others))


# --- which leaves add up to a score -------------------------------------------------------------------------------


def _leaves_of(trees: Sequence[Tree], prior: Sequence[Float64Array], total: float) -> tuple[list[Float64Array], bool]:
    """How likely a row is in each leaf of each tree, (nodes,) each, and whether all that add up were listed."""
    leaves = [np.flatnonzero((tree.left == LEAF) & (p > 0)) for tree, p in zip(trees, prior, strict=True)]
    weights = [tree.weight[at].astype(np.float64) for tree, at in zip(trees, leaves, strict=True)]
    chances = [p[at] for p, at in zip(prior, leaves, strict=True)]
    likely = _listed(weights, chances, total)
    listed = likely is not None
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
    return found, listed


def _listed(
    weights: Sequence[Float64Array], chances: Sequence[Float64Array], total: float
) -> list[Float64Array] | None:
    """How likely each leaf is, from all combinations that give the total; None where there are too many, or none."""
    bits: Float64Array = np.cumsum(np.log2([len(each) for each in weights]))
    middle = int(np.count_nonzero(bits < bits[-1] / 2))
    halves = [(weights[:middle], chances[:middle]), (weights[middle:], chances[middle:])]
    if any(math.prod(map(len, half)) > MOST_SUMS for half, _ in halves):
        return None
    (one, p, first), (two, q, second) = (_combined(*half) for half in halves)
    order = np.argsort(two)
    begin, end = (np.searchsorted(two[order], total - one + way * EXACT) for way in (-1, 1))
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
    """All combinations of a leaf of each tree: sums, how likely they are, and the leaves (trees, combinations)."""
    total, chance, picked = np.zeros(1), np.ones(1), np.empty((0, 1), dtype=np.int64)
    for weight, p in zip(weights, chances, strict=True):
        picked = np.vstack([picked.repeat(len(weight), axis=1), np.tile(np.arange(len(weight)), len(total))])
        total, chance = (total[:, None] + weight).ravel(), (chance[:, None] * p).ravel()
    return total, chance, picked
