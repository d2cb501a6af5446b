"""The boosting loop: row and column sampling, gradients of the label party's rows, trees, margins, early stopping."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from veilboost.boost.grower import LeafRule, Round, SplitFinder, Tree, grow
from veilboost.boost.loss import Objective
from veilboost.boost.metrics import Metric
from veilboost.boost.regression import quantiles
from veilboost.boost.rows import RowGroups
from veilboost.config import TrainingConfig
from veilboost.errors import VeilBoostError
from veilboost.fixedpoint import choose_scale, to_fixed
from veilboost.types import BoolArray, Float64Array, Int32Array, Int64Array


@dataclass(frozen=True)
class RoundResult:
    """The result of a round.

    `validation` is the value of the metric named `metric` on the held-out rows; both are None if there are none.
    """

    number: int
    seconds: float
    validation: float | None
    metric: str | None = None

    @staticmethod
    def measured(number: int, seconds: float, value: float | None, metric: Metric) -> RoundResult:
        return RoundResult(number, seconds, value, None if value is None else metric.name)


@dataclass
class Progress:
    """The state of training, as checkpoints store it."""

    trees: list[Tree]
    margin: Float64Array
    history: list[RoundResult]


@dataclass(frozen=True)
class Ensemble:
    """The skeletons of all trees (K per round, in turn), the base margin, and the training history."""

    trees: Sequence[Tree]
    base_margin: Float64Array
    metric: str
    history: Sequence[RoundResult]


Watcher = Callable[[RoundResult], bool | None]  # True ends training after this round


@dataclass(frozen=True)
class Hooks:
    """Callbacks between rounds.

    `watch` receives each round's result and `keep` the progress. `recover` receives the error of a failed round and
    returns whether the round can be repeated. `rate` returns the learning rate of a round, by its number.
    """

    watch: Watcher | None = None
    keep: Callable[[Progress], None] | None = None
    recover: Callable[[VeilBoostError, Progress], bool] | None = None
    rate: Callable[[int], float] | None = None


def train(
    finder: SplitFinder,
    features: Sequence[int],
    samples: LabelRows,
    objective: Objective,
    metric: Metric,
    config: TrainingConfig,
    hooks: Hooks = Hooks(),
    progress: Progress | None = None,
    start: Float64Array | None = None,
) -> Ensemble:
    """Boost `config.n_estimators` rounds, or fewer with early stopping. Continue from `progress` if it is given.

    `features` counts the columns of each owner. Rows that `samples` holds out are routed but never summed. `start` has
    the margins (K, rows) before the first tree, if they are not one number for all rows; the base margin is zero then.
    """
    base = samples.base_margin(objective, config.base_score)
    if start is not None:
        base = np.zeros_like(base)
    if progress is None:
        first = samples.first_margin(base) if start is None else samples.kept_margin(start.copy())
        progress = Progress([], first, [])
    else:
        progress.margin = samples.kept_margin(progress.margin)
    for number in range(len(progress.history), config.n_estimators):
        if past_its_best(progress.history, metric, config):
            break
        began = time.perf_counter()
        columns = sample_columns(features, number, config)
        begun = samples.begin_round(number, progress.margin, objective, config, columns, finder.threads)
        grown = config if hooks.rate is None else replace(config, learning_rate=hooks.rate(number))
        while True:  # a failed round that can be repeated is repeated as a whole
            margin = progress.margin.copy()
            try:
                trees = grow(finder, begun, grown, margin)
                seconds = time.perf_counter() - began
                result = RoundResult.measured(number, seconds, samples.measure(metric, objective, margin), metric)
                done = Progress([*progress.trees, *trees], margin, [*progress.history, result])
                if hooks.keep is not None:
                    hooks.keep(done)
                break
            except VeilBoostError as error:
                if hooks.recover is None or not hooks.recover(error, progress):
                    raise
        progress.trees, progress.margin, progress.history = done.trees, done.margin, done.history
        if hooks.watch is not None and hooks.watch(result):
            break
    kept = progress.trees
    if config.early_stopping_rounds is not None and samples.held_out:
        kept = kept[: (best_round(progress.history, metric) + 1) * objective.trees_per_round]
    return Ensemble(kept, base, metric.name, progress.history)


def best_round(history: Sequence[RoundResult], metric: Metric) -> int:
    """The first round with the best value on the validation rows; NaN is never the best."""
    values = [np.nan if result.validation is None else result.validation for result in history]
    quality = np.nan_to_num(np.array(values) * (1 if metric.higher_is_better else -1), nan=-np.inf)
    return int(quality.argmax()) if len(quality) else 0


def past_its_best(history: Sequence[RoundResult], metric: Metric, config: TrainingConfig) -> bool:
    """Whether training stops early."""
    stopping_rounds = config.early_stopping_rounds
    if stopping_rounds is None or not history or history[-1].validation is None:
        return False
    return len(history) - 1 - best_round(history, metric) >= stopping_rounds


class LabelRows:
    """Labels of all rows, and their weights if there are any.

    Rows in the mask `validation` are measured but do not influence training.
    """

    def __init__(self, y: Float64Array, weight: Float64Array | None, validation: BoolArray | None) -> None:
        rows = np.arange(len(y), dtype=np.int32)
        self._y, self._weight, self._validation = y, weight, validation
        self._pool = rows if validation is None else rows[~validation]
        self._held_out = rows[:0] if validation is None else rows[validation]
        self._own_weight = None if weight is None else weight[self._pool]

    @property
    def held_out(self) -> int:
        """The number of rows held out for validation."""
        return len(self._held_out)

    def base_margin(self, objective: Objective, base_score: float | None) -> Float64Array:
        """The margin before the first tree, (K,)."""
        return objective.base_margin(self._y[self._pool], self._own_weight, base_score)

    def first_margin(self, base: Float64Array) -> Float64Array:
        """The margins (K, rows) at the start of training."""
        return np.repeat(base[:, None], len(self._y), axis=1)

    def kept_margin(self, margin: Float64Array) -> Float64Array:
        """Margins from a checkpoint of the same job, in the form that training uses."""
        return margin

    def begin_round(
        self,
        number: int,
        margin: Float64Array,
        objective: Objective,
        config: TrainingConfig,
        columns: Sequence[Int32Array | None],
        threads: int = 1,
    ) -> Round:
        """Gradients on the fixed-point grid, and the rows that the round sums."""
        weight, validation, pool = self._weight, self._validation, self._pool
        g, h = objective.gradients(margin, self._y, None, threads)
        if validation is not None:  # validation rows influence nothing, not even the grid, and reveal nothing
            g, h = np.where(validation, 0.0, g), np.where(validation, 0.0, h)
        own, times = self._own_weight, amplification(config)
        weight_bound = times * (1.0 if own is None else float(own.max(initial=0.0)))
        scale = choose_scale(*objective.bounds(1.0, g, h), weight_bound, config.gradient_bits)
        gradients = to_fixed(g, h, scale, weight, threads)
        sample = sample_rows(pool, gradients, number, config)
        rest = sample.amplified
        if len(rest):  # the factor is applied like a weight: on the grid, with one rounding for both
            factor = np.full(len(rest), times) if weight is None else weight[rest] * times
            gradients[:, rest] = to_fixed(g[:, rest], h[:, rest], scale, factor)
        every = bool(sample.drawn.all())
        return Round(
            number=number,
            gradients=gradients,
            scale=scale,
            fit=pool if every else pool[sample.drawn],
            routed=self._held_out if every else np.sort(np.concatenate((pool[~sample.drawn], self._held_out))),
            columns=columns,
            leaves=self._leaf_rule(margin, objective),
        )

    def _leaf_rule(self, margin: Float64Array, objective: Objective) -> LeafRule | None:
        """Leaves as quantiles of the residuals before the round, if the loss asks for it."""
        alpha = objective.leaf_quantile
        if alpha is None:
            return None
        residual, weight = self._y - margin[0], self._weight

        def leaves(groups: RowGroups) -> Float64Array:
            rows = groups.listed()
            return quantiles(residual[rows], None if weight is None else weight[rows], groups.counts, alpha)

        return leaves

    def measure(self, metric: Metric, objective: Objective, margin: Float64Array) -> float | None:
        """The metric on the held-out rows; None if there are none."""
        rows = self._held_out
        if not len(rows):
            return None
        own = None if self._weight is None else self._weight[rows]
        return metric.function(self._y[rows], objective.predict(margin[:, rows]), own)


# --- the rows and columns that a round uses. Not secret: random_state is a parameter of the job --------------------
#
# GOSS (gradient-based one-side sampling, LightGBM Alg. 2) keeps the rows with the largest gradients and draws some of
# the rest, each of which represents several.

_NO_ROWS = np.empty(0, dtype=np.int32)


@dataclass(frozen=True)
class RowSample:
    """A mask over the rows that may be drawn, and the drawn rows that count `amplification` times."""

    drawn: BoolArray
    amplified: Int32Array


def amplification(config: TrainingConfig) -> float:
    """How many of the remaining rows a drawn row represents: at least 1."""
    return (1.0 - config.top_rate) / config.other_rate if config.sampling == "goss" else 1.0


def sample_rows(pool: Int32Array, gradients: Int32Array, round_number: int, config: TrainingConfig) -> RowSample:
    """Draw from the rows `pool`, whose (g, h) on the grid are `gradients[:, pool]`, (trees, rows, 2).

    The sample depends on the order of rows and on their gradients, not on how they are stored or summed.
    """
    if config.sampling != "goss" and config.subsample >= 1.0:
        return RowSample(np.ones(len(pool), dtype=np.bool_), _NO_ROWS)
    generator = np.random.Generator(np.random.PCG64((config.random_state, round_number, 0)))
    if config.sampling == "goss":
        return _one_side(pool, gradients, generator, config)
    drawn = generator.random(len(pool)) < config.subsample
    if not drawn.any():
        drawn[int(generator.integers(len(pool)))] = True
    return RowSample(drawn, _NO_ROWS)


def one_side_counts(rows: int, config: TrainingConfig) -> tuple[int, int]:
    """How many of `rows` rows GOSS keeps for their gradients, and how many it draws from the rest."""
    top, others = int(rows * config.top_rate), int(rows * config.other_rate)
    return (top, others) if top or others else (1, 0)


def rows_of_round(rows: int, config: TrainingConfig) -> int:
    """How many of `rows` rows a round trains on; the expected number if each is drawn by chance."""
    return sum(one_side_counts(rows, config)) if config.sampling == "goss" else round(rows * config.subsample)


def _one_side(
    pool: Int32Array, gradients: Int32Array, generator: np.random.Generator, config: TrainingConfig
) -> RowSample:
    # One sample for all trees of the round, so the gradients of all trees count for a row.
    size = np.abs(gradients[:, pool, 0], dtype=np.int64).sum(axis=0)
    top, others = one_side_counts(len(pool), config)
    drawn = _largest(size, top)
    rest = (~drawn).nonzero()[0]
    chosen = np.sort(generator.permutation(rest)[:others])
    drawn[chosen] = True
    return RowSample(drawn, pool[chosen])


def _largest(size: Int64Array, count: int) -> BoolArray:
    """A mask of the `count` largest values; among equal values, the first."""
    if not count:
        return np.zeros(len(size), dtype=np.bool_)
    least = np.partition(size, len(size) - count)[len(size) - count]
    largest = size > least
    equal = (size == least).nonzero()[0]
    largest[equal[: count - np.count_nonzero(largest)]] = True
    return largest


def sample_columns(features: Sequence[int], round_number: int, config: TrainingConfig) -> list[Int32Array | None]:
    """Columns of each owner, drawn from all owners' columns in the job's order; None: all of them."""
    if config.colsample_bytree >= 1.0:
        return [None] * len(features)
    total = sum(features)
    count = max(1, int(config.colsample_bytree * total))
    generator = np.random.Generator(np.random.PCG64((config.random_state, round_number, 1)))
    drawn = np.sort(generator.permutation(total)[:count])
    edges = np.concatenate(([0], np.cumsum(features)))
    return [(drawn[(drawn >= low) & (drawn < high)] - low).astype(np.int32) for low, high in itertools.pairwise(edges)]
