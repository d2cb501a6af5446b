"""The passive side's candidates: which splitting vectors a node has, and what noisy sums make of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from veilboost.boost.bins import KIND_CODES, BinLayout
from veilboost.config import TrainingConfig
from veilboost.types import BoolArray, ColumnKind, Float64Array, Int64Array


def left_of(bins: Int64Array, layout: BinLayout) -> Int64Array:
    """What each candidate sends left, shape (nodes, slots, 2), from sums per bin (nodes, slots).

    A candidate is (slot, direction of missing values), as in `native/split.cpp`; its splitting vector m has a 1 for
    every row that goes left.
    """
    left = np.zeros((*bins.shape, 2), dtype=np.int64)
    for values, absent, onehot in _features(layout):
        sent = bins[:, values] if onehot else bins[:, values].cumsum(axis=1)
        left[:, values, 0] = sent
        if absent is not None:
            left[:, values, 1] = sent + bins[:, absent, None]
    return left


def rows_left(counts: Int64Array, layout: BinLayout) -> Int64Array:
    """How many rows each candidate sends left, from row counts per bin.

    0 where there is no candidate, or where it has the splitting vector of an earlier one.
    """
    left = left_of(counts, layout)
    for values, absent, onehot in _features(layout):
        empty: BoolArray = counts[:, values] == 0
        left[:, values, 0][empty] = 0
        if absent is not None:
            # An empty bin with missing values left is the split "missing or not", which the first one offers.
            again = empty.copy()
            again[:, 0] = False
            if onehot:
                again = empty & (np.add.accumulate(empty, axis=1, dtype=np.int64) > 1)
            left[:, values, 1][again | (counts[:, absent, None] == 0)] = 0
    return left


def _features(layout: BinLayout) -> Iterator[tuple[slice, int | None, bool]]:
    """Each feature's slots of values, its slot of missing values, and whether one bin stands against the rest."""
    for feature in range(layout.features):
        start, end = int(layout.offsets[feature]), int(layout.offsets[feature + 1])
        values = end - int(layout.missing[feature])
        onehot = bool(layout.kind[feature] == KIND_CODES[ColumnKind.ONEHOT])
        yield slice(start, values), values if values < end else None, onehot


def noisy_gains(left: Float64Array, total: Float64Array, config: TrainingConfig) -> Float64Array:
    """Scores of candidates from their left sums (candidates, 2) and the node's (G, H): Alg. 3, lines 9 and 10.

    As everywhere in this house the score has no factor 1/2, and the active party compares it with gamma. Minus
    infinity where a child has too little hessian. So noisy hessians below 0 or above H are out as well, as they would
    be if they were brought back to the border; a score that divided by what the border leaves would beat all others.
    """
    g, h = left[:, 0], left[:, 1]
    other_g, other_h = total[0] - g, total[1] - h
    parent = _score(total[:1], total[1:], config)[0]
    gains = _score(g, h, config) + _score(other_g, other_h, config) - parent
    least = config.min_child_weight
    enough = (h > 0) & (h >= least) & (other_h > 0) & (other_h >= least)
    return np.where(enough, gains, -np.inf)


def _score(g: Float64Array, h: Float64Array, config: TrainingConfig) -> Float64Array:
    """The kernel's formula, operation by operation, so that equal sums have equal scores."""
    denominator = h + config.reg_lambda
    shrunk = np.sign(g) * np.maximum(np.abs(g) - config.reg_alpha, 0.0) if config.reg_alpha else g
    usable = denominator > 0
    safe = np.where(usable, denominator, 1.0)
    if config.max_delta_step == 0:
        return np.where(usable, shrunk * shrunk / safe, 0.0)
    weight = np.clip(-shrunk / safe, -config.max_delta_step, config.max_delta_step)
    value = -(2.0 * g * weight + denominator * weight * weight + 2.0 * config.reg_alpha * np.abs(weight))
    return np.where(usable, value, 0.0)
