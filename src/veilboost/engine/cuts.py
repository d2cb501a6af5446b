"""The cuts of columns that lie in shards: those of the whole columns, found by counting.

Every shard sorts its own rows once and keeps them where they are. The rule for quantiles asks what stands at some
ranks of the whole column; the driver finds it by asking the shards how many of their values are not above certain
others, closer and closer, and adding up. So no process holds more of a column than a shard, the driver holds counts,
and the cuts are the same bytes as on one machine, because both ask one rule and all of it is whole numbers.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np

from veilboost.boost.bins import Ranked, equal_width, propose_cuts, quantiles
from veilboost.config import TrainingConfig
from veilboost.engine import work
from veilboost.engine.pool import reduced
from veilboost.engine.shards import ShardedArray, Shards
from veilboost.fixedpoint import from_ordered, to_ordered
from veilboost.types import AnyArray, BoolArray, Float32Array, Float64Array, Int64Array, UInt32Array

FEW_ROWS = 1 << 18  # a column of so many is seen whole by one worker: quicker than counting
COLUMNS_AT_ONCE = 4  # whose sorted values are in the store at one time, beside the columns themselves
POINTS = 1 << 15  # how many values the shards count against at a time, for each column

CountSearch = Generator[UInt32Array, Int64Array, Float32Array]  # asks for counts up to keys, ends with cuts


def cuts_in_shards(
    columns: Sequence[ShardedArray],
    config: TrainingConfig,
    weights: ShardedArray | None,
    held_out: ShardedArray | None,
) -> list[Float32Array]:
    """As `propose_cuts` of every column, from the rows that are not held out."""
    if not columns:
        return []
    shards = columns[0].shards
    # Weights are no whole numbers: sums of them would depend on the shards.
    if shards.rows <= FEW_ROWS or (weights is not None and config.binning == "quantile"):
        return _by_one_worker(shards, columns, config, weights, held_out)
    if config.binning == "width":
        ends = reduced(shards.pool, least, shards.each(ends_of, held_out, *columns))
        none = np.empty(0, dtype=np.float32)
        return [equal_width(low, -below, config.max_bin) if low <= -below else none for low, below in ends.tolist()]
    return [
        cuts
        for first in range(0, len(columns), COLUMNS_AT_ONCE)
        for cuts in _by_counting(shards, columns[first : first + COLUMNS_AT_ONCE], held_out, config.max_bin)
    ]


# --- quantiles by counting ------------------------------------------------------------------------------------------


def _by_counting(
    shards: Shards, columns: Sequence[ShardedArray], held_out: ShardedArray | None, max_bin: int
) -> list[Float32Array]:
    """A few columns side by side: every round of questions is one piece of work per shard."""
    runs = shards.each(sorted_keys, held_out, *columns)
    searches = [_search(max_bin) for _ in columns]
    asked = [next(search) for search in searches]
    cuts: list[Float32Array] = [np.empty(0, dtype=np.float32)] * len(columns)
    while any(len(keys) for keys in asked):
        counts = reduced(shards.pool, work.added, shards.each(counted, shards.pool.put(tuple(asked)), runs))
        answers = np.split(counts, np.cumsum([len(keys) for keys in asked])[:-1])
        for number, (search, answer) in enumerate(zip(searches, answers, strict=True)):
            if not len(answer):
                continue
            try:
                asked[number] = search.send(answer)
            except StopIteration as end:
                cuts[number], asked[number] = end.value, asked[number][:0]
    return cuts


def _search(max_bin: int) -> CountSearch:
    """The cuts of one column by the rule for quantiles, which asks for ranks."""
    known = _Known()
    rows = yield from known.all_rows()
    if not rows:
        return np.empty(0, dtype=np.float32)
    rule = quantiles(rows, max_bin)
    ranks = next(rule)
    while True:
        found = yield from known.at(ranks)
        try:
            ranks = rule.send(found)
        except StopIteration as end:
            return end.value


class _Known:
    """How many values of a column are not above certain keys, as far as shards were asked, in order of keys."""

    def __init__(self) -> None:
        self._keys = np.array([-1], dtype=np.int64)
        self._counts = np.zeros(1, dtype=np.int64)

    def all_rows(self) -> Generator[UInt32Array, Int64Array, int]:
        yield from self._ask(np.linspace(0, (1 << 32) - 1, POINTS, dtype=np.int64))
        return int(self._counts[-1])

    def at(self, ranks: Int64Array) -> Generator[UInt32Array, Int64Array, Ranked]:
        """What stands at these ranks: every gap between two keys that has one is divided until it is one key wide."""
        while True:
            place = self._counts.searchsorted(ranks)  # of the first key that so many values are not above
            gaps = place[self._keys[place] - self._keys[place - 1] > 1]
            if not len(gaps):
                return Ranked(
                    from_ordered(self._keys[place].astype(np.uint32)), self._counts[place - 1], self._counts[place]
                )
            gaps = np.unique(gaps)
            low, ways = self._keys[gaps - 1], max(POINTS // len(gaps), 2)
            inside = low[:, None] + (self._keys[gaps] - low)[:, None] * np.arange(1, ways) // ways
            yield from self._ask(np.setdiff1d(inside, low))

    def _ask(self, keys: Int64Array) -> Generator[UInt32Array, Int64Array, None]:
        counts = yield keys.astype(np.uint32)
        place = self._keys.searchsorted(keys)
        self._keys, self._counts = np.insert(self._keys, place, keys), np.insert(self._counts, place, counts)


# --- without counting -----------------------------------------------------------------------------------------------


def _by_one_worker(
    shards: Shards,
    columns: Sequence[ShardedArray],
    config: TrainingConfig,
    weights: ShardedArray | None,
    held_out: ShardedArray | None,
) -> list[Float32Array]:
    beside = [*(weights.parts if weights is not None else ()), *(held_out.parts if held_out is not None else ())]
    told = config, len(shards), weights is not None, held_out is not None
    return shards.pool.get([shards.pool.call(cuts_of_whole, *told, *each.parts, *beside) for each in columns])


def fit_column(column: ShardedArray, held_out: ShardedArray | None) -> AnyArray:
    """The rows of a column that are fit on, in their shards."""
    if held_out is None:
        return column.copy()
    parts = column.shards.each(fit_values, held_out, column)
    rows = sum(column.shards.pool.get(column.shards.each(len, parts)))
    return column.shards.array(parts, (rows,), column.dtype)


# --- pieces of work -------------------------------------------------------------------------------------------------


def missing_in(*columns: Float32Array) -> BoolArray:
    """Whether a value is missing, for every column."""
    return np.array([np.isnan(values).any() for values in columns])


def fit_values(held_out: BoolArray | None, values: Float32Array) -> Float32Array:
    return values if held_out is None else values[~held_out]


def sorted_keys(held_out: BoolArray | None, *columns: Float32Array) -> list[UInt32Array]:
    """A shard's values that are there and fit on, sorted, column by column."""
    found: list[UInt32Array] = []
    for values in columns:
        own = fit_values(held_out, values)
        keys = to_ordered(own[~np.isnan(own)])
        keys.sort()
        found.append(keys)
    return found


