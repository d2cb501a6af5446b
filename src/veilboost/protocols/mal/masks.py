"""Masks on labels that cancel in every bucket (MAL section 3.4), and a check of how much they hide.

Let S be the 0/1 matrix of buckets by rows. A mask m cancels in every bucket if S m = 0, so masks are random vectors
minus their projection onto the rows of S: m = (I - S^+ S) x. The paper's Algorithm 2 solves a homogeneous system for
the same space of masks; the projection needs no unknowns and is linear in the number of rows.

The server then knows S y of the labels y, that is the projection S^+ S y. The *leverage* of row i is (S^+ S)_ii: the
share of its label that the sums determine. At 1 the mask is zero and the label is sent in the clear. The leverages add
up to the rank of S, so a limit on them also limits the number of equations per label: from about half the number of
rows on, linear programming finds all 0/1 labels.

With sample weights, masks cancel among the rows of equal weight, so the server has a sum for each bucket and weight.
Masks that cancel only in weighted sums would hide no more: the number of ones with each weight can often be read from
such a sum. The leverages count these equations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from veilboost.errors import EmptyTable, UnsupportedCombination
from veilboost.protocols.mal.messages import REPORT
from veilboost.types import BoolArray, Float64Array, Int64Array, UInt8Array

_SMALL_BLOCK = 48
_MISSED = 1e-7  # allowed error of an inverse
_TOLERANCE = 1e-9  # of a leverage, and of eigenvalues relative to the largest


class BucketSpace:
    """The span of the bucket indicators of some rows, apart for each class of weight.

    Slots enumerate all buckets of all columns, and in each bucket the classes; `of` has the class of each row.
    """

    def __init__(self, buckets: UInt8Array, widths: Int64Array, of: UInt8Array | None = None) -> None:
        self._classes = 1 if of is None else int(of.max(initial=0)) + 1
        self._offsets = np.concatenate(([0], np.cumsum(widths * self._classes)))
        self._count = int(self._offsets[-1])
        self._buckets = [slots_of(buckets[:, f], of, self._classes) for f in range(buckets.shape[1])]
        self._slots = [column + self._offsets[f] for f, column in enumerate(self._buckets)]
        self.rows = len(buckets)
        self._inverse, self.rank = self._invert()

    def _gram(self) -> Float64Array:
        """S S': the number of rows that two buckets share."""
        gram = np.zeros((self._count, self._count))
        for f, buckets in enumerate(self._buckets):
            first, end = self._offsets[f], self._offsets[f + 1]
            lines: dict[int, Int64Array] = {}
            for other in range(f, len(self._buckets)):
                begin, width = self._offsets[other], int(self._offsets[other + 1] - self._offsets[other])
                if width not in lines:
                    lines[width] = buckets * width
                pair = lines[width] + self._buckets[other]
                shared = np.bincount(pair, minlength=int(end - first) * width).reshape(-1, width)
                gram[first:end, begin : begin + width] = shared
                gram[begin : begin + width, first:end] = shared.T
        return gram

    def _invert(self) -> tuple[Float64Array, int]:
        """A generalised inverse of S S', and the rank of S.

        The buckets of every column add up to all rows of a class, so one bucket of each further column and class can be
        omitted. The rest usually has full rank.
        """
        gram = self._gram()
        counts = gram.diagonal()
        kept = counts > 0
        for f in range(1, len(self._slots)):
            of_class = counts[self._offsets[f] : self._offsets[f + 1]].reshape(-1, self._classes)
            kept[self._offsets[f] + of_class.argmax(axis=0) * self._classes + np.arange(self._classes)] = False
        place = np.flatnonzero(kept)
        small = gram[np.ix_(place, place)]
        inverse = np.zeros_like(gram)
        try:
            solved = _inverse(small)  # fails if the rank is not full, or returns no inverse
            largest_error = np.abs(solved).max(initial=0.0) * len(small) * np.finfo(float).eps * counts.max()
            probe = np.random.default_rng(0).normal(size=len(small))  # public: it only tests the arithmetic
            missed = np.abs(small @ (solved @ probe) - probe).max(initial=0.0)
            if not (largest_error <= _TOLERANCE and missed <= _MISSED):
                raise np.linalg.LinAlgError
            inverse[np.ix_(place, place)] = solved
            return inverse, len(place)
        except np.linalg.LinAlgError:
            values, vectors = np.linalg.eigh(small)
            real = values > _TOLERANCE * values[-1]
            vectors = vectors[:, real]
            inverse[np.ix_(place, place)] = (vectors / values[real]) @ vectors.T
            return inverse, int(real.sum())

    def sums(self, values: Float64Array) -> Float64Array:
        """S v: the sum of the values in every bucket."""
        total = np.zeros(self._count)
        for slots in self._slots:
            total += np.bincount(slots, weights=values, minlength=self._count)
        return total

    def off(self, values: Float64Array) -> Float64Array:
        """The component of the values that cancels in every bucket. The second pass removes rounding errors."""
        for _ in range(2):
            at_slot = self._inverse @ self.sums(values)
            values = values - sum(at_slot[slots] for slots in self._slots)
        return values

    def leverage(self) -> Float64Array:
        """The share of each row's label that the bucket sums determine, in [0, 1]."""
        total: Float64Array = np.zeros(self.rows)
        entries: Float64Array = self._inverse.reshape(-1)
        for f, slots in enumerate(self._slots):
            line = slots * self._count
            total += entries[line + slots]
            for other in self._slots[f + 1 :]:
                total += 2.0 * entries[line + other]
        return np.clip(total, 0.0, 1.0)


