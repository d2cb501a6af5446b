"""Callbacks of the estimators, with the names and methods of `xgboost.callback`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias, cast

from veilboost.boost.booster import RoundResult
from veilboost.boost.metrics import METRIC_INFO
from veilboost.errors import InvalidParameter, UnsupportedCombination
from veilboost.model.share import ModelShare
from veilboost.model.store import save_model
from veilboost.types import PartyName

EvalsLog: TypeAlias = dict[str, dict[str, list[float]]]  # set name to metric name to a value per round
Shares: TypeAlias = Callable[[], Mapping[PartyName, ModelShare]]


class TrainingModel:
    """The model in training, as callbacks see it: the methods of `xgboost.Booster` that callbacks use.

    `set_attr` with `best_iteration` makes the estimator keep the rounds up to that one.
    """

    def __init__(self, learning_rate: float, rounds: int, fixed_rate: bool) -> None:
        self.learning_rate = learning_rate
        self.shares: Shares | None = None
        self.best_iteration: int | None = None
        self.best_score: float | None = None
        self._rounds, self._fixed_rate = rounds, fixed_rate
        self._attributes: dict[str, str] = {}

    def num_boosted_rounds(self) -> int:
        """The number of finished rounds, with those of the model that is continued."""
        return self._rounds

    def set_param(self, params: str | Mapping[str, Any], value: Any = None) -> None:
        """Set the learning rate of the following rounds. Other parameters cannot change during training."""
        given = {params: value} if isinstance(params, str) else dict(params)
        for name, each in given.items():
            if name not in ("learning_rate", "eta"):
                raise UnsupportedCombination(
                    f"a callback sets {name}, which cannot change during training",
                    "set it in the constructor; callbacks can set learning_rate",
                )
            if self._fixed_rate:
                raise UnsupportedCombination(
                    "a callback sets learning_rate, which horizontal protocols fix before training",
                    "set learning_rate in the constructor",
                )
            self.learning_rate = float(each)

    def set_attr(self, **attributes: Any) -> None:
        """Set attributes, as texts. `best_iteration` and `best_score` are also attributes of this object."""
        for name, value in attributes.items():
            self._attributes[name] = str(value)
        if "best_iteration" in attributes:
            self.best_iteration = int(attributes["best_iteration"])
        if "best_score" in attributes:
            self.best_score = float(attributes["best_score"])

    def attr(self, key: str) -> str | None:
        return self._attributes.get(key)

    def attributes(self) -> dict[str, str]:
        return dict(self._attributes)

    def save_model(self, folder: str | Path) -> None:
        """Save the shares of the model so far in a folder, which `load` reads."""
        if self.shares is None:
            raise UnsupportedCombination(
                "a callback saves the model during training, and horizontal models are complete at the end only",
                "leave the callback out, and save the fitted estimator",
            )
        save_model(self.shares(), folder)

    def __getitem__(self, rounds: slice) -> Self:
        """As a slice of a booster: the estimator keeps the rounds up to `best_iteration` in any case."""
        return self

    def finished(self) -> None:
        self._rounds += 1


class TrainingCallback:
    """Base class of callbacks. A subclass, or one of `xgboost.callback.TrainingCallback`, implements what it needs.

    `model` has the methods `num_boosted_rounds`, `set_param` (only learning_rate), `set_attr`, `attr` and `save_model`.
    `evals_log` holds the last metric on the last evaluation set, as in `evals_result()`.
    """

    observes: ClassVar[bool] = False  # whether it neither ends training nor sets parameters

    def before_training(self, model: Any) -> Any:
        """Called before the first round; returns the model."""
        return model

    def after_training(self, model: Any) -> Any:
        """Called after the last round; returns the model."""
        return model

    def before_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:
        """Called before each round; True ends training."""
        return False

    def after_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:
        """Called after each round; True ends training."""
        return False


class EarlyStopping(TrainingCallback):
    """Stop after `rounds` rounds without an improvement, and keep the best one.

    Parameters
    ----------
    rounds : int
        Number of rounds without an improvement of more than `min_delta`.
    metric_name : str or None, default=None
        The metric; None means the one that is measured during training.
    maximize : bool or None, default=None
        Whether higher values are better; None means as the metric defines it.
    min_delta : float, default=0
        The least improvement that counts.
    """

    def __init__(
        self, *, rounds: int, metric_name: str | None = None, maximize: bool | None = None, min_delta: float = 0.0
    ) -> None:
        if rounds < 1 or min_delta < 0:
            raise InvalidParameter("rounds is below 1, or min_delta below 0", "set rounds to 1 or more")
        self.rounds, self.metric_name, self.maximize, self.min_delta = rounds, metric_name, maximize, min_delta

    def before_training(self, model: Any) -> Any:
        self._best, self._since, self._first = -math.inf, 0, model.num_boosted_rounds()
        return model

    def after_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:
        name, value = last_value(evals_log, self.metric_name)
        info = METRIC_INFO.get(name)
        upwards = (info is not None and info.higher_is_better) if self.maximize is None else self.maximize
        quality = value if upwards else -value
        if quality > self._best + (self.min_delta if math.isfinite(self._best) else 0.0):
            self._best, self._since = quality, 0
            model.set_attr(best_score=value, best_iteration=self._first + epoch)
        else:
            self._since += 1
        return self._since >= self.rounds


class EvaluationMonitor(TrainingCallback):
    """Print the metric on the last evaluation set every `period` rounds, by `logger`."""

    observes = True

    def __init__(self, period: int = 1, logger: Callable[[str], Any] = print) -> None:
        if period < 1:
            raise InvalidParameter("period is below 1", "set period to 1 or more")
        self.period, self.logger = period, logger

    def after_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:
        if evals_log and epoch % self.period == 0:
            shown = (f"{name}-{each}:{log[-1]:.5f}" for name, logs in evals_log.items() for each, log in logs.items())
            self.logger("\t".join((f"[{epoch}]", *shown)))
        return False


class LearningRateScheduler(TrainingCallback):
    """Set the learning rate of every round: a list with a rate per round, or a function of the round's number.

    XGBoost's class of this name sets the rate after a round, for the next one; this one sets it before the round.
    """

    def __init__(self, learning_rates: Callable[[int], float] | Sequence[float]) -> None:
        self.learning_rates = learning_rates

    def before_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:
        rates = self.learning_rates
        if not callable(rates) and epoch >= len(rates):
            raise InvalidParameter(
                f"there are {len(rates)} learning rates, and round {epoch} has none", "give one for every round"
            )
        model.set_param("learning_rate", rates(epoch) if callable(rates) else rates[epoch])
        return False


class TrainingCheckPoint(TrainingCallback):
    """Save the model every `interval` rounds, in folders `name_ROUNDS` that the estimators' `load` reads."""

    observes = True

    def __init__(self, directory: str | Path, name: str = "model", interval: int = 100) -> None:
        if interval < 1:
            raise InvalidParameter("interval is below 1", "set interval to 1 or more")
        self.directory, self.name, self.interval = Path(directory), name, interval

    def after_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:
        if (epoch + 1) % self.interval == 0:
            model.save_model(self.directory / f"{self.name}_{model.num_boosted_rounds()}")
        return False