def counted(asked: Sequence[UInt32Array], runs: Sequence[UInt32Array]) -> Int64Array:
    """How many of a run are not above each of the keys asked for it; run after run."""
    return np.concatenate([run.searchsorted(keys, side="right") for keys, run in zip(asked, runs, strict=True)])


def ends_of(held_out: BoolArray | None, *columns: Float32Array) -> Float64Array:
    """The least value and the least of all negated ones, for every column; infinite where there is none."""
    ends = np.full((len(columns), 2), np.inf)
    for own, values in zip(ends, columns, strict=True):
        fit = fit_values(held_out, values)
        present = fit[~np.isnan(fit)]
        own[:] = present.min(initial=np.inf), -present.max(initial=-np.inf)
    return ends


def least(*parts: Float64Array) -> Float64Array:
    return np.minimum.reduce(parts)


def cuts_of_whole(config: TrainingConfig, shards: int, weighted: bool, masked: bool, *parts: AnyArray) -> Float32Array:
    """`parts` are the column in all shards, then where there are such the weights, then the masks of rows held out."""
    values = np.concatenate(parts[:shards])
    weights = np.concatenate(parts[shards : 2 * shards]) if weighted else None
    if masked:
        fit = ~np.concatenate(parts[-shards:])
        values, weights = values[fit], None if weights is None else weights[fit]
    return propose_cuts(values, weights, config.max_bin, config.binning)
