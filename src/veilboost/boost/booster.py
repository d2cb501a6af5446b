"""Round after round: gradients, trees, margins, metric, and when to stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from veilboost.boost.grower import Round, SplitFinder, grow
from veilboost.boost.metrics import Metric
from veilboost.boost.objective import Objective
from veilboost.boost.sampling import sample_columns, sample_rows
from veilboost.boost.tree import Tree
from veilboost.config import TrainingConfig
from veilboost.fixedpoint import choose_scale, to_fixed
from veilboost.types import BoolArray, Float64Array


@dataclass(frozen=True)
class RoundResult:
    """What is known after a round. `validation` is None where no rows were kept for it."""

    number: int
    seconds: float
    validation: float | None


@dataclass(frozen=True)
class Ensemble:
    """The skeletons of all trees (K per round, in turn), the margin before them, and how training went."""

    trees: Sequence[Tree]
    base_margin: Float64Array
    metric: str
    history: Sequence[RoundResult]


Watcher = Callable[[RoundResult], None]


def train(
    finder: SplitFinder,
    features: Sequence[int],
    y: Float64Array,
    weight: Float64Array | None,
    validation: BoolArray | None,
    objective: Objective,
    metric: Metric,
    config: TrainingConfig,
    watcher: Watcher | None = None,
) -> Ensemble:
    """Boost `config.n_estimators` rounds, or fewer where validation rows say so.

    `features` counts the columns of each owner; rows of the mask `validation` are routed but never summed.
    """
    rows = np.arange(len(y), dtype=np.int32)
    pool = rows if validation is None else rows[~validation]
    held_out = rows[:0] if validation is None else rows[validation]
    own_weight = None if weight is None else weight[pool]
    base = objective.base_margin(y[pool], own_weight, config.base_score)
    margin = np.repeat(base[:, None], len(y), axis=1)
    weight_bound = 1.0 if own_weight is None else float(own_weight.max(initial=0.0))
    trees: list[Tree] = []
    history: list[RoundResult] = []
    best_round, best_value = 0, -np.inf
    for number in range(config.n_estimators):
        began = time.perf_counter()
        g, h = objective.gradients(margin, y, None)
        if validation is not None:  # rows that are only watched shape nothing, not even the grid, and tell nobody
            g, h = np.where(validation, 0.0, g), np.where(validation, 0.0, h)
        scale = choose_scale(*objective.bounds(1.0, g, h), weight_bound, config.gradient_bits)
        drawn = sample_rows(pool, number, config)
        every = bool(drawn.all())
        start = Round(
            number=number,
            gradients=to_fixed(g, h, scale, weight),
            scale=scale,
            fit=pool if every else pool[drawn],
            follow=held_out if every else np.sort(np.concatenate((pool[~drawn], held_out))),
            columns=sample_columns(features, number, config),
        )
        trees.extend(grow(finder, start, config, margin))
        seconds = time.perf_counter() - began
        value = _measure(metric, objective, margin, y, weight, held_out) if len(held_out) else None
        result = RoundResult(number, seconds, value)
        history.append(result)
        if watcher is not None:
            watcher(result)
        if config.early_stopping_rounds is not None and value is not None:
            quality = value if metric.higher_is_better else -value
            if quality > best_value:
                best_round, best_value = number, quality
            elif number - best_round >= config.early_stopping_rounds:
                break
    if config.early_stopping_rounds is not None and len(held_out):
        trees = trees[: (best_round + 1) * objective.trees_per_round]
    return Ensemble(trees, base, metric.name, history)


def _measure(
    metric: Metric,
    objective: Objective,
    margin: Float64Array,
    y: Float64Array,
    weight: Float64Array | None,
    rows: np.ndarray[tuple[int], np.dtype[np.int32]],
) -> float:
    own = None if weight is None else weight[rows]
    return metric.function(y[rows], objective.predict(margin[:, rows]), own)
