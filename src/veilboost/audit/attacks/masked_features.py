"""Who is left of a cut in `masked`, from the masks of roots that stand on the same rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from veilboost.audit.attack import declare
from veilboost.audit.attacks.masked_labels import masked_node
from veilboost.audit.replay import ReplayedRound, rounds
from veilboost.audit.result import Outcome, wilson
from veilboost.audit.view import Truth, View
from veilboost.protocols.masked.candidates import rows_left
from veilboost.protocols.masked.messages import Masks
from veilboost.protocols.masked.options import MaskedOptions
from veilboost.protocols.masked.parameters import Noise
from veilboost.protocols.vertical.messages import ColumnsOffered
from veilboost.types import BoolArray, Float64Array, Int64Array, PartyName

_SURE = 5.0  # of the standard errors of a level
# Of the likelihood: guesses that are kept, and how much is looked at.
_BEAM, _ROWS, _TREES, _COLUMNS = 64, 300, 100, 2
# Of the search: how many sets are all tried, candidates, exchanges of rows, and rows that may come in.
_ALL_SETS, _CANDIDATES, _EXCHANGES, _OUTSIDE = 200_000, 12, 600, 500


@dataclass(frozen=True)
class RootMasks:
    """Masks (candidates, noise vectors of all trees, rows) of the roots that stand on the same rows.

    `level` is the mean square of each candidate's noise, over all of its rows, and `error` how far it may be off.
    """

    masks: Float64Array
    level: Float64Array
    error: float
    rounds: list[ReplayedRound]

    @staticmethod
    def of(view: View, peer: PartyName, trees: int, rows: int | None = None) -> RootMasks | None:
        """The masks of up to so many trees' roots, cut off after so many rows.

        A root has the same rows and so the same candidates in every tree: each tree adds W vectors to each.
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
    """Which candidates belong to one column, as far as the active party can tell: those of a column are nested.

    It knows how many bins each column has. Where the numbers do not add up, because cuts were left out, noise whose
    scale follows the number of rows left tells: it grows from cut to cut, and falls where the next column begins.
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


def ratio_of(view: View) -> float:
    """sigma1^2 / sigma2^2, which everybody computes from the job's parameters."""
    return Noise.of(view.config, view.rows, 1).ratio


def true_vectors(view: View, truth: Truth, victim: PartyName, root: ReplayedRound) -> BoolArray | None:
    """The splitting vectors (candidates, rows) of a root."""
    block = truth.block(victim)
    if block.shared is None:
        return None
    bins = block.shared.bins[0][root.fit]
    layout = block.layout
    slots = (bins.astype(np.int64) + layout.offsets[:-1]).ravel()
    left = rows_left(np.bincount(slots, minlength=layout.slots)[None], layout).ravel()
    least = Noise.of(view.config, view.rows, 1).least_active
    handles = np.flatnonzero((left >= least) & (left < len(bins))).astype(np.int32)
    splits = block.splits_of(handles, [])
    return np.stack([splits.left[k][bins[:, splits.feature[k]]] for k in range(len(handles))]).astype(np.bool_)


def balanced_bits(true: BoolArray, guess: BoolArray) -> Float64Array:
    """For each candidate (rows of both arrays), the mean of the shares of its ones and of its zeros that are right."""
    ones = (true & guess).sum(axis=1) / true.sum(axis=1)
    zeros = (~true & ~guess).sum(axis=1) / (~true).sum(axis=1)
    return (ones + zeros) / 2


