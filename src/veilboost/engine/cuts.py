"""The cuts of columns that lie in shards: the same cuts as those of whole columns, found by counting.

Every shard sorts its own rows once and keeps them. The quantile rule needs the values at certain ranks of the whole
column. The driver finds them by bisection: it asks the shards how many of their values do not exceed certain keys and
adds the counts. No process holds more of a column than a shard, and the driver holds only counts. The cuts are
byte-identical to those of one machine, because both use the same rule on integers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veilboost.boost.bins import cuts_by_counting, equal_width, propose_cuts
from veilboost.config import TrainingConfig
from veilboost.engine import shard_ops
from veilboost.engine.pool import reduced
from veilboost.engine.shards import ShardedArray, Shards
from veilboost.fixedpoint import to_ordered
from veilboost.types import AnyArray, BoolArray, Float32Array, Float64Array, Int64Array, UInt32Array

FEW_ROWS = 1 << 18  # one worker reads a whole column of at most this many rows: faster than counting
COLUMNS_AT_ONCE = 4  # columns whose sorted values are in the store at a time, in addition to the columns
POINTS = 1 << 15  # keys per column that the shards count against at a time


def cuts_in_shards(
    columns: Sequence[ShardedArray],
    config: TrainingConfig,
    weights: ShardedArray | None,
    held_out: ShardedArray | None,
) -> list[Float32Array]:
    """`propose_cuts` of every column, from the rows that are not held out."""
    if not columns:
        return []
    shards = columns[0].shards
    # Weights are not integers: sums of them would depend on the shards.
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
    """Several columns at once: every round of counting is one task per shard."""
    runs = shards.each(sorted_keys, held_out, *columns)

    def count(asked: Sequence[UInt32Array]) -> Sequence[Int64Array]:
        counts = reduced(shards.pool, shard_ops.added, shards.each(counted, shards.pool.put(tuple(asked)), runs))
        return np.split(counts, np.cumsum([len(keys) for keys in asked])[:-1])

    return cuts_by_counting(len(columns), max_bin, "quantile", POINTS, count)


# --- without counting -----------------------------------------------------------------------------------------------


def _by_one_worker(
    shards: Shards,
    columns: Sequence[ShardedArray],
    config: TrainingConfig,
    weights: ShardedArray | None,
    held_out: ShardedArray | None,
) -> list[Float32Array]:
    beside = [*(weights.parts if weights is not None else ()), *(held_out.parts if held_out is not None else ())]
    settings = config, len(shards), weights is not None, held_out is not None
    return shards.pool.get([shards.pool.call(cuts_of_whole, *settings, *each.parts, *beside) for each in columns])


def fit_column(column: ShardedArray, held_out: ShardedArray | None) -> AnyArray:
    """The training rows of a column, in their shards."""
    if held_out is None:
        return column.copy()
    parts = column.shards.each(fit_values, held_out, column)
    rows = sum(column.shards.pool.get(column.shards.each(len, parts)))
    return column.shards.array(parts, (rows,), column.dtype)


# --- tasks ----------------------------------------------------------------------------------------------------------


def missing_in(*columns: Float32Array) -> BoolArray:
    """Whether any value is missing, for every column."""
    return np.array([np.isnan(values).any() for values in columns])


def fit_values(held_out: BoolArray | None, values: Float32Array) -> Float32Array:
    return values if held_out is None else values[~held_out]


def sorted_keys(held_out: BoolArray | None, *columns: Float32Array) -> list[UInt32Array]:
    """A shard's present values in training rows, sorted, column by column."""
    found: list[UInt32Array] = []
    for values in columns:
        own = fit_values(held_out, values)
        keys = to_ordered(own[~np.isnan(own)])
        keys.sort()
        found.append(keys)
    return found


def counted(asked: Sequence[UInt32Array], runs: Sequence[UInt32Array]) -> Int64Array:
    """How many values of each run do not exceed each of its keys, run after run."""
    return np.concatenate([run.searchsorted(keys, side="right") for keys, run in zip(asked, runs, strict=True)])


def ends_of(held_out: BoolArray | None, *columns: Float32Array) -> Float64Array:
    """The minimum and the minimum of the negated values, for every column; infinite if there is no value."""
    ends = np.full((len(columns), 2), np.inf)
    for own, values in zip(ends, columns, strict=True):
        fit = fit_values(held_out, values)
        present = fit[~np.isnan(fit)]
        own[:] = present.min(initial=np.inf), -present.max(initial=-np.inf)
    return ends


def least(*parts: Float64Array) -> Float64Array:
    return np.minimum.reduce(parts)


def cuts_of_whole(config: TrainingConfig, shards: int, weighted: bool, masked: bool, *parts: AnyArray) -> Float32Array:
    """`parts` are the column in all shards, then, if there are any, the weights, then the masks of held-out rows."""
    values = np.concatenate(parts[:shards])
    weights = np.concatenate(parts[shards : 2 * shards]) if weighted else None
    if masked:
        fit = ~np.concatenate(parts[-shards:])
        values, weights = values[fit], None if weights is None else weights[fit]
    return propose_cuts(values, weights, config.max_bin, config.binning)
