"""The sharded engine: columns are binned in shards, whose histograms are added; labels stay in their shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from veilboost.boost.bins import BinLayout
from veilboost.boost.booster import LabelRows, sample_rows
from veilboost.boost.columns import (
    Bins,
    ColumnBlock,
    CutProposal,
    LevelBins,
    Splits,
    as_float,
    category_cuts,
    codes_as_float,
    kinds_of,
)
from veilboost.boost.grower import Round
from veilboost.boost.metrics import Metric
from veilboost.boost.objective import Objective
from veilboost.boost.rows import Assignments, RowFiller, RowGroups
from veilboost.config import TrainingConfig
from veilboost.engine import shard_ops
from veilboost.engine.api import Engine
from veilboost.engine.cuts import cuts_in_shards, fit_column, missing_in
from veilboost.engine.pool import Pool, Ref, reduced
from veilboost.engine.rows import ShardedRows
from veilboost.engine.shards import ShardedArray, ShardedFiller, ShardedNumbers, Shards
from veilboost.fixedpoint import choose_scale
from veilboost.types import (
    AnyArray,
    BoolArray,
    Column,
    ColumnKind,
    Float32Array,
    Float64Array,
    Int32Array,
    Int64Array,
)

MOST_ROWS = 1 << 20  # per shard: a worker holds one shard at a time


class ShardedEngine(Engine):
    """At least `shards` shards, and more if they would be large."""

    def __init__(self, pool: Pool, shards: int, name: str, own_threads: bool = False) -> None:
        """`own_threads`: a task may use the party's threads, because tasks do not run in parallel."""
        super().__init__(name)
        self._pool, self._shards, self._own_threads = pool, shards, own_threads

    @property
    def workers(self) -> int:
        return self._pool.workers

    def columns(
        self,
        columns: Sequence[Column],
        rows: int,
        config: TrainingConfig,
        weights: Float64Array | None,
        held_out: BoolArray | None,
        threads: int,
        propose: CutProposal | None = None,
    ) -> ColumnBlock:
        shards = self.cut(rows, *(column.values for column in columns))
        threads = threads if self._own_threads else 1
        kinds, categories = kinds_of(columns, config)
        values = [_values(shards, column) for column in columns]
        missing: list[bool] = reduced(shards.pool, shard_ops.added, shards.each(missing_in, *values)).tolist()
        masks = None if held_out is None else shards.place(held_out)
        cuts = [category_cuts(count) for count in categories]
        numeric = [number for number, kind in enumerate(kinds) if kind is ColumnKind.NUMERIC]
        if propose is None:
            weight = None if weights is None else shards.place(weights)
            proposed = cuts_in_shards([values[number] for number in numeric], config, weight, masks)
            for number, edges in zip(numeric, proposed, strict=True):
                cuts[number] = edges
        else:
            for number in numeric:
                cuts[number] = propose(number, fit_column(values[number], masks))
        known = config, kinds, categories, tuple(cuts), tuple(missing)
        parts = shards.each(shard_ops.binned, *known, shards.sizes, threads, *values)
        layout = BinLayout.of([len(edges) + 1 for edges in cuts], missing, kinds)
        return ShardedBlock(
            rows=shards.rows,
            kinds=kinds,
            values=(np.empty(0, dtype=np.float32),) * len(kinds),
            categories=categories,
            cuts=tuple(cuts),
            layout=layout,
            shared=_bins_of(shards, parts, layout, cuts),
            max_bin=config.max_bin,
            binning=config.binning,
            threads=threads,
            shards=shards,
            parts=parts,
        )

    def labels(self, y: Float64Array, weight: Float64Array | None, held_out: BoolArray | None) -> LabelRows:
        return ShardedLabels(self.cut(len(y), y), y, weight, held_out)

    def close(self) -> None:
        self._pool.close()

    def cut(self, rows: int, *arrays: AnyArray) -> Shards:
        """The shards of `rows` rows: those of arrays that already lie in shards, or new ones."""
        for array in arrays:
            if isinstance(array, ShardedArray):
                return array.shards
        return Shards.of(self._pool, rows, max(self._shards, -(-rows // MOST_ROWS)))


@dataclass(frozen=True)
class ShardedBlock(ColumnBlock):
    """`parts` are the blocks of every shard. The bins of all rows are gathered into one matrix only on request."""

    shards: Shards
    parts: Sequence[Ref]

    def subset(self, features: Int32Array) -> ColumnBlock:
        narrow = cast(ShardedBlock, ColumnBlock.subset(replace(self, shared=None), features))
        parts = self.shards.each(ColumnBlock.subset, self.parts, features)
        return replace(narrow, parts=parts, shared=_bins_of(self.shards, parts, narrow.layout, narrow.cuts))

    def all_rows(self) -> Int32Array:
        return ShardedNumbers.every(self.shards)  # pyright: ignore[reportReturnType] - represents an array

    def placed(self, values: AnyArray) -> AnyArray:
        return self.shards.place(values, axis=1)  # pyright: ignore[reportReturnType] - represents an array

    def filler(self) -> RowFiller:
        return ShardedFiller(self.shards)

    def histogram(self, bins: LevelBins, gradients: Int32Array, rows: RowGroups) -> Int64Array:
        if not isinstance(rows, ShardedRows):
            raise TypeError("rows of another engine")
        if not self.layout.features or not rows.size:
            return np.zeros((rows.nodes, self.layout.slots, 2), dtype=np.int64)
        placed = self.shards.place(gradients, axis=1)
        parts = self.shards.each(shard_ops.histogram, self.parts, rows.parts, rows.pick, placed)
        return reduced(self.shards.pool, shard_ops.added, parts)

    def route(self, bins: LevelBins, rows: RowGroups, splits: Splits) -> Assignments:
        if not rows.size:
            return np.empty(0, dtype=np.uint8)
        if not isinstance(rows, ShardedRows):
            raise TypeError("rows of another engine")
        return rows.assignments_by(shard_ops.route, self.parts, splits)


def _values(shards: Shards, column: Column) -> ShardedArray:
    """A column's values as float32, in shards. A column that lies in shards stays there."""
    if not isinstance(column.values, ShardedArray):
        return shards.place(as_float(column))
    if column.categories is None:
        return column.values
    return ShardedArray(shards, shards.each(codes_as_float, column.values), column.values.shape, np.float32, 0)


def _bins_of(shards: Shards, parts: Sequence[Ref], layout: BinLayout, cuts: Sequence[Float32Array]) -> LevelBins:
    dtype = np.uint8 if layout.widest <= 256 else np.uint16
    matrix: Bins = _Matrix(shards, parts, (shards.rows, layout.features), np.dtype(dtype), 0)  # pyright: ignore[reportAssignmentType]
    return LevelBins([matrix], [cuts], per_node=False)


class _Matrix(ShardedArray):
    """The bins of all rows, gathered from the shards' blocks."""

    def __array__(self, dtype: object = None, copy: bool | None = None) -> Bins:
        return np.concatenate(self.shards.pool.get(self.shards.each(shard_ops.matrix, list(self.parts))))


_MOST_LABELS = 1024  # labels with more distinct values are numbers rather than classes
_NO_GRADIENTS = np.empty((0, 0, 0), dtype=np.int32)


class ShardedLabels(LabelRows):
    """As `LabelRows`. The driver sees bounds, counts, and the validation rows."""

    def __init__(
        self, shards: Shards, y: Float64Array, weight: Float64Array | None, validation: BoolArray | None
    ) -> None:
        self._shards = shards
        self._labels = shards.place(y)
        self._weights = None if weight is None else shards.place(weight)
        self._mask = None if validation is None else shards.place(validation)
        self._watched = None if self._mask is None else ShardedNumbers.where(self._mask)

    @property
    def held_out(self) -> int:
        return 0 if self._watched is None else len(self._watched)

    def base_margin(self, objective: Objective, base_score: float | None) -> Float64Array:
        weighed = self._weights is not None or objective.scale_pos_weight != 1.0
        tallies = self._shards.pool.get(self._shards.each(shard_ops.tally, self._labels, self._mask, _MOST_LABELS))
        if weighed or None in tallies:
            # The mean is rounded once, from the exact sum of all rows, so all rows are gathered, once per job.
            fit = slice(None) if self._mask is None else ~np.asarray(self._mask)
            weight = None if self._weights is None else np.asarray(self._weights)[fit]
            return objective.base_margin(np.asarray(self._labels)[fit], weight, base_score)
        # Rows with the same integer label are one row with their count as weight: sums are exact, the mean is the same.
        labels, counts = (np.concatenate(each) for each in zip(*tallies, strict=True))
        return objective.base_margin(labels, counts.astype(np.float64), base_score)

    def first_margin(self, base: Float64Array) -> Float64Array:
        parts = self._shards.each(shard_ops.first_margin, base, self._shards.sizes)
        return self._shards.array(parts, (len(base), self._shards.rows), np.float64, axis=1)

    def kept_margin(self, margin: Float64Array) -> Float64Array:
        return cast(AnyArray, self._shards.place(margin, axis=1))

    def begin_round(
        self,
        number: int,
        margin: Float64Array,
        objective: Objective,
        config: TrainingConfig,
        columns: Sequence[Int32Array | None],
        threads: int = 1,
    ) -> Round:
        shards = self._shards
        placed = shards.place(margin, axis=1)
        derivatives, bounds = shards.each_for(2, shard_ops.gradients, objective, placed, self._labels, self._mask)
        largest = np.array(shards.pool.get(bounds)).max(axis=0)
        scale = choose_scale(float(largest[0]), float(largest[1]), self._weight_bound(), config.gradient_bits)
        parts = shards.each(shard_ops.on_grid, derivatives, scale, self._weights)
        fit, routed = self._sampled(number, config)
        return Round(
            number=number,
            gradients=shards.array(parts, (*margin.shape, 2), np.int32, axis=1),
            scale=scale,
            fit=cast(AnyArray, fit),
            routed=cast(AnyArray, routed),
            columns=columns,
        )

    def measure(self, metric: Metric, objective: Objective, margin: Float64Array) -> float | None:
        if self._watched is None or not len(self._watched):
            return None
        weight = None if self._weights is None else self._of_watched(self._weights)
        watched = self._of_watched(self._shards.place(margin, axis=1))
        return metric.function(self._of_watched(self._labels), objective.predict(watched), weight)

    def _of_watched(self, values: ShardedArray) -> Float64Array:
        parts = self._shards.pool.get(self._shards.each(shard_ops.taken, values, self._watched))
        return np.concatenate(parts, axis=-1)

    def _weight_bound(self) -> float:
        if self._weights is None:
            return 1.0
        return max(self._shards.pool.get(self._shards.each(shard_ops.largest_weight, self._weights, self._mask)))

    def _sampled(self, number: int, config: TrainingConfig) -> tuple[ShardedNumbers, ShardedNumbers]:
        """The rows to sum and the rows that are only routed; the sample is the same as on one machine."""
        if self._mask is None and config.subsample >= 1.0:
            return ShardedNumbers.every(self._shards), ShardedNumbers.none(self._shards)
        rows = self._shards.rows
        drawn = np.ones(rows, dtype=np.bool_) if self._mask is None else ~np.asarray(self._mask)
        if config.subsample < 1.0:
            pool = np.arange(np.count_nonzero(drawn), dtype=np.int32)
            drawn[drawn] = sample_rows(pool, _NO_GRADIENTS, number, config).drawn
        placed = self._shards.place(drawn)
        return ShardedNumbers.where(placed), ShardedNumbers.where(placed, wanted=False)
