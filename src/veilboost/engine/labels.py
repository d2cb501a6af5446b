"""The label party's rows in shards: gradients and margins are made where the labels are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from veilboost.boost.booster import LabelRows
from veilboost.boost.grower import Round
from veilboost.boost.metrics import Metric
from veilboost.boost.objective import BinaryLogistic, Objective
from veilboost.boost.sampling import sample_rows
from veilboost.config import TrainingConfig
from veilboost.engine import work
from veilboost.engine.pool import Ref
from veilboost.engine.shards import ShardedArray, ShardedNumbers, Shards
from veilboost.fixedpoint import choose_scale
from veilboost.types import AnyArray, BoolArray, Float64Array, Int32Array

_MOST_LABELS = 1024  # beyond it labels are numbers rather than classes
_NO_GRADIENTS = np.empty((0, 0, 0), dtype=np.int32)


class ShardedLabels(LabelRows):
    """As `LabelRows`; the driver sees bounds, counts, and the rows that it validates on."""

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
        weighed = self._weights is not None or (
            isinstance(objective, BinaryLogistic) and objective.scale_pos_weight != 1.0
        )
        tallies = self._shards.pool.get(self._shards.each(work.tally, self._labels, self._mask, _MOST_LABELS))
        if weighed or None in tallies:
            # The mean is rounded once, from the exact sum of all rows: then they are looked at together, once a job.
            fit = slice(None) if self._mask is None else ~np.asarray(self._mask)
            weight = None if self._weights is None else np.asarray(self._weights)[fit]
            return objective.base_margin(np.asarray(self._labels)[fit], weight, base_score)
        # So many rows of one whole number are a row of that weight: products and sums are exact, the mean is the same.
        labels, counts = (np.concatenate(each) for each in zip(*tallies, strict=True))
        return objective.base_margin(labels, counts.astype(np.float64), base_score)

    def first_margin(self, base: Float64Array) -> Float64Array:
        sizes = [end - begin for begin, end in self._shards.ranges]
        parts = self._shards.each(work.first_margin, base, sizes)
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
    ) -> Round:
        shards, pool = self._shards, self._shards.pool
        derivatives: list[Ref] = []
        bounds: list[Ref] = []
        for shard, part in enumerate(self._shards.place(margin, axis=1).parts):
            mask = None if self._mask is None else self._mask.parts[shard]
            made = pool.call_for(2, work.gradients, objective, part, self._labels.parts[shard], mask)
            derivatives.append(made[0])
            bounds.append(made[1])
        largest = np.array(pool.get(bounds)).max(axis=0)
        scale = choose_scale(float(largest[0]), float(largest[1]), self._weight_bound(), config.gradient_bits)
        parts = shards.each(work.on_grid, derivatives, scale, self._weights)
        fit, follow = self._sampled(number, config)
        return Round(
            number=number,
            gradients=shards.array(parts, (*margin.shape, 2), np.int32, axis=1),
            scale=scale,
            fit=cast(AnyArray, fit),
            follow=cast(AnyArray, follow),
            columns=columns,
        )

    def measure(self, metric: Metric, objective: Objective, margin: Float64Array) -> float | None:
        if self._watched is None or not len(self._watched):
            return None
        weight = None if self._weights is None else self._of_watched(self._weights)
        watched = self._of_watched(self._shards.place(margin, axis=1))
        return metric.function(self._of_watched(self._labels), objective.predict(watched), weight)

    def _of_watched(self, values: ShardedArray) -> Float64Array:
        parts = self._shards.pool.get(self._shards.each(work.taken, values, self._watched))
        return np.concatenate(parts, axis=-1)

    def _weight_bound(self) -> float:
        if self._weights is None:
            return 1.0
        return max(self._shards.pool.get(self._shards.each(work.largest_weight, self._weights, self._mask)))

    def _sampled(self, number: int, config: TrainingConfig) -> tuple[ShardedNumbers, ShardedNumbers]:
        """The rows to sum and those that follow; the draw is that of one machine."""
        if self._mask is None and config.subsample >= 1.0:
            return ShardedNumbers.every(self._shards), ShardedNumbers.none(self._shards)
        rows = self._shards.rows
        drawn = np.ones(rows, dtype=np.bool_) if self._mask is None else ~np.asarray(self._mask)
        if config.subsample < 1.0:
            pool = np.arange(np.count_nonzero(drawn), dtype=np.int32)
            drawn[drawn] = sample_rows(pool, _NO_GRADIENTS, number, config).drawn
        placed = self._shards.place(drawn)
        return ShardedNumbers.where(placed), ShardedNumbers.where(placed, wanted=False)
