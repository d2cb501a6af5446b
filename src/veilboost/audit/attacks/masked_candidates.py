"""The splitting vectors behind the masks of a root, for scoring: in the order in which their masks are sent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from veilboost.audit.attacks.masked_answers import masked_node
from veilboost.audit.replay import ReplayedRound, rounds
from veilboost.audit.view import Truth, View
from veilboost.protocols.masked.candidates import rows_left
from veilboost.protocols.masked.options import MaskedOptions
from veilboost.protocols.masked.parameters import Noise
from veilboost.protocols.vertical.messages import ColumnsOffered
from veilboost.types import BoolArray, Float64Array, Int64Array, PartyName

_SURE = 5.0  # of the standard errors of a level


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
