"""`smm2`: the active party looks for split columns among all vectors that are orthogonal to the kernel vectors.

Columns of zeros and ones that are orthogonal to all vectors sent are corners of a polytope. With nearly as many vectors
as rows there are few corners, and most are split columns or unions of bins; with few vectors there are very many, and
nothing tells which are true.
"""

from __future__ import annotations

import numpy as np

from veilboost.audit.replay import rounds
from veilboost.audit.result import Outcome, wilson
from veilboost.audit.solvers import between
from veilboost.audit.view import Truth, View
from veilboost.protocols.smm2.messages import Smm2Kernels
from veilboost.protocols.smm2.options import Smm2Options
from veilboost.types import AnyArray, BoolArray, Float64Array, PartyName

NAME = "corners orthogonal to the kernel vectors"
PROTOCOLS = frozenset({"smm2"})
ADVERSARY, VICTIM, DATA = "active", "passive", "features"

_TRIES = 12
_ROWS = 1_000
_WHOLE = 1e-6


def run(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    played = [one for one in rounds(view, victim) if one.levels]
    if not played:
        return None
    root = played[0].levels[0]
    rows = int(root.build.counts[0])
    vectors = Smm2Options.from_dict(view.config.options).count(rows, 2)
    kernels = next((each for each in root.messages if isinstance(each, Smm2Kernels)), None)
    if kernels is None or not len(kernels.node) or not 1 < rows <= _ROWS or not vectors:
        return None
    kernel = kernels.kernel[: rows * vectors].reshape(rows, vectors)
    corners = [_corner(kernel, rng) for _ in range(_TRIES)]
    block = truth.block(victim)
    if block.shared is None:
        return None
    bins = block.shared.bins[0][played[0].fit]
    hits = np.array([each is not None and union_of_bins(each, bins) for each in corners])
    low, high = wilson(float(hits.mean()), _TRIES)
    return Outcome(
        "corners that are unions of bins",
        float(hits.mean()),
        0.0,
        low if hits.any() else 0.0,
        high,
        f"{int(hits.sum())} of {_TRIES} corners of what {vectors} kernel vectors allow are unions of true bins",
        bar=0.05,  # every such corner shows sides of a column; a lucky one or two are not yet an attack
    )


def _corner(kernel: Float64Array, rng: np.random.Generator) -> BoolArray | None:
    """A corner of {x orthogonal to the vectors, all entries between 0 and 1}, if all its entries are 0 or 1."""
    rows, vectors = (int(size) for size in kernel.shape)
    x = between(rng.normal(size=rows), kernel.T, np.zeros(vectors), np.ones(rows))
    return x > 0.5 if x is not None and float(np.minimum(x, 1.0 - x).max()) < _WHOLE else None


def union_of_bins(corner: BoolArray, bins: AnyArray) -> bool:
    """Is it the same for all rows of a bin, for all bins of some column, and not the same for all rows?"""
    if not 0 < int(corner.sum()) < len(corner):
        return False
    for own in bins.T:
        inside = np.bincount(own, corner)
        if ((inside == 0) | (inside == np.bincount(own))).all():
            return True
    return False