_METHODS = ("before_training", "after_training", "before_iteration", "after_iteration")


def check_callbacks(given: object) -> tuple[Any, ...]:
    """The callbacks, each with the four methods of a `TrainingCallback`."""
    if given is None:
        return ()
    every = tuple(cast("Sequence[Any]", given)) if isinstance(given, list | tuple) else (given,)
    for each in every:
        if isinstance(each, type) or not all(callable(getattr(each, name, None)) for name in _METHODS):
            raise InvalidParameter(
                "callbacks holds an object that is no callback",
                f"give a list of objects with the methods {', '.join(_METHODS)}, as veilboost.callback has them",
            )
    return tuple(map(_without_save_best, every))


def _without_save_best(callback: Any) -> Any:
    """XGBoost's EarlyStopping needs a Booster if `save_best` is set. The estimators always keep the best rounds."""
    if not getattr(callback, "save_best", False):
        return callback
    kept = copy(callback)
    kept.save_best = False
    return kept


class CallbackRunner:
    """Calls the callbacks of one training: `begin`, then `watch` after each round, then `end`."""

    def __init__(self, callbacks: Sequence[Any], model: TrainingModel, set_name: str, rounds: int) -> None:
        self._callbacks, self._set_name, self._rounds = callbacks, set_name, rounds
        self.model, self._log = model, EvalsLog()

    def begin(self) -> None:
        """Raises what a callback raises, before any work is done."""
        for each in self._callbacks:
            each.before_training(self.model)
        if self._ends_before(0):
            raise InvalidParameter(
                "a callback ends training before the first round", "return False from before_iteration at round 0"
            )

    def watch(self, result: RoundResult) -> bool:
        self.model.finished()
        if result.validation is not None:
            logs = self._log.setdefault(self._set_name, {})
            logs.setdefault(str(result.metric), []).append(result.validation)
            if result.number == 0:
                self._check_what_they_read(str(result.metric))
        answers = [each.after_iteration(self.model, result.number, self._log) for each in self._callbacks]
        following = result.number + 1
        return any(answers) or (following < self._rounds and self._ends_before(following))

    def _check_what_they_read(self, metric: str) -> None:
        """XGBoost's EarlyStopping names a metric and a set; training measures the last metric on the last set."""
        for each in self._callbacks:
            wanted = getattr(each, "metric_name", None) or metric, getattr(each, "data", None) or self._set_name
            if wanted != (metric, self._set_name):
                raise UnsupportedCombination(
                    f"a callback reads {wanted[0]!r} on {wanted[1]!r}, and training measures {metric!r} on "
                    f"{self._set_name!r}",
                    "put that metric last in eval_metric, and that set last in eval_set",
                )

    def _ends_before(self, number: int) -> bool:
        answers = [each.before_iteration(self.model, number, self._log) for each in self._callbacks]
        return any(answers)

    def peek(self, shares: Shares) -> None:
        """The shares of the model after the last round, should a callback save it."""
        self.model.shares = shares

    def rate(self, number: int) -> float:
        return self.model.learning_rate

    def end(self) -> None:
        for each in self._callbacks:
            each.after_training(self.model)


def last_value(evals_log: EvalsLog, metric_name: str | None) -> tuple[str, float]:
    """The name and the last value of a metric."""
    logs = list(evals_log.values())[-1] if evals_log else {}
    name = next(iter(logs), None) if metric_name is None else metric_name
    if name not in logs:
        raise UnsupportedCombination(
            "EarlyStopping needs a metric that is measured during training",
            "give fit an eval_set, and name the metric last in eval_metric",
        )
    return name, logs[name][-1]
