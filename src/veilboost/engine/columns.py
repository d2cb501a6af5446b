"""A party's own columns, binned in shards: each is a `ColumnBlock` of its rows, and histograms add up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from veilboost.boost.bins import BinLayout
from veilboost.boost.columns import (
    Bins,
    ColumnBlock,
    CutProposal,
    LevelBins,
    Splits,
    as_float,
    category_cuts,
    kinds_of,
)
from veilboost.boost.rows import RowFiller, RowGroups, Sides
from veilboost.config import TrainingConfig
from veilboost.engine import work
from veilboost.engine.cuts import cuts_in_shards, fit_column, missing_in
from veilboost.engine.pool import Ref, reduced
from veilboost.engine.rows import ShardedRows
from veilboost.engine.shards import ShardedArray, ShardedFiller, ShardedNumbers, Shards
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


@dataclass(frozen=True)
class ShardedBlock(ColumnBlock):
    """`parts` are the blocks of every shard. The bins of all rows are one matrix only where they are asked for."""

    shards: Shards
    parts: Sequence[Ref]

    @staticmethod
    def spread(
        shards: Shards,
        columns: Sequence[Column],
        config: TrainingConfig,
        weights: Float64Array | None,
        held_out: BoolArray | None,
        threads: int,
        propose: CutProposal | None,
    ) -> ShardedBlock:
        """As `ColumnBlock.build`: the cuts are those of whole columns."""
        pool = shards.pool
        kinds, categories = kinds_of(columns, config)
        values = [_values(shards, column) for column in columns]
        missing: list[bool] = reduced(pool, work.added, shards.each(missing_in, *values)).tolist()
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
        parts = [
            pool.call(
                work.binned, config, kinds, categories, tuple(cuts), tuple(missing), end - begin, threads,
                *(each.parts[shard] for each in values),
            )
            for shard, (begin, end) in enumerate(shards.ranges)
        ]  # fmt: skip
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

    def subset(self, features: Int32Array) -> ColumnBlock:
        parts = self.shards.each(work.subset, self.parts, features)
        chosen: list[int] = features.tolist()
        cuts = tuple(self.cuts[f] for f in chosen)
        layout = self.layout.subset(features)
        return replace(
            self,
            kinds=tuple(self.kinds[f] for f in chosen),
            values=self.values[: len(chosen)],
            categories=tuple(self.categories[f] for f in chosen),
            cuts=cuts,
            layout=layout,
            shared=_bins_of(self.shards, parts, layout, cuts),
            parts=parts,
        )

    def all_rows(self) -> Int32Array:
        return ShardedNumbers.every(self.shards)  # pyright: ignore[reportReturnType] - stands for an array

    def placed(self, values: AnyArray) -> AnyArray:
        return self.shards.place(values, axis=1)  # pyright: ignore[reportReturnType] - stands for an array

    def filler(self) -> RowFiller:
        return ShardedFiller(self.shards)

    def histogram(self, bins: LevelBins, gradients: Int32Array, rows: RowGroups) -> Int64Array:
        if not isinstance(rows, ShardedRows):
            raise TypeError("rows of another engine")
        if not self.layout.features or not rows.size:
            return np.zeros((rows.nodes, self.layout.slots, 2), dtype=np.int64)
        placed = self.shards.place(gradients, axis=1)
        parts = self.shards.each(work.histogram, self.parts, rows.parts, rows.pick, placed)
        return reduced(self.shards.pool, work.added, parts)

    def route(self, bins: LevelBins, rows: RowGroups, splits: Splits) -> Sides:
        if not rows.size:
            return np.empty(0, dtype=np.uint8)
        if not isinstance(rows, ShardedRows):
            raise TypeError("rows of another engine")
        return rows.sides_by(work.route, self.parts, splits)


def _values(shards: Shards, column: Column) -> ShardedArray:
    """A column's values as float32, in shards; where it lies in shards it stays there."""
    if not isinstance(column.values, ShardedArray):
        return shards.place(as_float(column))
    if column.categories is None:
        return column.values
    return ShardedArray(shards, shards.each(work.as_float, column.values), column.values.shape, np.float32, 0)


def _bins_of(shards: Shards, parts: Sequence[Ref], layout: BinLayout, cuts: Sequence[Float32Array]) -> LevelBins:
    dtype = np.uint8 if layout.widest <= 256 else np.uint16
    matrix: Bins = _Matrix(shards, parts, (shards.rows, layout.features), np.dtype(dtype), 0)  # pyright: ignore[reportAssignmentType]
    return LevelBins([matrix], [cuts], per_node=False)


class _Matrix(ShardedArray):
    """The bins of all rows, taken from the shards' blocks."""

    def __array__(self, dtype: object = None, copy: bool | None = None) -> Bins:
        return np.concatenate(self.shards.pool.get(self.shards.each(work.matrix, list(self.parts))))
