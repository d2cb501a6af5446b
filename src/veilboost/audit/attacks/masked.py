"""Attacks on `masked`: labels from masked gradients, and left/right assignments from the masks alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from veilboost.audit.attack import Outcome, declare, wilson
from veilboost.audit.attacks.gradients import labels_of, may_have_classes, may_have_two_classes, scored
from veilboost.audit.replay import ReplayedLevel, ReplayedRound, rounds
from veilboost.audit.solvers import five_layers, least_squares
from veilboost.audit.view import Truth, View
from veilboost.protocols.masked.messages import Masks, NoisedVectors
from veilboost.protocols.masked.parameters import MaskedOptions, Noise, rows_left
from veilboost.protocols.vertical.messages import ColumnsOffered
from veilboost.types import BoolArray, Float64Array, Int32Array, Int64Array, PartyName

_PASSES = 20
# Training data of the network: synthetic queries, each with its own coefficients, and examples of all of them.
_QUERIES, _EXAMPLES, _LEARNED_FROM = 40, 4_000, 8
_SURE = 5.0  # standard errors of a level
# Likelihood: guesses kept in the beam, and the amount of data used.
_BEAM, _ROWS, _TREES, _COLUMNS = 64, 300, 100, 2
# Search: number of sets up to which all are tried, candidates, exchanges of rows, rows considered per exchange.
_ALL_SETS, _CANDIDATES, _EXCHANGES, _OUTSIDE = 200_000, 12, 600, 500


@dataclass(frozen=True)
class MaskedNode:
    """A node's candidates in both parties' views: B (candidates, W, rows) and <g>, <h> (candidates, kinds, rows)."""

    tree: int
    rows: Int32Array
    masks: Float64Array
    vectors: Float64Array


def masked_node(level: ReplayedLevel, place: int, width: int, most: int | None = None) -> MaskedNode | None:
    """The requested node at `place`, with its first `most` candidates of `width` noise vectors each."""
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
    """Labels by the gradients that `gradients` recovers from the first candidates of a round's roots."""
    played = rounds(view, victim)
    if not may_have_classes(view) or not played or not played[tree].levels:
        return None
    width, root = MaskedOptions.from_dict(view.config.options).vectors, played[tree].levels[0]
    nodes = [masked_node(root, place, width, candidates) for place in range(root.build.nodes)]
    found = [gradients(node) for node in nodes if node is not None and len(node.masks) == candidates]
    if not found or len(found) < len(nodes):
        return None
    return scored(truth, victim, played[tree].fit, labels_of(np.stack(found)), sentence)


