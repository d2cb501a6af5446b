"""Masks on labels that cancel in every bucket (MAL section 3.4), and whether they hide anything.

Let S be the 0/1 matrix of buckets by rows. A mask m cancels in every bucket where S m = 0, so masks are random vectors
less their projection onto the rows of S: m = (I - S^+ S) x. The paper's Algorithm 2 solves a homogeneous system for the
same space of masks; the projection needs no unknowns and is linear in the number of rows.

What the server then knows of the labels y is S y, that is the projection S^+ S y. Row i's *leverage* is (S^+ S)_ii: the
share of its label that the sums determine by themselves. At 1 the mask is zero and the label stands in the clear. The
leverages add up to the rank of S, so a limit on them limits the number of equations per label too: from about half the
number of rows on, linear programming finds all 0/1 labels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from veilboost.errors import EmptyTable, UnsupportedCombination
from veilboost.types import BoolArray, Float64Array, Int64Array, UInt8Array

_SMALL_BLOCK = 48
_MISSED = 1e-7  # how far an inverse may be off
_TOLERANCE = 1e-9  # of a leverage, and of eigenvalues relative to the largest


class BucketSpace:
    """The span of the bucket indicators of some rows. Slots number all buckets of all columns."""

    def __init__(self, buckets: UInt8Array, widths: Int64Array) -> None:
        self._offsets = np.concatenate(([0], np.cumsum(widths)))
        self._count = int(self._offsets[-1])
        self._buckets = [buckets[:, f].astype(np.int64) for f in range(buckets.shape[1])]
        self._slots = [column + self._offsets[f] for f, column in enumerate(self._buckets)]
        self.rows = len(buckets)
        self._inverse, self.rank = self._invert()

    def _gram(self) -> Float64Array:
        """S S': how many rows two buckets share."""
        gram = np.zeros((self._count, self._count))
        for f, buckets in enumerate(self._buckets):
            first, end = self._offsets[f], self._offsets[f + 1]
            lines: dict[int, Int64Array] = {}
            for other in range(f, len(self._buckets)):
                begin, width = self._offsets[other], int(self._offsets[other + 1] - self._offsets[other])
                if width not in lines:
                    lines[width] = buckets * width
                pair = lines[width] + self._buckets[other]
                together = np.bincount(pair, minlength=int(end - first) * width).reshape(-1, width)
                gram[first:end, begin : begin + width] = together
                gram[begin : begin + width, first:end] = together.T
        return gram

    def _invert(self) -> tuple[Float64Array, int]:
        """A generalised inverse of S S', and the rank of S.

        The buckets of every column add up to all rows, so one of each further column can be left out. What is left
        usually has full rank.
        """
        gram = self._gram()
        counts = gram.diagonal()
        kept = counts > 0
        for f in range(1, len(self._slots)):
            largest = self._offsets[f] + int(counts[self._offsets[f] : self._offsets[f + 1]].argmax())
            kept[largest] = False
        place = np.flatnonzero(kept)
        small = gram[np.ix_(place, place)]
        inverse = np.zeros_like(gram)
        try:
            solved = _inverse(small)  # fails where the rank is not full, or gives what is no inverse
            largest_error = np.abs(solved).max(initial=0.0) * len(small) * np.finfo(float).eps * counts.max()
            probe = np.random.default_rng(0).normal(size=len(small))  # public: it only looks at the arithmetic
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
        """The part of the values that cancels in every bucket. The second pass takes away what rounding left."""
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


def _inverse(matrix: Float64Array) -> Float64Array:
    """The inverse of a positive definite matrix, block by block: products of matrices are what runs fastest.

    A matrix is positive definite where its first block and the other's Schur complement are, so `LinAlgError` from a
    small block tells that this one is not.
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
    """Rows that are fit to be masked, and what was done to them; only the policy "allow" leaves `exposed` ones."""

    buckets: UInt8Array
    kept: BoolArray
    space: BucketSpace
    merged_cells: int
    largest_leverage: float
    exposed: int

    def report(self) -> dict[str, Any]:
        """What may be told: all of it follows from the buckets that are sent."""
        return {
            "rows": int(self.kept.sum()),
            "rank": self.space.rank,
            "largest_leverage": self.largest_leverage,
            "merged_cells": self.merged_cells,
            "dropped_rows": int((~self.kept).sum()),
            "exposed_rows": self.exposed,
        }


def guard_rows(buckets: UInt8Array, widths: Int64Array, policy: str, limit: float) -> Guarded:
    """Make sure that no row's leverage is above the limit: refuse, merge buckets or drop rows, as the policy says."""
    everyone = np.ones(len(buckets), dtype=np.bool_)
    found = _measured(buckets, everyone, widths, limit)
    if not found.exposed or policy == "allow":
        return found
    if policy == "refuse":
        raise UnsupportedCombination(
            f"masks cannot hide {found.exposed} of {len(buckets)} labels: the bucket sums determine more than "
            f"{limit:g} of each (rank {found.space.rank})",
            "use fewer buckets, more rows, or the guard merge or drop",
        )
    return _merged(found, widths, limit) if policy == "merge" else _dropped(found, widths, limit)


def _measured(buckets: UInt8Array, kept: BoolArray, widths: Int64Array, limit: float, merged: int = 0) -> Guarded:
    space = BucketSpace(buckets, widths)
    leverage = space.leverage()
    exposed = int((leverage > limit + _TOLERANCE).sum())
    return Guarded(buckets, kept, space, merged, float(leverage.max(initial=0.0)), exposed)


def _merged(found: Guarded, widths: Int64Array, limit: float) -> Guarded:
    """Merge neighbouring buckets until each holds enough rows; how many are enough is found by trying."""
    rows, least = len(found.buckets), 2
    while least <= 2 * rows:
        buckets = np.stack([_coarser(found.buckets[:, f], int(widths[f]), least) for f in range(len(widths))], axis=1)
        tried = _measured(buckets, found.kept, widths, limit, int((buckets != found.buckets).sum()))
        if not tried.exposed:
            return tried
        least = max(least + 1, least * 3 // 2)
    raise _too_few(rows)


def _coarser(column: UInt8Array, width: int, least: int) -> UInt8Array:
    """Runs of neighbouring buckets become one bucket, the fullest of the run, so that each holds `least` rows."""
    counts = np.bincount(column, minlength=width)
    group = np.zeros(width, dtype=np.int64)
    held, number = 0, 0
    for bucket in range(width):
        group[bucket] = number
        held += int(counts[bucket])
        if held >= least:
            held, number = 0, number + 1
    if held:
        group[group == number] = max(number - 1, 0)  # what is left over joins the last run that is full
    home = np.arange(width)
    for run in range(number + 1):
        members = np.flatnonzero(group == run)
        if len(members):
            home[members] = members[counts[members].argmax()]
    return home[column].astype(np.uint8)


def _dropped(found: Guarded, widths: Int64Array, limit: float) -> Guarded:
    """Leave out the rows above the limit, again and again: without them, others stand more alone."""
    kept, buckets = found.kept.copy(), found.buckets
    while found.exposed:
        stays = found.space.leverage() <= limit + _TOLERANCE
        kept[np.flatnonzero(kept)[~stays]] = False
        buckets = buckets[stays]
        if not len(buckets):
            raise _too_few(len(kept))
        found = _measured(buckets, kept, widths, limit)
    return replace(found, kept=kept)


def _too_few(rows: int) -> EmptyTable:
    return EmptyTable(
        f"no mask can hide the labels of {rows} rows", "give the participant more rows, or use fewer buckets"
    )
