"""`masked`: who is left of a cut, by the likelihood of the masks made for it.

Among the rows that go left, each row's noise leans on that of the one before; the others' noise stands alone. A filter
that walks along the rows keeps, for every noise vector, what it knows of the last draw on the left, and a beam of the
likeliest guesses so far. All cuts of a column are guessed together: they are nested, so a row has one of as many bins
as there are cuts plus one, and its bin decides on which side of each cut it is. The root has the same rows in every
tree, so every tree adds noise vectors for the same cuts.
"""

from __future__ import annotations

import numpy as np

from veilboost.audit.attacks.masked_candidates import (
    RootMasks,
    balanced_bits,
    features_of,
    ratio_of,
    true_vectors,
)
from veilboost.audit.result import Outcome, wilson
from veilboost.audit.view import Truth, View
from veilboost.types import BoolArray, Float64Array, Int64Array, PartyName

NAME = "likelihood of the masks"
PROTOCOLS = frozenset({"masked"})
ADVERSARY, VICTIM, DATA = "active", "passive", "features"

_BEAM = 64
_ROWS = 300
_TREES = 100
_COLUMNS = 2


def run(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
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
