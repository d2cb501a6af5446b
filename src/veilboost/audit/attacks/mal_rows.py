"""What the server of `mal` has of a participant: rows by bucket and sums of labels per bucket, masks taken off.

Masks cancel in every bucket. So the masked labels, added up per bucket, are the true sums, and the part of the masked
labels that lies in the span of the buckets is that of the true ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from veilboost.audit.attacks.equations import least_squares
from veilboost.audit.result import balanced_accuracy
from veilboost.audit.view import Truth, View
from veilboost.protocols.mal.messages import MaskedRows
from veilboost.types import Float64Array, PartyName, UInt8Array

MOST_ROWS = 3_000  # of a participant: a larger one has so many rows for each equation that little shows


@dataclass(frozen=True)
class BucketSums:
    """One participant's rows: `inside` (slots, rows) says who is in which bucket; `masked` (rows, classes).

    `others` is the label that the other participants' sums give such rows, and `baseline` how often that is right: what
    a server knows of a row without the row's own label, as from any model. `labels` are for scoring.
    """

    inside: Float64Array
    masked: Float64Array
    others: Float64Array
    baseline: float
    labels: Float64Array

    @property
    def rows(self) -> int:
        return self.inside.shape[1]

    @property
    def sums(self) -> Float64Array:
        """(slots, classes): of zeros and ones, so whole numbers but for rounding."""
        return np.rint(self.inside @ self.masked)

    def projected(self) -> Float64Array:
        """The labels' part (rows, classes) in the span of the buckets: of all that have these sums the shortest."""
        return least_squares(self.inside, self.sums)

    def leverage(self) -> Float64Array:
        """The share of each row's label that the sums determine by themselves: at 1 no mask that cancels hides it."""
        _, size, directions = np.linalg.svd(self.inside, full_matrices=False)
        return (directions[size > 1e-9 * size.max(initial=0.0)] ** 2).sum(axis=0)

    def classes(self, score: Float64Array) -> Float64Array:
        """Labels by scores (rows, classes); of two classes as many rows are in the second as the sums say."""
        return _classes(score, self.masked.sum(axis=0))


def bucket_sums(view: View, truth: Truth, victim: PartyName) -> BucketSums | None:
    """What a participant's rows tell; None where they did not come, are too many, or their labels are no classes."""
    sent, labels = view.received(MaskedRows, victim), truth.labels(victim)
    # A participant that dropped rows does not say which: there is nothing to score a guess against.
    if not sent or len(sent[-1].buckets) != len(labels) or len(labels) > MOST_ROWS:
        return None
    masked = np.ascontiguousarray(sent[-1].labels.T)
    if not np.isin(labels, np.arange(max(2, masked.shape[1]))).all() or len(np.unique(labels)) < 2:
        return None
    inside = _indicators(sent[-1].buckets, sent[-1].buckets)
    rest = [each for peer in view.peers if peer != victim for each in view.received(MaskedRows, peer)[-1:]]
    others = _classes(_by_others(sent[-1].buckets, rest, masked.shape[1]), masked.sum(axis=0))
    baseline = max(balanced_accuracy(labels, others, "").value, 1 / len(np.unique(labels)))
    return BucketSums(inside, masked, others, baseline, labels)


def _classes(score: Float64Array, totals: Float64Array) -> Float64Array:
    if score.shape[1] > 1:
        return score.argmax(axis=1).astype(np.float64)
    guess = np.zeros(len(score))
    guess[np.argsort(-score[:, 0], kind="stable")[: max(round(float(totals[0])), 0)]] = 1.0
    return guess


def _by_others(target: UInt8Array, rest: list[MaskedRows], classes: int) -> Float64Array:
    """A regression on buckets, with a ridge of one row a bucket: it needs sums alone."""
    slots = _indicators(target, target)
    gram, sums = np.eye(len(slots)), np.zeros((len(slots), classes))
    for each in rest:
        inside = _indicators(target, each.buckets)
        gram += inside @ inside.T
        sums += inside @ each.labels.T
    return slots.T @ np.linalg.solve(gram, sums)


def _indicators(named: UInt8Array, buckets: UInt8Array) -> Float64Array:
    """(slots, rows of `buckets`): which are in each of the buckets that `named` has, column after column."""
    return np.concatenate(
        [buckets[:, column] == np.unique(named[:, column])[:, None] for column in range(named.shape[1])]
    ).astype(np.float64)
