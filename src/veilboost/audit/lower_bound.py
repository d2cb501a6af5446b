"""Lower bounds on epsilon: many small runs on two neighbouring tables, and a test that distinguishes them.

If a release is (epsilon, delta) private, a test that is right on one table with probability p is wrong on the other
with probability at least exp(-epsilon) (p - delta). A threshold on a score, chosen on a third of the runs, and
Clopper-Pearson bounds on its two rates in the other runs give a lower bound on the true epsilon, with confidence.

Trees, depth and the share of the budget for selections are those that `sealed` chooses itself. The first score of a run
is the log-likelihood ratio of the two tables under the claimed noise, over everything that was released; the other
scores use one kind of release each, and test for noise that is missing or reused. The best score is chosen on the same
third of the runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from veilboost.audit.attacks.bins import histograms
from veilboost.audit.replay import leaves_of_rows, rounds
from veilboost.audit.solvers import beta_quantile
from veilboost.audit.sources import views_of_simulation
from veilboost.audit.view import Truth, View
from veilboost.boost.bins import KIND_CODES
from veilboost.boost.grower import LEAF, Tree
from veilboost.boost.objective import sigmoid
from veilboost.config import DEFAULTS, ROUNDS, TrainingConfig
from veilboost.crypto.csprng import JobRandomness
from veilboost.crypto.fingerprint import content_digest
from veilboost.data.table import PartyTable
from veilboost.errors import InvalidParameter
from veilboost.party.simulation import simulate_training
from veilboost.privacy.discrete import cell_counts, noisy_cuts
from veilboost.protocols.sealed.parameters import cell_sigmas, cuts_event, cuts_sigma, label_noise, options_of
from veilboost.protocols.sealed.spec import SPEC as SEALED
from veilboost.types import AnyArray, BoolArray, Column, ColumnKind, Float32Array, Float64Array, Int32Array, PartyName

ROWS, DELTA, CONFIDENCE = 40, 0.1, 0.95
LEAST_RUNS = 20
MOST_THRESHOLDS = 2000  # that are tried
LEAST_SHARE = 1 / 20  # the share of a node's rows that each child must have in `sealed`
SAME = 1e-3  # noise of two leaves within this distance is equal: rounding is smaller, and the grid is finer
OWN_COLUMNS = 80  # of the active party; they win most nodes, so splits of the passive column seldom reveal the record


@dataclass(frozen=True)
class LowerBound:
    """With this confidence, the true epsilon at `delta` is at least `epsilon`; `claimed` is the claimed epsilon."""

    of: str
    claimed: float
    epsilon: float
    delta: float
    repeats: int
    confidence: float = CONFIDENCE

    @property
    def holds(self) -> bool:
        return self.epsilon <= self.claimed

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"holds": self.holds}


def label_lower_bound(
    eps: float,
    repeats: int,
    seed: int = 0,
    delta: float = DELTA,
    confidence: float = CONFIDENCE,
    trees: int = ROUNDS,
    depth: int = DEFAULTS.max_depth,
) -> LowerBound:
    """The bound for one person's label in `sealed`, against an attacker that sees nodes and leaves and knows all else.

    `sealed` chooses trees and depth that are not given.
    """
    labels = (np.arange(ROWS) % 2).astype(np.float64)
    tables = _label_tables(labels, depth)
    changed = np.concatenate((1.0 - labels[:1], labels[1:]))  # the first row has the other label
    other = {**tables, "bank": replace(tables["bank"], label=changed)}
    # Small steps keep predictions near 1/2, so that no other rows outweigh a label in the utilities.
    config = replace(_config({"eps": eps, "delta": delta}, seed, trees, depth), learning_rate=0.01)
    pair = _collect(tables, other, config, repeats, _label_scores)
    return LowerBound("labels", eps, lower_bound(*pair, delta, confidence), delta, repeats, confidence)


def feature_lower_bound(
    eps: float,
    repeats: int,
    seed: int = 0,
    delta: float = DELTA,
    cuts_move: bool = False,
    confidence: float = CONFIDENCE,
    trees: int = ROUNDS,
    depth: int = DEFAULTS.max_depth,
) -> LowerBound:
    """The bound for one person's passive record in `sealed` with `eps_features`, against the active party.

    The attacker has its decrypted sums and knows both tables and the bins that were used. By default the column is
    categorical, so its bins are fixed. With `cuts_move` it is numeric: if cut points were exact quantiles, changing the
    record would move a row of every bin into the next one, in a column whose labels make that visible. `sealed` chooses
    trees and depth that are not given.
    """
    # Splits are selected nearly at random, so that noise in the sums does not make the passive column win.
    options = {"eps": 0.01, "delta": delta, "eps_features": eps, "delta_features": delta}
    config, rng = _config(options, seed, trees, depth), np.random.default_rng(seed)
    if cuts_move:
        config = replace(config, max_bin=64)
        place = np.arange(256)
        alternate = np.where(place % 4 == 1, 1 - place // 4 % 2, np.where(place % 4 == 0, place // 4 % 2, 0))
        values, target = place.astype(np.float64), 300.0
        labels = alternate.astype(np.float64)
    else:
        values, target = (np.arange(ROWS) % 4).astype(np.float64), 3.0
        labels = (np.arange(ROWS) // 4 % 2).astype(np.float64)
    moved = values.copy()
    moved[0] = target
    names = None if cuts_move else ("a", "b", "c", "d")
    own = np.minimum(rng.normal(0.35, size=(OWN_COLUMNS, len(values))), 0.0)
    own[:, 0] = -9.0  # below all others, most of which are equal: the record goes to the smaller child, which has sums
    tables = _tables(own, values[None], labels, names)
    other = {**tables, "shop": _tables(own, moved[None], labels, names)["shop"]}
    columns = values.astype(np.float32), moved.astype(np.float32)
    pair = _collect(tables, other, config, repeats, partial(_cell_scores, columns))
    return LowerBound("features", eps, lower_bound(*pair, delta, confidence), delta, repeats, confidence)


def lower_bound(here: Float64Array, there: Float64Array, delta: float, confidence: float = CONFIDENCE) -> float:
    """The bound from scores of independent runs on either table, (runs) or (runs, scores); 0 if they do not differ."""
    check_runs(min(len(here), len(there)))
    first = min(len(here), len(there)) // 3
    scores = list(zip(here.reshape(len(here), -1).T, there.reshape(len(there), -1).T, strict=True))
    best, chosen = (-math.inf, 0.0), (1.0, 0.0, *scores[0])
    # The score, the threshold, its direction and which table counts as the first are all chosen on the first third.
    for low, high in (pair for one, two in scores for pair in ((one, two), (two, one))):
        for sign in (1.0, -1.0):
            values = np.unique(sign * np.concatenate((low[:first], high[:first])))
            for at in _places(len(values)):
                threshold, gap = (values[at + 1] + values[at]) / 2, values[at + 1] - values[at]
                found = _epsilon(sign * low[:first] >= threshold, sign * high[:first] >= threshold, delta, confidence)
                wide = float(gap / (values[-1] - values[0]))  # among equal thresholds, prefer the widest gap
                if (found, wide) > best:
                    best, chosen = (found, wide), (sign, float(threshold), low, high)
    sign, threshold, low, high = chosen
    return max(0.0, _epsilon(sign * low[first:] >= threshold, sign * high[first:] >= threshold, delta, confidence))


def _places(values: int) -> Sequence[int]:
    """The gaps between so many values in which a threshold is tried: with many values fewer, and more near the top."""
    if values <= MOST_THRESHOLDS:
        return range(values - 1)
    return (values - 1 - np.unique(np.geomspace(1, values - 1, MOST_THRESHOLDS).astype(int))).tolist()


def check_runs(repeats: int) -> None:
    if repeats < LEAST_RUNS:
        raise InvalidParameter(
            f"a lower bound needs at least {LEAST_RUNS} runs", f"set --repeats to {LEAST_RUNS} or more"
        )


def _epsilon(wrong: BoolArray, right: BoolArray, delta: float, confidence: float) -> float:
    """ln((p_right - delta) / p_wrong) at the ends of their intervals, each with half of the error probability."""
    tail = (1.0 - confidence) / 2.0
    least = 1.0 - _most(len(right) - int(right.sum()), len(right), tail)
    most = _most(int(wrong.sum()), len(wrong), tail)
    return math.log((least - delta) / most) if least > delta else -math.inf


@cache
def _most(hits: int, runs: int, tail: float) -> float:
    """Upper bound on the probability of a hit, with error probability `tail` (Clopper and Pearson)."""
    return 1.0 if hits == runs else beta_quantile(1.0 - tail, hits + 1, runs - hits)


# --- the runs -------------------------------------------------------------------------------------------


def _collect(
    tables: dict[PartyName, PartyTable],
    other: dict[PartyName, PartyTable],
    config: TrainingConfig,
    repeats: int,
    scores: Callable[[Mapping[PartyName, View], Truth, int, JobRandomness], Float64Array],
) -> tuple[Float64Array, Float64Array]:
    """The scores of `repeats` runs on each table, each run with its own randomness.

    Scores always assume the first table: it is the attacker's hypothesis.
    """
    check_runs(repeats)
    found: list[list[Float64Array]] = [[], []]
    for number, trained in enumerate((tables, other)):
        for _ in range(repeats):
            run = simulate_training(trained, "bank", SEALED.name, config, record="payload")
            views, truth = views_of_simulation(run, tables)
            found[number].append(scores(views, truth, number, run.secrets["shop"]))
    return np.array(found[0]), np.array(found[1])


# --- labels ---------------------------------------------------------------------------------------------


def _label_scores(views: Mapping[PartyName, View], truth: Truth, number: int, secret: JobRandomness) -> Float64Array:
    """Evidence for the other label of the first row: in total, and by kind of release.

    Log-likelihood ratios of everything, of leaves, of selections at roots and of those below; then in how many more
    nodes the best candidate won, at roots and below; then in how many more leaves the noise equals another leaf's.
    """
    view = views["bank"]
    skeleton = None if view.share is None else view.share.skeleton
    if skeleton is None:
        raise TypeError("the run has no skeleton")
    config, options, candidates = truth.config, options_of(truth.config), _candidates(truth)
    noise = label_noise(options, config.n_estimators, config.max_depth)
    labels = truth.labels("bank")
    labels = np.stack((labels, np.concatenate((1.0 - labels[:1], labels[1:]))))
    margin = np.full(view.rows, skeleton.base_margin[0])
    by_leaf, ratios, bests, own, others = 0.0, np.zeros(2), np.zeros(2), list[Float64Array](), list[float]()
    for tree, leaf in zip(skeleton.trees, leaves_of_rows(view), strict=True):
        chance = sigmoid(margin)
        gradients, inside = chance - labels, _rows_of_nodes(tree, leaf)
        for node in np.flatnonzero(inside.any(axis=1)).tolist():
            rows = inside[node]
            if tree.left[node] == LEAF:
                hessian = float((chance * (1 - chance))[rows].sum())
                noisy = -float(tree.weight[node]) / config.learning_rate * (hessian + config.reg_lambda)
                left_over = noisy - gradients[:, rows].sum(axis=1)  # the noise, if this or the other label is true
                if rows[0]:
                    by_leaf += float(left_over[0] ** 2 - left_over[1] ** 2) / (2 * noise.leaf_sigma**2)
                    own.append(left_over)
                else:
                    others.append(left_over[0])
            elif rows[0]:
                utility = _utilities(candidates[:, rows], gradients[:, rows], options.least_rows, config.reg_lambda)
                won = (candidates[:, rows] == inside[tree.left[node]][rows]).all(axis=1)
                power = np.exp(noise.selection / 2 * (utility - utility.max()))
                likelihood = np.log(power[:, won].sum(axis=1) / power.sum(axis=1))
                ratios[int(node > 0)] += likelihood[1] - likelihood[0]
                is_best = utility[:, won].max(axis=1) >= utility.max(axis=1) - 1e-6
                bests[int(node > 0)] += float(is_best[1]) - float(is_best[0])
        margin = margin + tree.weight[leaf].astype(np.float64)
    again = (np.abs(np.array(own)[:, :, None] - np.array(others)) < SAME).any(axis=2).sum(axis=0)
    return np.array([by_leaf + ratios.sum(), by_leaf, *ratios, *bests, float(again[1]) - float(again[0])])


def _candidates(truth: Truth) -> BoolArray:
    """Left assignments (candidates, rows) of all columns of all parties; none has missing values."""
    left: list[BoolArray] = []
    for party in truth.tables:
        block = truth.block(party)
        if block.shared is None:
            raise TypeError("the bins are not shared by all trees")
        for feature, width in enumerate(block.layout.widths.tolist()):
            left += [block.shared.bins[0][:, feature] <= place for place in range(width - 1)]
    return np.array(left)


def _utilities(left: BoolArray, gradients: Float64Array, least_rows: int, reg_lambda: float) -> Float64Array:
    """Utilities (2, candidates) for either label, in units of their sensitivity; -inf if a child is too small."""
    count = left.sum(axis=1)
    least = max(float(least_rows), LEAST_SHARE * left.shape[1])
    sums = gradients @ left.T
    rest = gradients.sum(axis=1, keepdims=True) - sums
    utility = np.sqrt(sums**2 / (count + reg_lambda) + rest**2 / (left.shape[1] - count + reg_lambda))
    enough = np.minimum(count, left.shape[1] - count) >= least
    return np.where(enough, utility * math.sqrt(least + reg_lambda), -np.inf)


def _rows_of_nodes(tree: Tree, leaf: Int32Array) -> BoolArray:
    """Mask (nodes, rows) of the rows of each node."""
    inside: BoolArray = np.arange(tree.nodes)[:, None] == leaf
    for node in np.flatnonzero(tree.left != LEAF)[::-1].tolist():  # children come after their parents
        inside[node] = inside[tree.left[node]] | inside[tree.left[node] + 1]
    return inside


def _label_tables(labels: Float64Array, depth: int) -> dict[PartyName, PartyTable]:
    """Columns of zeros and ones in which the first row shares a child with four others of one label.

    Five rows are the smallest child: there a label changes the utility most, up or down by the label of the others.
    Wider columns of both labels make these candidates possible again below the root.
    """
    like, unlike = (np.flatnonzero(labels[1:] == label) + 1 for label in (labels[0], 1 - labels[0]))
    sets = [part for group in (like, unlike) for part in (group[:4], group[4:8])]
    if depth > 1:
        sets += [np.concatenate((like[:width], unlike[:width])) for width in (10, 10, 10, 14, 14, 14)]
    values = np.zeros((len(sets), len(labels)))
    for column, members in zip(values, sets, strict=True):
        column[[0, *members]] = 1.0
    return _tables(values[::2], values[1::2], labels)


# --- features -------------------------------------------------------------------------------------------


def _cell_scores(
    columns: tuple[Float32Array, Float32Array],
    views: Mapping[PartyName, View],
    truth: Truth,
    number: int,
    secret: JobRandomness,
) -> Float64Array:
    """Evidence for the other record in the sums that contain it, in the bins that were used.

    Log-likelihood ratios of all nodes, of roots and of nodes below; then how much the sums at roots follow the change
    that the other record would cause from tree to tree. Sums are used up to the split that separates the two records:
    its left/right assignments distinguish them, and no claim is made from there on.
    """
    view = views["bank"]
    seen = histograms(view, truth, "shop", np.random.default_rng(0))
    if seen is None:
        raise TypeError("the active party of sealed reads no sums")
    cuts = np.arange(0.5, 3.0, dtype=np.float32)  # one bin for each category
    if truth.tables["shop"].columns[0].categories is None:
        bins, options = truth.config.max_bin, options_of(truth.config)
        counts = cell_counts(columns[number])
        digest = content_digest(secret, repr(cuts_event(options, columns=1, number=0)), bins, counts)
        cuts = noisy_cuts(secret.for_request("cuts", digest), counts, bins, cuts_sigma(options, columns=1))
    bins = [cuts.searchsorted(column, side="right") for column in columns]
    sigmas = np.array(cell_sigmas(truth.config, 2, 1))
    ratios, moves, found = np.zeros(2), list[Float64Array](), list[Float64Array]()
    last = _first_separating_split(
        view, seen.layout.kind[0] == KIND_CODES[ColumnKind.ONEHOT], int(bins[0][0]), int(bins[1][0])
    )
    for node in seen.nodes:
        if (node.round, node.depth) > last or 0 not in node.rows:
            continue
        here, there = (_sums_of(each[node.rows], node.gradients, seen.layout.slots) / sigmas for each in bins)
        rest, move = node.sums / sigmas - here, there - here
        ratios[int(node.depth > 0)] += float((rest * move).sum() - (move * move).sum() / 2)
        if node.depth == 0:
            moves.append(move)
            found.append(rest)
    change, follows = np.array(moves), np.array(found)
    change -= change.mean(axis=0)
    reused = float((change * follows).sum()) / max(float((change * change).sum()), 1e-12)
    return np.array([ratios.sum(), *ratios, reused])


def _first_separating_split(view: View, onehot: bool, one: int, two: int) -> tuple[int, int]:
    """The round and depth at which a split of the passive column first separates the first row's two records."""
    for each in rounds(view, "shop"):
        for depth, level in enumerate(each.levels):
            asked = level.split_request
            for k, (_, _, left, right) in enumerate(level.assignments()):
                if asked is None or (0 not in left and 0 not in right):
                    continue
                place = int(asked.handles[asked.starts[k]]) >> 1
                if (one == place) != (two == place) if onehot else (one <= place) != (two <= place):
                    return each.number, depth
    return view.config.n_estimators, 0


