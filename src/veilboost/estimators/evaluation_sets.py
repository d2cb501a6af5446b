"""Evaluation sets and metrics of `fit`, its output, and the curves of `evals_result`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from veilboost.boost.booster import RoundResult, Watcher
from veilboost.boost.metrics import check_metric_fits, metric_named
from veilboost.config import METRIC_ALIASES, METRICS, TrainingConfig
from veilboost.errors import InvalidParameter, UnsupportedCombination
from veilboost.fields import closest
from veilboost.progress import round_bar
from veilboost.types import AnyArray, Float64Array

EvalSet: TypeAlias = tuple[Any, Any]
MetricCallable: TypeAlias = Callable[[AnyArray, AnyArray], float]
Curves: TypeAlias = dict[str, dict[str, list[float]]]  # set name to metric name to a value per round

AUTO = "auto"


def eval_sets(given: Any) -> list[EvalSet]:
    """The pairs (X, y) of `eval_set`: one pair, or a list or tuple of pairs."""
    if given is None:
        return []
    listed = cast("list[Any] | tuple[Any, ...]", given if isinstance(given, list | tuple) else [given])
    one = isinstance(listed, tuple) and not all(isinstance(each, tuple) for each in listed)
    sets = [listed] if one else list(listed)
    for each in sets:
        if not isinstance(each, tuple) or len(cast("tuple[Any, ...]", each)) != 2:
            raise InvalidParameter("eval_set is not a pair (X, y) or a list of such pairs", "give (X, y) or [(X, y)]")
    return cast("list[EvalSet]", sets)


def set_name(number: int) -> str:
    """XGBoost's name of an evaluation set."""
    return f"validation_{number}"


@dataclass(frozen=True)
class Metrics:
    """The metrics of `eval_metric`: names, and functions `(y_true, y_pred) -> float`."""

    every: tuple[str | MetricCallable, ...]

    @staticmethod
    def of(given: str | MetricCallable | Sequence[str | MetricCallable] | None) -> Metrics:
        given = AUTO if given is None else given
        listed = (given,) if isinstance(given, str) or callable(given) else tuple(given)
        if not listed or not all(isinstance(each, str) or callable(each) for each in cast("tuple[Any, ...]", listed)):
            raise InvalidParameter(
                "eval_metric is not the name of a metric, a function, or a list of them", "give one or more metrics"
            )
        return Metrics(tuple(_known(each) if isinstance(each, str) else each for each in listed))

    @property
    def by_training(self) -> bool:
        """Whether training computes the last metric, after each round on the last evaluation set."""
        return isinstance(self.every[-1], str)

    def trained(self, early_stopping: bool) -> str:
        """The metric that training computes after each round, and stops by: the last one, as in XGBoost."""
        last = self.every[-1]
        if isinstance(last, str):
            return last
        if early_stopping:
            raise UnsupportedCombination(
                "early stopping cannot use a metric that is a function", "put the name of a metric last in eval_metric"
            )
        return AUTO

    def measure(
        self, stages: Sequence[Float64Array], y: Float64Array, objective: str, default: str, config: TrainingConfig
    ) -> dict[str, list[float]]:
        """The value of each metric for the predictions of each round; `default` is what 'auto' means."""
        found: dict[str, list[float]] = {}
        for metric in self.every:
            if isinstance(metric, str):
                name = default if metric == AUTO else metric
                check_metric_fits(name, objective)
                function = metric_named(name, config).function
                found[name] = [float(function(y, prediction, None)) for prediction in stages]
            else:
                name = getattr(metric, "__name__", type(metric).__name__)
                found[name] = [_number(metric(y, prediction), name) for prediction in stages]
        return found


def _known(name: str) -> str:
    """The metric of this name, which may be XGBoost's."""
    name = METRIC_ALIASES.get(name, name)
    if name not in METRICS:
        close = closest(name, METRICS)
        hint = "" if close is None else f"did you mean {close!r}? Or "
        raise InvalidParameter(
            f"eval_metric={name!r} is not one of {', '.join(METRICS)}",
            f"{hint}give a function (y_true, y_pred) -> float, such as those of sklearn.metrics",
        )
    return name


def _number(value: Any, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InvalidParameter(f"the metric {name} did not return a number", "return one number") from None


@contextmanager
def round_output(verbose: bool | int | None, rounds: int, name: str) -> Generator[Watcher]:
    """Print the metric of the last evaluation set every `verbose` rounds; on a terminal a progress bar is shown too."""
    every = int(verbose or 0)
    if every <= 0:
        yield lambda result: None
        return
    from rich.console import Console

    with round_bar(rounds, Console(stderr=True), shown=True) as bar:

        def watch(result: RoundResult) -> None:
            if result.validation is not None and result.number % every == 0:
                sys.stdout.write(f"[{result.number}]\t{name}-{result.metric}:{result.validation:.5f}\n")
            bar(result)

        yield watch
