"""The engine over shards: in this process, or on Ray."""

from __future__ import annotations

from collections.abc import Sequence

from veilboost.boost.booster import LabelRows
from veilboost.boost.columns import ColumnBlock, CutProposal
from veilboost.config import TrainingConfig
from veilboost.engine.api import Engine
from veilboost.engine.columns import ShardedBlock
from veilboost.engine.labels import ShardedLabels
from veilboost.engine.pool import Pool
from veilboost.engine.shards import ShardedArray, Shards
from veilboost.types import AnyArray, BoolArray, Column, Float64Array

MOST_ROWS = 1 << 20  # of a shard: what a worker holds at a time


class ShardedEngine(Engine):
    """At least `shards` shards, and more where they would be large."""

    def __init__(self, pool: Pool, shards: int, name: str, own_threads: bool = False) -> None:
        """`own_threads`: a piece of work may use the party's threads, as no other runs beside it."""
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
        return ShardedBlock.spread(
            self.cut(rows, *(column.values for column in columns)),
            columns,
            config,
            weights,
            held_out,
            threads if self._own_threads else 1,
            propose,
        )

    def labels(self, y: Float64Array, weight: Float64Array | None, held_out: BoolArray | None) -> LabelRows:
        return ShardedLabels(self.cut(len(y), y), y, weight, held_out)

    def close(self) -> None:
        self._pool.close()

    def cut(self, rows: int, *arrays: AnyArray) -> Shards:
        """The shards of so many rows: those of arrays that lie in shards already, or new ones."""
        for array in arrays:
            if isinstance(array, ShardedArray):
                return array.shards
        return Shards.of(self._pool, rows, max(self._shards, -(-rows // MOST_ROWS)))