@declare("projection off the masks", "passive", "active", "labels", (Masks,))
def masked_projection(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """One candidate's masked gradients, projected off the span of its masks.

    The passive party made the masks B. In <g> = g + Bc it does not know the W numbers c. Least squares finds them up to
    the small component of g along B. In the first tree g has two values, and fitting these too finds c exactly.
    """
    sentence = "one candidate of the first root, projected off its masks, gives {value:.3f} of the labels"
    return _from_root(view, truth, victim, 0, 1, _two_values, sentence)


def _two_values(node: MaskedNode) -> Float64Array:
    """Gradients from the first candidate: projected, then fitted to two values until convergence."""
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

    sum c^2 = C and W = 1 give c = 1 or c = -1 (here C is 1): one of the two differences equals the gradients, the other
    is far too large.
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
    """Two candidates of one node mask the same gradients, which reveals them exactly.

    g + B1 c1 and g + B2 c2 differ by B1 c1 - B2 c2, which does not contain g: least squares finds c1 and c2, and the
    first vector minus B1 c1 is g. This works in every tree, for every loss and noise, if a node has at least 2 W rows.
    """
    sentence = "two candidates of the last tree's root give its gradients, and {value:.3f} of the labels by their signs"
    return _from_root(view, truth, victim, -1, 2, gradients_of, sentence)  # in the last tree gradients take all values


def gradients_of(node: MaskedNode, kind: int = 0) -> Float64Array:
    """The gradients (kind 0) or hessians (kind 1) of a node with two candidates."""
    one, other = node.masks[0].T, node.masks[1].T
    first, second = node.vectors[0, kind], node.vectors[1, kind]
    by = least_squares(np.hstack((one, -other)), first - second)
    return first - one @ by[: one.shape[1]]


@declare("network of five layers", "passive", "active", "labels", (Masks,))
def masked_network(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """The attack of the protocol's own paper, a network of five layers (MaskedXGBoost, section 6.5 and figure 6).

    The passive party generates gradients, masks them as the active party would, and trains a network to predict labels
    from a row's masked gradient, masked hessian and noise. One network for all queries fails, because c differs in each
    query. This failure says nothing about the other attacks on the same messages.
    """
    played = rounds(view, victim)
    if not played or not may_have_two_classes(view, played[0]) or not played[0].levels:
        return None
    root = played[0].levels[0]
    node = masked_node(root, 0, MaskedOptions.from_dict(view.config.options).vectors, _LEARNED_FROM)
    if node is None or node.vectors.shape[1] < 2:
        return None
    network = _trained(node, rng)
    real = np.stack([_inputs(node.masks[k], node.vectors[k]) for k in range(len(node.masks))])
    probability = np.mean([network.predict_proba(each)[:, 1] for each in real], axis=0)
    sentence = "a network trained on synthetic gradients under the same masks gives {value:.3f} of the labels"
    return scored(truth, victim, played[0].fit, (probability > 0.5).astype(np.float64), sentence)


def _trained(node: MaskedNode, rng: np.random.Generator) -> Any:
    inputs: list[Float64Array] = []
    labels: list[Float64Array] = []
    each = max(_EXAMPLES // _QUERIES, 1)
    for query in range(_QUERIES):
        masks = node.masks[query % len(node.masks)]
        label: Float64Array = (rng.random(int(masks.shape[1])) < 0.5).astype(np.float64)
        values = np.stack((0.5 - label, np.full(len(label), 0.25)))  # a first tree with base score 0.5
        by = rng.normal(size=(2, len(masks)))
        by /= np.sqrt((by**2).sum(axis=1, keepdims=True))
        rows = rng.permutation(len(label))[:each]
        inputs.append(_inputs(masks, values + by @ masks)[rows])
        labels.append(label[rows])
    return five_layers(np.concatenate(inputs), np.concatenate(labels), int(rng.integers(2**31)))


def _inputs(masks: Float64Array, vectors: Float64Array) -> Float64Array:
    """Each row's masked gradient and hessian and its entries of the noise vectors."""
    return np.concatenate((vectors, masks)).T


# --- left/right assignments, from the masks of roots with the same rows --------------------------------------------


@dataclass(frozen=True)
class RootMasks:
    """Masks (candidates, noise vectors of all trees, rows) of the roots that have the same rows.

    `level` is the mean square of each candidate's noise over all rows, and `error` its relative standard error.
    """

    masks: Float64Array
    level: Float64Array
    error: float
    rounds: list[ReplayedRound]

    @staticmethod
    def of(view: View, peer: PartyName, trees: int, rows: int | None = None) -> RootMasks | None:
        """The masks of the roots of up to `trees` trees, truncated to `rows` rows.

        A root has the same rows, and so the same candidates, in every tree: each tree adds W vectors to each candidate.
        """
        options = MaskedOptions.from_dict(view.config.options)
        played = [one for one in rounds(view, peer) if one.levels and one.opening.all_columns]
        same = [one for one in played if np.array_equal(one.fit, played[0].fit)]
        roots = [(one.levels[0], place) for one in same for place in range(one.levels[0].build.nodes)]
        if options.noise_off:
            return None
        found: list[Float64Array] = []
        squares: list[Float64Array] = []
        for level, place in roots[:trees]:
            node = masked_node(level, place, options.vectors)
            if node is not None:
                found.append(node.masks[:, :, :rows].copy())
                squares.append((node.masks**2).mean(axis=(1, 2)))
        if not found:
            return None
        draws = len(found) * options.vectors * len(same[0].fit)
        return RootMasks(np.concatenate(found, axis=1), np.mean(squares, axis=0), float(np.sqrt(2.0 / draws)), same)


def features_of(view: View, peer: PartyName, roots: RootMasks) -> list[Int64Array]:
    """Group candidates by column, as far as the active party can; the candidates of a column are nested.

    The active party knows the number of bins of each column. If the numbers do not add up, because candidates were left
    out, the noise helps: its scale follows the number of rows on the left, so it grows from candidate to candidate and
    drops where the next column begins.
    """
    offered, candidates = view.received(ColumnsOffered, peer), len(roots.masks)
    every = np.arange(candidates)
    if offered and not offered[0].missing.any() and not offered[0].kind.any():
        cuts = np.diff(offered[0].offsets).astype(np.int64) - 1
        if int(cuts.sum()) == candidates:
            return [each for each in np.split(every, np.cumsum(cuts)[:-1]) if len(each)]
    options = MaskedOptions.from_dict(view.config.options)
    if options.by_hand or options.scale != "adaptive":
        return [np.array([each]) for each in range(candidates)]
    falls = np.diff(roots.level) < -_SURE * roots.error * roots.level[:-1]
    return np.split(every, np.flatnonzero(falls) + 1)


def true_vectors(view: View, truth: Truth, victim: PartyName, root: ReplayedRound) -> BoolArray | None:
    """The true left/right assignments (candidates, rows) of a root."""
    block = truth.block(victim)
    if block.shared is None:
        return None
    bins = block.shared.bins[0][root.fit]
    layout = block.layout
    slots = (bins.astype(np.int64) + layout.offsets[:-1]).ravel()
    left = rows_left(np.bincount(slots, minlength=layout.slots)[None], layout).ravel()
    least = Noise.of(view.config, view.rows, 1).least_active
    handles = np.flatnonzero((left >= least) & (left < len(bins))).astype(np.int32)
    splits = block.splits_of(handles)
    return np.stack([splits.left[k][bins[:, splits.feature[k]]] for k in range(len(handles))]).astype(np.bool_)


def balanced_bits(true: BoolArray, guess: BoolArray) -> Float64Array:
    """For each candidate (row of both arrays), the balanced accuracy over ones and zeros."""
    ones = (true & guess).sum(axis=1) / true.sum(axis=1)
    zeros = (~true & ~guess).sum(axis=1) / (~true).sum(axis=1)
    return (ones + zeros) / 2


def _bits_right(true: BoolArray, guess: BoolArray, sentence: str) -> Outcome:
    value = float(balanced_bits(true, guess).mean())
    interval = wilson(value, true.shape[1])  # one bin determines all assignments of a row
    return Outcome("balanced bit accuracy", value, 0.5, *interval, sentence.format(value=value))


@declare("likelihood of the masks", "active", "passive", "features", (Masks,))
def masked_split_likelihood(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Left/right assignments of a candidate split, by the likelihood of its masks.

    Among the rows that go left, the noise of each row depends on that of the row before; the noise of the other rows is
    independent. A filter over the rows keeps, for every noise vector, a posterior of the last draw on the left, and a
    beam of the most likely guesses. All candidates of a column are guessed together: they are nested, so a row has one
    of (candidates + 1) bins, which determines all its assignments. The root has the same rows in every tree, so every
    tree adds noise vectors for the same candidates.
    """
    roots = RootMasks.of(view, victim, _TREES, _ROWS)
    if roots is None:
        return None
    columns = features_of(view, victim, roots)
    picked = sorted(columns, key=len)[-_COLUMNS:]  # candidates of a column support each other
    some = np.concatenate(picked)
    ratio = Noise.of(view.config, view.rows, 1).ratio  # public: it follows from the job's parameters
    # The filter may start at any row: the first rows are enough to measure it.
    guess = np.concatenate([nested_cuts(roots.masks[each], ratio) for each in picked])
    true = true_vectors(view, truth, victim, roots.rounds[0])
    if true is None or len(true) != len(roots.masks):
        return None
    part = true[some, :_ROWS]
    both = part.any(axis=1) & ~part.all(axis=1)
    sentence = f"{roots.masks.shape[1]} noise vectors per candidate give {{value:.3f}} of its left/right assignments"
    return _bits_right(part[both], guess[both], sentence)


def nested_cuts(masks: Float64Array, ratio: float) -> BoolArray:
    """The most likely assignments (cuts, rows), True for left, from the masks (cuts, noise vectors, rows)."""
    cuts, vectors, rows = (int(size) for size in masks.shape)
    beam = max(_BEAM, 2 * (cuts + 1))  # with fewer guesses than bins, one row's bins would push all others out
    # Left and right entries have the variance sigma2^2 (2 ratio + 1), which gives the scale for any budget.
    spread = (masks**2).mean(axis=(1, 2)) / (2.0 * ratio + 1.0)  # sigma2^2 of each cut
    sigma2 = np.sqrt(spread)
    both = sigma2 * np.sqrt(4.0 * ratio + 1.0)
    own, before = (both + sigma2) / 2.0, (both - sigma2) / 2.0
    alone = spread * (2.0 * ratio + 1.0)
    # For every guess in the beam and every cut: mean and variance of the last draw on the left; and the score.
    mean = np.zeros((1, cuts, vectors))
    variance = np.ones((1, cuts))
    score = np.zeros(1)
    chosen: list[tuple[Int64Array, BoolArray]] = []
    cut: Int64Array = np.arange(cuts)
    for row in range(rows):
        x = masks[:, :, row]
        apart = -0.5 * (x**2).sum(axis=1) / alone - 0.5 * vectors * np.log(alone)
        surprise = x + before[:, None] * mean
        expected = own**2 + before**2 * variance
        joined = -0.5 * (surprise**2).sum(axis=2) / expected - 0.5 * vectors * np.log(expected)
        # Bin b is left of the cuts b, b + 1, ...: bin `cuts` of none.
        gain = joined - apart
        of_bin = np.concatenate((gain[:, ::-1].cumsum(axis=1)[:, ::-1], np.zeros((len(gain), 1))), axis=1)
        every = (score[:, None] + of_bin).ravel()
        keep = np.argsort(-every)[:beam]
        parent, chosen_bin = np.divmod(keep, cuts + 1)
        left: BoolArray = cut >= chosen_bin[:, None]
        gained = (own / expected)[parent]
        mean = np.where(left[:, :, None], gained[:, :, None] * surprise[parent], mean[parent])
        variance = np.where(left, (1.0 - own**2 / expected)[parent], variance[parent])
        score = every[keep]
        chosen.append((parent, left))
    assignments = np.empty((cuts, rows), dtype=np.bool_)
    at = int(score.argmax())
    for row in range(rows - 1, -1, -1):
        parent, left = chosen[row]
        assignments[:, row] = left[at]
        at = int(parent[at])
    return assignments


@declare("search for the smallest sum", "active", "passive", "features", (Masks,))
def masked_split_search(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """The search of the protocol's own paper for the splitting vector (MaskedXGBoost, section 6.6).

    Active noise sums to 0, so among all sets of the right size the true one has a small sum. The paper tries all sets
    and assumes that the attacker knows the size. If there are few sets, all are tried; otherwise rows are exchanged
    while the sum decreases. Then very many sets have a sum near 0, and the first one is no better than any other.
    """
    roots = RootMasks.of(view, victim, trees=1)
    if roots is None:
        return None
    true = true_vectors(view, truth, victim, roots.rounds[0])
    if true is None or len(true) != len(roots.masks):
        return None
    some = rng.permutation(len(true))[:_CANDIDATES]
    # As in the paper, the attacker knows how many rows go left; it takes nothing else from the true data.
    guess = np.stack([smallest_sum(roots.masks[k], int(true[k].sum()), rng) for k in some])
    sentence = "the set of rows with the smallest sum of noise gives {value:.3f} of the left/right assignments"
    return _bits_right(true[some], guess, sentence)


def smallest_sum(masks: Float64Array, size: int, rng: np.random.Generator) -> BoolArray:
    """The set of `size` rows with the smallest sum of noise (squared, over all noise vectors)."""
    rows = masks.shape[1]
    best = np.zeros(rows, dtype=np.bool_)
    if math.comb(rows, size) <= _ALL_SETS:
        sets = np.array(list(combinations(range(rows), size)))
        sums = masks[:, sets].sum(axis=2)
        best[sets[int((sums**2).sum(axis=0).argmin())]] = True
        return best
    best[rng.permutation(rows)[:size]] = True
    total = masks[:, best].sum(axis=1)
    for _ in range(_EXCHANGES):
        # Replace one random row by the best of some rows outside.
        leaving = rng.choice(np.flatnonzero(best))
        outside = rng.choice(np.flatnonzero(~best), min(_OUTSIDE, rows - size), replace=False)
        sums = total[:, None] - masks[:, leaving, None] + masks[:, outside]
        squares = (sums**2).sum(axis=0)
        entering = int(squares.argmin())
        if squares[entering] < float(total @ total):
            best[leaving], best[outside[entering]] = False, True
            total = sums[:, entering]
    return best