def slots_of(bucket: UInt8Array, of: UInt8Array | None, classes: int) -> Int64Array:
    """The place of each row among the buckets of a column, each divided by classes of weight."""
    return bucket.astype(np.int64) if of is None else bucket.astype(np.int64) * classes + of


def _inverse(matrix: Float64Array) -> Float64Array:
    """The inverse of a positive definite matrix, block by block, because products of matrices are fastest.

    A matrix is positive definite if its first block and the Schur complement of the other are, so `LinAlgError` from a
    small block means that the matrix is not.
    """
    size = len(matrix)
    if size <= _SMALL_BLOCK:
        np.linalg.cholesky(matrix)
        return np.linalg.inv(matrix).astype(np.float64, copy=False)
    half = size // 2
    first = _inverse(matrix[:half, :half])
    across = matrix[half:, :half] @ first
    rest = matrix[half:, half:] - across @ matrix[:half, half:]
    second = _inverse((rest + rest.T) / 2)
    lower = -second @ across
    whole = np.empty_like(matrix)
    whole[half:, half:], whole[half:, :half], whole[:half, half:] = second, lower, lower.T
    whole[:half, :half] = first - across.T @ lower
    return whole


@dataclass(frozen=True)
class Guarded:
    """Rows that masks can hide, and how they were changed; only the policy "allow" leaves `exposed` rows."""

    buckets: UInt8Array
    kept: BoolArray
    space: BucketSpace
    merged_cells: int
    largest_leverage: float
    exposed: int

    def report(self) -> dict[str, float]:
        """Return the facts that may be sent: all of them follow from the buckets that are sent."""
        kept, dropped = int(self.kept.sum()), int((~self.kept).sum())
        facts = kept, self.space.rank, self.largest_leverage, self.merged_cells, dropped, self.exposed
        return dict(zip(REPORT, facts, strict=True))


def guard_rows(
    buckets: UInt8Array, widths: Int64Array, policy: str, limit: float, of: UInt8Array | None = None
) -> Guarded:
    """Ensure that no row's leverage exceeds the limit: refuse, merge buckets or drop rows, according to the policy.

    `of` has the class of weight of each row, if there are weights.
    """
    everyone = np.ones(len(buckets), dtype=np.bool_)
    found = _measured(buckets, everyone, widths, limit, of)
    if not found.exposed or policy == "allow":
        return found
    if policy == "refuse":
        raise UnsupportedCombination(
            f"masks cannot hide {found.exposed} of {len(buckets)} labels: the bucket sums determine more than "
            f"{limit:g} of each (rank {found.space.rank})",
            "lower max_bin, use more rows, or set guard to merge or drop",
        )
    return _merged(found, widths, limit, of) if policy == "merge" else _dropped(found, widths, limit, of)


def _measured(
    buckets: UInt8Array, kept: BoolArray, widths: Int64Array, limit: float, of: UInt8Array | None, merged: int = 0
) -> Guarded:
    space = BucketSpace(buckets, widths, None if of is None else of[kept])
    leverage = space.leverage()
    exposed = int((leverage > limit + _TOLERANCE).sum())
    return Guarded(buckets, kept, space, merged, float(leverage.max(initial=0.0)), exposed)


def _merged(found: Guarded, widths: Int64Array, limit: float, of: UInt8Array | None) -> Guarded:
    """Merge neighbouring buckets until each holds enough rows, with increasing thresholds."""
    rows, least = len(found.buckets), 2
    while least <= 2 * rows:
        buckets = np.stack([_coarser(found.buckets[:, f], int(widths[f]), least) for f in range(len(widths))], axis=1)
        tried = _measured(buckets, found.kept, widths, limit, of, int((buckets != found.buckets).sum()))
        if not tried.exposed:
            return tried
        least = max(least + 1, least * 3 // 2)
    raise _too_few(rows)


def _coarser(column: UInt8Array, width: int, least: int) -> UInt8Array:
    """Merge runs of neighbouring buckets into the fullest of each run, so that each holds `least` rows."""
    counts = np.bincount(column, minlength=width)
    group = np.zeros(width, dtype=np.int64)
    held, number = 0, 0
    for bucket in range(width):
        group[bucket] = number
        held += int(counts[bucket])
        if held >= least:
            held, number = 0, number + 1
    if held:
        group[group == number] = max(number - 1, 0)  # the rest joins the last full run
    home = np.arange(width)
    for run in range(number + 1):
        members = np.flatnonzero(group == run)
        if len(members):
            home[members] = members[counts[members].argmax()]
    return home[column].astype(np.uint8)


def _dropped(found: Guarded, widths: Int64Array, limit: float, of: UInt8Array | None) -> Guarded:
    """Drop rows above the limit repeatedly: without them the leverage of other rows grows."""
    kept, buckets = found.kept.copy(), found.buckets
    while found.exposed:
        stays = found.space.leverage() <= limit + _TOLERANCE
        kept[np.flatnonzero(kept)[~stays]] = False
        buckets = buckets[stays]
        if not len(buckets):
            raise _too_few(len(kept))
        found = _measured(buckets, kept, widths, limit, of)
    return replace(found, kept=kept)


def _too_few(rows: int) -> EmptyTable:
    return EmptyTable(f"no mask can hide the labels of {rows} rows", "give the participant more rows, or lower max_bin")
