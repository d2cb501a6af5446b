"""The order of a column's values, from the sides of winning cuts: every protocol that splits nodes tells them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from veilboost.audit.attack import declare
from veilboost.audit.replay import foreign_sides, sides_of
from veilboost.audit.result import Outcome
from veilboost.audit.view import Truth, View
from veilboost.types import Column, Float64Array, Int32Array, PartyName

MOST_CUTS, LEAST_SHARED = 200, 20


@dataclass
class _Chain:
    """Cuts that could be of one column: for each row the sum of its sides, and the cuts themselves."""

    score: Float64Array
    cuts: list[Int32Array] = field(default_factory=list[Int32Array])

    def shared(self, side: Int32Array) -> int:
        """How many rows of the cut stood at one of these cuts; -1 where one contradicts it."""
        seen = 0
        for cut in self.cuts:
            here, there = side[cut != 0], cut[cut != 0]
            both = int(np.count_nonzero(here))
            if np.any((here < 0) & (there > 0)) and np.any((here > 0) & (there < 0)):
                return -1
            seen += both
        return seen


@declare("order of values from winning cuts", "active", "passive", "features")
def feature_order(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """The order of a column's values, from the sides of winning cuts: told row by row by every protocol that splits
    nodes.

    A cut says that all rows on its left have smaller values than those on its right. Two cuts of one column never
    contradict each other, two of different columns nearly always do: so cuts are sorted into columns without knowing
    which handle belongs to which, and the cuts of one column are added up to an order of its rows.
    """
    return order_from(sides_of(view, victim).values(), view.rows, truth.tables[victim].columns)


def order_from(sides: Iterable[tuple[Int32Array, Int32Array]], rows: int, columns: Sequence[Column]) -> Outcome | None:
    """How well cuts, each its left and its right rows, order some column; None where there are none."""
    found = sorted(sides, key=lambda pair: -len(pair[0]) - len(pair[1]))[:MOST_CUTS]
    if not found or not columns:
        return None
    chains: list[_Chain] = []
    for left, right in found:
        side = np.zeros(rows, dtype=np.int32)
        side[left], side[right] = -1, 1
        shared = [chain.shared(side) for chain in chains]
        best = int(np.argmax(shared)) if shared else 0
        if not shared or shared[best] < LEAST_SHARED:
            if np.count_nonzero(side) < rows / 4:
                continue  # too small to start a column of its own
            chains.append(_Chain(np.zeros(rows)))
            best = -1
        chains[best].cuts.append(side)
        chains[best].score += side
    values = [column.values.astype(np.float64) for column in columns]
    reached = [max(_likeness(chain.score, column) for chain in chains) for column in values] if chains else [0.0]
    value = float(np.max(reached))
    error = 1.96 / np.sqrt(max(rows - 3, 1))  # of a rank correlation, Fisher
    low, high = (float(np.tanh(np.arctanh(min(value, 0.999999)) + sign * error)) for sign in (-1, 1))
    sentence = (
        f"{len(found)} winning cuts order the rows of one column with rank correlation {value:.3f}, "
        f"and of the average column with {float(np.mean(reached)):.3f}"
    )
    return Outcome("rank correlation", value, 0.0, max(low, 0.0), high, sentence)


def _likeness(score: Float64Array, column: Float64Array) -> float:
    """Spearman's correlation without its sign: the direction of an order is one bit."""
    there = np.isfinite(column)
    if np.ptp(score[there]) == 0 or np.ptp(column[there]) == 0:
        return 0.0
    one, other = (_ranks(each[there]) for each in (score, column))
    one, other = one - one.mean(), other - other.mean()
    return abs(float(one @ other / np.sqrt((one @ one) * (other @ other))))


def _ranks(values: Float64Array) -> Float64Array:
    """Ranks, equal values in the middle of theirs."""
    _, at, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count + 1) / 2)[at]


@declare("order of the active party's values", "passive", "active", "features")
def active_order(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """The order of the active party's own values, from the sides of its cuts: every passive party keeps rows by node
    too.

    A passive party is not told whose a cut is. With two parties it is the active one's if it is not its own; with more
    the cuts of all others come together, and sort themselves into columns.
    """
    return order_from(foreign_sides(view, victim), view.rows, truth.tables[victim].columns)