def _sums_of(bins: AnyArray, gradients: AnyArray, slots: int) -> Float64Array:
    sums = np.zeros((slots, 2))
    np.add.at(sums, bins, gradients)
    return sums


# --- training inputs ------------------------------------------------------------------------------------


def _config(options: dict[str, Any], seed: int, trees: int, depth: int) -> TrainingConfig:
    """The defaults of `sealed`, except for bins; every node with enough rows may split."""
    return TrainingConfig(
        objective="binary",
        n_estimators=trees,
        max_depth=depth,
        max_bin=4,
        min_child_weight=0.0,
        categories="onehot",
        random_state=seed,
        options=options,
    )


def _tables(
    own: Float64Array, passive: Float64Array, labels: Float64Array, categories: tuple[str, ...] | None = None
) -> dict[PartyName, PartyTable]:
    """Both parties' tables; columns are rows of `own` and `passive`."""
    ids, kind = np.arange(len(labels)), np.float32 if categories is None else np.int32
    active = tuple(Column(f"own {k}", column.astype(np.float32)) for k, column in enumerate(own))
    shop = tuple(Column(f"spent {k}", column.astype(kind), categories) for k, column in enumerate(passive))
    return {"bank": PartyTable(ids, active, labels), "shop": PartyTable(ids, shop)}
