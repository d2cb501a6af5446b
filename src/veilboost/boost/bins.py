"""Candidate cuts of numeric features, and the layout of the bins of all columns.

A value x goes left of cut c when x < c, in float32, as in XGBoost.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from veilboost.fixedpoint import from_ordered
from veilboost.types import ColumnKind, Float32Array, Float64Array, Int32Array, Int64Array, UInt8Array, UInt32Array

ABOVE_ALL = np.float32(np.finfo(np.float32).max)  # every present value is left of this cut

Keys = Sequence[UInt32Array]  # for each column, float32 values as order-preserving integers
Counts = Sequence[Int64Array]  # how many values of each column do not exceed each of its keys


class Ranked(NamedTuple):
    """The values at some ranks of a sorted column, the rows before each value, and the rows up to its last."""

    value: Float32Array
    before: Int64Array
    upto: Int64Array


def propose_cuts(values: Float32Array, weights: Float64Array | None, max_bin: int, binning: str) -> Float32Array:
    """At most `max_bin - 1` increasing cuts for one feature; missing values (NaN) are ignored."""
    present = ~np.isnan(values)
    if not present.all():
        values = values[present]
        weights = None if weights is None else weights[present]
    if len(values) == 0:
        return np.empty(0, dtype=np.float32)
    if binning == "width":
        return equal_width(float(values.min()), float(values.max()), max_bin)
    if weights is not None:
        return _weighted_quantiles(values, weights, max_bin)
    return _answered(quantiles(len(values), max_bin), np.sort(values))


def equal_width(low: float, high: float, max_bin: int) -> Float32Array:
    """Borders of bins of equal width (MAL Alg. 1, lines 10 and 11), as float32, the type of values.

    If float32 cannot distinguish two borders, or all values are equal, there are fewer bins.
    """
    edges = low + (high - low) * np.arange(1, max_bin) / max_bin
    cuts = np.unique(edges.astype(np.float32))
    return cuts[cuts > np.float32(low)]


def quantiles(rows: int, max_bin: int) -> Generator[Int64Array, Ranked, Float32Array]:
    """The cuts that give bins about equal numbers of rows: a coroutine for callers that can look up ranks of a column.

    It yields ranks, counted from 1, receives the values at these ranks, and returns the cuts. It uses integers only, so
    the cuts do not depend on where the rows are or how they are counted.

    A value with at least an equal share of the rows gets a bin of its own, and the remaining rows are divided among the
    remaining bins: otherwise one heavy value would cover several quantiles and leave fewer bins than requested. Among
    light values, a bin ends with the value that completes a share: number ceil(k * light / bins) of the light rows, for
    every k.
    """
    before = upto = last = np.empty(0, dtype=np.int64)  # rows before and up to every heavy value, in order
    while light := rows - int((upto - before).sum()):
        bins = max_bin - len(upto)
        shares = -(-np.arange(1, bins + 1) * light // bins)
        # As ranks among all rows, including the heavy ones before. A value with an equal share has one of these ranks.
        heavy_rows = np.concatenate(([0], (upto - before).cumsum()))
        found = yield shares + heavy_rows[(before - heavy_rows[:-1]).searchsorted(shares)]
        heavy = (found.upto - found.before) * bins >= light
        if not heavy.any():
            last = found.upto
            break
        heavy[1:] &= found.before[1:] != found.before[:-1]  # once, even if it has several of the ranks
        before = np.sort(np.concatenate((before, found.before[heavy])))
        upto = np.sort(np.concatenate((upto, found.upto[heavy])))
    ends = np.union1d(upto, last)[:-1]  # the last bin ends with the last row
    around = yield np.concatenate((ends, ends + 1))
    return between(*np.split(around.value, 2))


def _answered(search: Generator[Int64Array, Ranked, Float32Array], column: Float32Array) -> Float32Array:
    """Run a search on a sorted column and return its result."""
    ranks = next(search)
    while True:
        value = column[ranks - 1]
        try:
            ranks = search.send(Ranked(value, column.searchsorted(value), column.searchsorted(value, side="right")))
        except StopIteration as end:
            return end.value


def cuts_by_counting(
    columns: int, max_bin: int, binning: str, points: int, count: Callable[[Keys], Counts]
) -> list[Float32Array]:
    """`propose_cuts` of every column, where the values are elsewhere and only counts are available.

    All columns are searched in parallel. At most `points` counts of a column are requested at a time, and none once its
    cuts are found.
    """
    searches = [_search(max_bin, binning, points) for _ in range(columns)]
    asked = [next(search) for search in searches]
    cuts: list[Float32Array] = [np.empty(0, dtype=np.float32)] * columns
    while any(len(keys) for keys in asked):
        for number, answer in enumerate(count(asked)):
            if not len(asked[number]):
                continue
            try:
                asked[number] = searches[number].send(answer)
            except StopIteration as end:
                cuts[number], asked[number] = end.value, asked[number][:0]
    return cuts


def _search(max_bin: int, binning: str, points: int) -> Generator[UInt32Array, Int64Array, Float32Array]:
    """The cuts of one column. Yields keys and receives the counts up to them."""
    known = _Counted(points)
    rows = yield from known.all_rows()
    if not rows:
        return np.empty(0, dtype=np.float32)
    if binning == "width":
        ends = yield from known.at(np.array([1, rows]))
        return equal_width(float(ends.value[0]), float(ends.value[1]), max_bin)
    rule = quantiles(rows, max_bin)
    ranks = next(rule)
    while True:
        found = yield from known.at(ranks)
        try:
            ranks = rule.send(found)
        except StopIteration as end:
            return end.value


class CountsDecrease(Exception):
    """Fewer values do not exceed a key than a smaller key: no column has such counts."""


class _Counted:
    """The requested counts of a column: how many values do not exceed certain keys, sorted by key."""

    def __init__(self, points: int) -> None:
        self._points = points
        self._keys = np.array([-1], dtype=np.int64)
        self._counts = np.zeros(1, dtype=np.int64)

    def all_rows(self) -> Generator[UInt32Array, Int64Array, int]:
        yield from self._ask(np.linspace(0, (1 << 32) - 1, self._points, dtype=np.int64))
        return int(self._counts[-1])

    def at(self, ranks: Int64Array) -> Generator[UInt32Array, Int64Array, Ranked]:
        """The values at these ranks: every gap between keys that contains one is divided until it is one key wide."""
        while True:
            place = self._counts.searchsorted(ranks)  # the first key that at least this many values do not exceed
            gaps = place[self._keys[place] - self._keys[place - 1] > 1]
            if not len(gaps):
                values = from_ordered(self._keys[place].astype(np.uint32))
                return Ranked(values, self._counts[place - 1], self._counts[place])
            gaps = np.unique(gaps)
            low, pieces = self._keys[gaps - 1], max(self._points // len(gaps), 2)
            inside = low[:, None] + (self._keys[gaps] - low)[:, None] * np.arange(1, pieces) // pieces
            yield from self._ask(np.setdiff1d(inside, low))

    def _ask(self, keys: Int64Array) -> Generator[UInt32Array, Int64Array, None]:
        counts = yield keys.astype(np.uint32)
        place = self._keys.searchsorted(keys)
        self._keys, self._counts = np.insert(self._keys, place, keys), np.insert(self._counts, place, counts)
        if (np.diff(self._counts) < 0).any():
            raise CountsDecrease


def _weighted_quantiles(values: Float32Array, weights: Float64Array, max_bin: int) -> Float32Array:
    order = np.argsort(values, kind="stable")
    values = values[order]
    starts = np.flatnonzero(np.concatenate(([True], values[1:] != values[:-1])))
    distinct, mass = values[starts], np.add.reduceat(weights[order], starts)
    first_of_bin = _first_of_each_bin(mass, max_bin)
    return between(distinct[first_of_bin - 1], distinct[first_of_bin])


def _first_of_each_bin(mass: Float64Array, max_bin: int) -> Int64Array:
    """Positions (except 0) at which a new bin starts, so that bins have about equal mass: as `quantiles`, in floats."""
    count = len(mass)
    if count <= max_bin:
        return np.arange(1, count)
    heavy = np.zeros(count, dtype=np.bool_)
    while True:
        bins_left = max_bin - int(heavy.sum())
        if bins_left < 1:
            break
        more = (mass >= mass[~heavy].sum() / bins_left) & ~heavy
        if not more.any():
            break
        heavy |= more
    # Every heavy value counts as one whole share, a light value as its fraction of a share.
    light_mass = float(mass[~heavy].sum())
    light_bins = max(max_bin - int(heavy.sum()), 1)
    share = np.where(heavy, 1.0, mass * (light_bins / light_mass if light_mass > 0 else 0.0))
    reached = np.concatenate(([0.0], np.cumsum(share)[:-1]))  # shares used up before each value
    bin_of = np.floor(reached + 1e-9)
    starts = np.flatnonzero(np.concatenate(([False], bin_of[1:] != bin_of[:-1])))
    return starts[: max_bin - 1]


def between(low: Float32Array, high: Float32Array) -> Float32Array:
    """A float32 in (low, high], the midpoint if possible: a cut need not be the value of any row."""
    middle = (low.astype(np.float64) + high.astype(np.float64)) / 2
    cut = middle.astype(np.float32)
    return np.where(cut > low, cut, high) + np.float32(0)  # turns -0.0 into 0.0


class Sets(NamedTuple):
    """For each of some splits by sets of categories the bins that go left: bins[starts[k]:starts[k+1]].

    Splits of other kinds have empty sets. Without `starts`, no split is by a set.
    """

    starts: Int32Array
    bins: Int32Array


NO_SETS = Sets(np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32))
KIND_CODES = {ColumnKind.NUMERIC: 0, ColumnKind.ONEHOT: 1, ColumnKind.SETS: 2}


@dataclass(frozen=True)
class BinLayout:
    """Feature f has slots offsets[f] .. offsets[f+1]; the last one holds missing values if missing[f] is 1.

    A candidate split of a feature is its *handle* 2 * slot + direction. `native/split.cpp` defines the meaning of slot;
    direction 1 sends missing values left. Handles therefore sort by column, cut, direction.
    """

    offsets: Int32Array
    missing: UInt8Array
    kind: UInt8Array

    @staticmethod
    def of(value_bins: Sequence[int], missing: Sequence[bool], kinds: Sequence[ColumnKind]) -> BinLayout:
        has_missing = np.asarray(missing, dtype=np.uint8)
        widths = np.asarray(value_bins, dtype=np.int32) + has_missing
        offsets = np.zeros(len(widths) + 1, dtype=np.int32)
        np.cumsum(widths, out=offsets[1:])
        return BinLayout(offsets, has_missing, np.asarray([KIND_CODES[kind] for kind in kinds], dtype=np.uint8))

    @property
    def features(self) -> int:
        return len(self.missing)

    @cached_property
    def slots(self) -> int:
        return int(self.offsets[-1])

    @cached_property
    def all_numeric(self) -> bool:
        return not self.kind.any()

    @cached_property
    def has_sets(self) -> bool:
        return bool((self.kind == KIND_CODES[ColumnKind.SETS]).any())

    @cached_property
    def widths(self) -> Int32Array:
        """The number of slots of each feature."""
        return self.offsets[1:] - self.offsets[:-1]

    @cached_property
    def widest(self) -> int:
        """The largest number of slots of a feature."""
        return int(self.widths.max(initial=0))

    def subset(self, features: Int32Array) -> BinLayout:
        widths = self.widths[features]
        offsets = np.zeros(len(features) + 1, dtype=np.int32)
        np.cumsum(widths, out=offsets[1:])
        return BinLayout(offsets, self.missing[features], self.kind[features])

    def locate(self, handles: Int32Array) -> tuple[Int32Array, Int32Array, Int32Array]:
        """Handles as (feature, bin within the feature, direction of missing values)."""
        slot = handles >> 1
        feature = self.offsets.searchsorted(slot, side="right").astype(np.int32) - np.int32(1)
        return feature, slot - self.offsets[feature], handles & 1