@declare("likelihood of the masks", "active", "passive", "features", (Masks,))
def masked_split_likelihood(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Who is left of a cut, by the likelihood of the masks made for it.

    Among the rows that go left, each row's noise leans on that of the one before; the others' noise stands alone. A
    filter that walks along the rows keeps, for every noise vector, what it knows of the last draw on the left, and a
    beam of the likeliest guesses so far. All cuts of a column are guessed together: they are nested, so a row has one
    of as many bins as there are cuts plus one, and its bin decides on which side of each cut it is. The root has the
    same rows in every tree, so every tree adds noise vectors for the same cuts.
    """
    roots = RootMasks.of(view, victim, _TREES, _ROWS)
    if roots is None:
        return None
    columns = features_of(view, victim, roots)
    picked = sorted(columns, key=len)[-_COLUMNS:]  # cuts of a column help each other
    some = np.concatenate(picked)
    # The filter may start at any row: the first ones are enough to tell whether it works.
    guess = np.concatenate([nested_cuts(roots.masks[each], ratio_of(view)) for each in picked])
    true = true_vectors(view, truth, victim, roots.rounds[0])
    if true is None or len(true) != len(roots.masks):
        return None
    part = true[some, :_ROWS]
    both = part.any(axis=1) & ~part.all(axis=1)
    value = float(balanced_bits(part[both], guess[both]).mean())
    return Outcome(
        "balanced bit accuracy",
        value,
        0.5,
        *wilson(value, part.shape[1]),  # a row's sides of all cuts follow from its one bin
        f"{roots.masks.shape[1]} noise vectors for each cut give {value:.3f} of who is left of it",
    )


def nested_cuts(masks: Float64Array, ratio: float) -> BoolArray:
    """The likeliest sides (cuts, rows), True for left, of nested cuts from their masks (cuts, noise vectors, rows)."""
    cuts, vectors, rows = (int(size) for size in masks.shape)
    beam = max(_BEAM, 2 * (cuts + 1))  # fewer guesses than bins, and one row's bins push all others out
    # Entries of both sides have the variance sigma2^2 (2 ratio + 1): it tells the scale, whatever the budget was.
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
    sides = np.empty((cuts, rows), dtype=np.bool_)
    at = int(score.argmax())
    for row in range(rows - 1, -1, -1):
        parent, left = chosen[row]
        sides[:, row] = left[at]
        at = int(parent[at])
    return sides


@declare("search for the smallest sum", "active", "passive", "features", (Masks,))
def masked_split_search(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """The search of its own paper for the splitting vector (MaskedXGBoost, section 6.6).

    Active noise sums to 0, so among all sets of as many rows as the candidate sends left the true one has a small sum.
    The paper tries all sets and lets the attacker know their size. All sets are tried where they are few, otherwise
    rows change places while that makes the sum smaller; there are then very many sets with a sum near 0, and the first
    one is no better than any.
    """
    roots = RootMasks.of(view, victim, trees=1)
    if roots is None:
        return None
    true = true_vectors(view, truth, victim, roots.rounds[0])
    if true is None or len(true) != len(roots.masks):
        return None
    some = rng.permutation(len(true))[:_CANDIDATES]
    # The paper lets the attacker know how many rows go left; nothing else is taken from the truth before scoring.
    guess = np.stack([smallest_sum(roots.masks[k], int(true[k].sum()), rng) for k in some])
    value = float(balanced_bits(true[some], guess).mean())
    return Outcome(
        "balanced bit accuracy",
        value,
        0.5,
        *wilson(value, true.shape[1]),  # sides of nested cuts depend on each other
        f"the set of rows whose noise sums to least gives {value:.3f} of who is left of a cut",
    )


def smallest_sum(masks: Float64Array, size: int, rng: np.random.Generator) -> BoolArray:
    """The set of `size` rows with the smallest sum of noise (over all noise vectors, in squares)."""
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
        # The best of some rows to come in for one row that leaves.
        leaving = rng.choice(np.flatnonzero(best))
        outside = rng.choice(np.flatnonzero(~best), min(_OUTSIDE, rows - size), replace=False)
        sums = total[:, None] - masks[:, leaving, None] + masks[:, outside]
        squares = (sums**2).sum(axis=0)
        entering = int(squares.argmin())
        if squares[entering] < float(total @ total):
            best[leaving], best[outside[entering]] = False, True
            total = sums[:, entering]
    return best
