"""The label party's rows: labels and weights, and what a round makes of them and of margins."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veilboost.boost.grower import Round
from veilboost.boost.metrics import Metric
from veilboost.boost.objective import Objective
from veilboost.boost.sampling import amplification, sample_rows
from veilboost.config import TrainingConfig
from veilboost.fixedpoint import choose_scale, to_fixed
from veilboost.types import BoolArray, Float64Array, Int32Array


class LabelRows:
    """Labels of all rows, and their weights where they have some.

    Rows of the mask `validation` are watched and shape nothing.
    """

    def __init__(self, y: Float64Array, weight: Float64Array | None, validation: BoolArray | None) -> None:
        rows = np.arange(len(y), dtype=np.int32)
        self._y, self._weight, self._validation = y, weight, validation
        self._pool = rows if validation is None else rows[~validation]
        self._held_out = rows[:0] if validation is None else rows[validation]
        self._own_weight = None if weight is None else weight[self._pool]

    @property
    def held_out(self) -> int:
        """How many rows are kept to validate on."""
        return len(self._held_out)

    def base_margin(self, objective: Objective, base_score: float | None) -> Float64Array:
        """The margin before the first tree, (K,)."""
        return objective.base_margin(self._y[self._pool], self._own_weight, base_score)

    def first_margin(self, base: Float64Array) -> Float64Array:
        """The margins (K, rows) that training starts from."""
        return np.repeat(base[:, None], len(self._y), axis=1)

    def kept_margin(self, margin: Float64Array) -> Float64Array:
        """Margins that an earlier part of the same job kept, as training takes them."""
        return margin

    def begin_round(
        self,
        number: int,
        margin: Float64Array,
        objective: Objective,
        config: TrainingConfig,
        columns: Sequence[Int32Array | None],
    ) -> Round:
        """Gradients on the grid, and the rows that the round sums."""
        weight, validation, pool = self._weight, self._validation, self._pool
        g, h = objective.gradients(margin, self._y, None)
        if validation is not None:  # rows that are only watched shape nothing, not even the grid, and tell nobody
            g, h = np.where(validation, 0.0, g), np.where(validation, 0.0, h)
        own, times = self._own_weight, amplification(config)
        weight_bound = times * (1.0 if own is None else float(own.max(initial=0.0)))
        scale = choose_scale(*objective.bounds(1.0, g, h), weight_bound, config.gradient_bits)
        gradients = to_fixed(g, h, scale, weight)
        sample = sample_rows(pool, gradients, number, config)
        rest = sample.amplified
        if len(rest):  # a factor counts as a weight does: on the grid, with one rounding for both
            factor = np.full(len(rest), times) if weight is None else weight[rest] * times
            gradients[:, rest] = to_fixed(g[:, rest], h[:, rest], scale, factor)
        every = bool(sample.drawn.all())
        return Round(
            number=number,
            gradients=gradients,
            scale=scale,
            fit=pool if every else pool[sample.drawn],
            follow=self._held_out if every else np.sort(np.concatenate((pool[~sample.drawn], self._held_out))),
            columns=columns,
        )

    def measure(self, metric: Metric, objective: Objective, margin: Float64Array) -> float | None:
        """The metric on the rows held out; None where there are none."""
        rows = self._held_out
        if not len(rows):
            return None
        own = None if self._weight is None else self._weight[rows]
        return metric.function(self._y[rows], objective.predict(margin[:, rows]), own)
