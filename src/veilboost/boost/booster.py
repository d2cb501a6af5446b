"""Round after round: trees, margins, metric, and when to stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from veilboost.boost.grower import Round, SplitFinder, grow
from veilboost.boost.labels import LabelRows
from veilboost.boost.metrics import Metric
from veilboost.boost.objective import Objective
from veilboost.boost.sampling import sample_columns
from veilboost.boost.tree import Tree
from veilboost.config import TrainingConfig
from veilboost.errors import VeilBoostError
from veilboost.types import Float64Array


@dataclass(frozen=True)
class RoundResult:
    """What is known after a round. `validation` is None where no rows were kept for it."""

    number: int
    seconds: float
    validation: float | None


@dataclass
class Progress:
    """How far training has come; what a checkpoint keeps."""

    trees: list[Tree]
    margin: Float64Array
    history: list[RoundResult]


@dataclass(frozen=True)
class Ensemble:
    """The skeletons of all trees (K per round, in turn), the margin before them, and how training went."""

    trees: Sequence[Tree]
    base_margin: Float64Array
    metric: str
    history: Sequence[RoundResult]


Watcher = Callable[[RoundResult], None]


@dataclass(frozen=True)
class Hooks:
    """What may be done between rounds.

    `watch` sees each round's result, `keep` how far training has come; `recover` is told of a round that failed and
    says whether it can be tried again.
    """

    watch: Watcher | None = None
    keep: Callable[[Progress], None] | None = None
    recover: Callable[[VeilBoostError, Progress], bool] | None = None


def train(
    finder: SplitFinder,
    features: Sequence[int],
    people: LabelRows,
    objective: Objective,
    metric: Metric,
    config: TrainingConfig,
    hooks: Hooks = Hooks(),  # noqa: B008 - frozen
    progress: Progress | None = None,
) -> Ensemble:
    """Boost `config.n_estimators` rounds, or fewer where validation rows say so; go on from `progress` if given.

    `features` counts the columns of each owner; rows that `people` holds out are routed but never summed.
    """
    base = people.base_margin(objective, config.base_score)
    if progress is None:
        progress = Progress([], people.first_margin(base), [])
    else:
        progress.margin = people.kept_margin(progress.margin)
    for number in range(len(progress.history), config.n_estimators):
        if _past_its_best(progress, metric, config):
            break
        began = time.perf_counter()
        columns = sample_columns(features, number, config)
        start = people.begin_round(number, progress.margin, objective, config, columns)
        result = _grow_with_retries(
            finder,
            start,
            config,
            progress,
            hooks,
            lambda margin, began=began, number=number: RoundResult(
                number, time.perf_counter() - began, people.measure(metric, objective, margin)
            ),
        )
        if hooks.watch is not None:
            hooks.watch(result)
    kept = progress.trees
    if config.early_stopping_rounds is not None and people.held_out:
        kept = kept[: (_best_round(progress, metric) + 1) * objective.trees_per_round]
    return Ensemble(kept, base, metric.name, progress.history)


def _grow_with_retries(
    finder: SplitFinder,
    start: Round,
    config: TrainingConfig,
    progress: Progress,
    hooks: Hooks,
    measured: Callable[[Float64Array], RoundResult],
) -> RoundResult:
    """Grow a round's trees and keep them; where that failed and can be tried again, all of it is."""
    while True:
        margin = progress.margin.copy()
        try:
            trees = grow(finder, start, config, margin)
            result = measured(margin)
            done = Progress([*progress.trees, *trees], margin, [*progress.history, result])
            if hooks.keep is not None:
                hooks.keep(done)
        except VeilBoostError as error:
            if hooks.recover is None or not hooks.recover(error, progress):
                raise
            continue
        progress.trees, progress.margin, progress.history = done.trees, done.margin, done.history
        return result


def _best_round(progress: Progress, metric: Metric) -> int:
    """The first round with the best value on the validation rows; a value that is not a number is no best."""
    values = [np.nan if result.validation is None else result.validation for result in progress.history]
    quality = np.nan_to_num(np.array(values) * (1 if metric.higher_is_better else -1), nan=-np.inf)
    return int(quality.argmax()) if len(quality) else 0


def _past_its_best(progress: Progress, metric: Metric, config: TrainingConfig) -> bool:
    patience = config.early_stopping_rounds
    if patience is None or not progress.history or progress.history[-1].validation is None:
        return False
    return len(progress.history) - 1 - _best_round(progress, metric) >= patience
