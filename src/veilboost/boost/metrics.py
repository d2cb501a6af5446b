"""Evaluation metrics: `metric(y, prediction, weight=None) -> float`.

Predictions are in the space of `Objective.predict`: probabilities (n,) for binary, (n, K) for multiclass,
values for the rest. Metrics that rank rows (auc, aucpr, ks) treat equal predictions as one threshold, and are
NaN where they are not defined because a class has no weight.

All metrics raise `InvalidParameter` for predictions and weights that are NaN or have the wrong shape, and
`LabelOutOfRange` for labels outside their range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from veilboost.boost.loss import Objective
from veilboost.config import DEFAULTS, METRICS, TrainingConfig
from veilboost.errors import InvalidParameter, LabelOutOfRange, UnsupportedCombination
from veilboost.types import Float64Array

TermFunction: TypeAlias = Callable[[Float64Array, Float64Array], Float64Array]
CheckFunction: TypeAlias = Callable[[Float64Array, Float64Array, Float64Array | None], None]


class MetricFunction(Protocol):
    def __call__(self, y: Float64Array, prediction: Float64Array, weight: Float64Array | None = None, /) -> float: ...


_PROBABILITY_FLOOR = float(np.finfo(np.float64).eps)  # as in scikit-learn's log_loss: a confident mistake stays finite


@dataclass(frozen=True)
class MetricInfo:
    """How a metric is shown: its title, its direction, and the value of guessing, if bars start there."""

    title: str
    higher_is_better: bool
    chance: float = 0.0

    @property
    def direction(self) -> str:
        return "higher is better" if self.higher_is_better else "lower is better"


# Every metric that is trained with, evaluated or reported: nothing else may assume a title or a direction.
METRIC_INFO: Mapping[str, MetricInfo] = {
    "auc": MetricInfo("AUC", True, chance=0.5),
    "aucpr": MetricInfo("average precision", True),
    "ks": MetricInfo("KS", True),
    "gini": MetricInfo("Gini", True),
    "logloss": MetricInfo("log loss", False),
    "brier": MetricInfo("Brier score", False),
    "error": MetricInfo("error rate", False),
    "rmse": MetricInfo("RMSE", False),
    "mae": MetricInfo("MAE", False),
    "quantile": MetricInfo("quantile loss", False),
    "mphe": MetricInfo("mean pseudo-Huber error", False),
    "poisson_deviance": MetricInfo("Poisson deviance", False),
    "gamma_deviance": MetricInfo("gamma deviance", False),
    "tweedie_deviance": MetricInfo("Tweedie deviance", False),
    "r2": MetricInfo("R2", True),
    "mape": MetricInfo("MAPE", False),
    "mlogloss": MetricInfo("multiclass log loss", False),
    "merror": MetricInfo("multiclass error rate", False),
    "accuracy": MetricInfo("accuracy", True),
    "f1_macro": MetricInfo("macro F1", True),
    "f1_micro": MetricInfo("micro F1", True),
    "auc_ovr": MetricInfo("one-vs-rest AUC", True, chance=0.5),
}


@dataclass(frozen=True)
class Metric:
    """A metric that training can compute.

    `terms` returns a value per row if the metric is the mean of such values (`root`: its square root), so that it can
    be summed over horizontally partitioned rows. It is None for metrics that rank rows.
    """

    name: str
    function: MetricFunction
    terms: TermFunction | None = None
    root: bool = False

    @property
    def info(self) -> MetricInfo:
        return METRIC_INFO[self.name]

    @property
    def higher_is_better(self) -> bool:
        return self.info.higher_is_better


def auc(y: Float64Array, prediction: Float64Array, weight: Float64Array | None = None) -> float:
    """Area under the ROC curve; NaN if only one class is present."""
    true, false = _counts_above(y, prediction, weight)
    if not (true[-1] > 0.0 and false[-1] > 0.0):
        return float("nan")
    # Trapezoids: a tie counts half.
    return float((np.diff(false) * (true[1:] + true[:-1])).sum() / (2.0 * true[-1] * false[-1]))


def aucpr(y: Float64Array, prediction: Float64Array, weight: Float64Array | None = None) -> float:
    """Average precision: the precision at each threshold times the recall it adds; NaN without positives."""
    true, false = _counts_above(y, prediction, weight)
    if not true[-1] > 0.0:
        return float("nan")
    above = true[1:] + false[1:]
    # Rows of weight zero may make the first thresholds empty; they add no recall.
    precision = np.divide(true[1:], above, out=np.zeros_like(above), where=above > 0.0)
    return float((np.diff(true) * precision).sum() / true[-1])


def ks(y: Float64Array, prediction: Float64Array, weight: Float64Array | None = None) -> float:
    """Kolmogorov-Smirnov: the largest |TPR - FPR|; NaN if only one class is present."""
    true, false = _counts_above(y, prediction, weight)
    if not (true[-1] > 0.0 and false[-1] > 0.0):
        return float("nan")
    return float(np.abs(true / true[-1] - false / false[-1]).max())


def _losses(y: Float64Array, prediction: Float64Array) -> Float64Array:
    p = np.clip(prediction, _PROBABILITY_FLOOR, 1.0 - _PROBABILITY_FLOOR)
    return -(y * np.log(p) + (1.0 - y) * np.log1p(-p))


def _mistakes(y: Float64Array, prediction: Float64Array) -> Float64Array:
    return np.where(prediction > 0.5, 1.0 - y, y)


def _squares(y: Float64Array, prediction: Float64Array) -> Float64Array:
    return np.square(prediction - y)


def _distances(y: Float64Array, prediction: Float64Array) -> Float64Array:
    return np.abs(prediction - y)


def _class_losses(y: Float64Array, prediction: Float64Array) -> Float64Array:
    p = np.take_along_axis(prediction, y.astype(np.intp)[:, np.newaxis], axis=1)[:, 0]
    return -np.log(np.clip(p, _PROBABILITY_FLOOR, 1.0))


def _class_mistakes(y: Float64Array, prediction: Float64Array) -> Float64Array:
    return (prediction.argmax(axis=1) != y).astype(np.float64)


def _poisson_terms(y: Float64Array, prediction: Float64Array) -> Float64Array:
    ratio = np.where(y > 0.0, y / prediction, 1.0)  # y log(y) is 0 at 0
    return 2.0 * (y * np.log(ratio) - y + prediction)


def _gamma_terms(y: Float64Array, prediction: Float64Array) -> Float64Array:
    ratio = y / prediction
    return 2.0 * (ratio - 1.0 - np.log(ratio))


def _pinball_terms(alpha: float) -> TermFunction:
    def terms(y: Float64Array, prediction: Float64Array) -> Float64Array:
        residual = y - prediction
        return np.where(residual >= 0.0, alpha, alpha - 1.0) * residual

    return terms


def _huber_terms(slope: float) -> TermFunction:
    def terms(y: Float64Array, prediction: Float64Array) -> Float64Array:
        return slope**2 * (np.sqrt(1.0 + np.square((prediction - y) / slope)) - 1.0)

    return terms


def _tweedie_terms(power: float) -> TermFunction:
    def terms(y: Float64Array, prediction: Float64Array) -> Float64Array:
        below, above = 1.0 - power, 2.0 - power
        return 2.0 * (y**above / (below * above) - y * prediction**below / below + prediction**above / above)

    return terms


def metric_named(name: str, config: TrainingConfig = DEFAULTS) -> Metric:
    """The metric of this name; some have the parameter of their loss in `config`.

    Raises `InvalidParameter` if there is none.
    """
    if name == "quantile":
        return _of_loss(name, "Mean pinball loss at quantile_alpha.", _pinball_terms(config.quantile_alpha))
    if name == "mphe":
        return _of_loss(name, "Mean pseudo-Huber error with huber_slope.", _huber_terms(config.huber_slope))
    if name == "tweedie_deviance":
        about = "Mean Tweedie deviance with tweedie_variance_power; predictions are above 0."
        return _of_loss(name, about, _tweedie_terms(config.tweedie_variance_power))
    if name not in _METRICS:
        raise InvalidParameter(f"unknown metric {name!r}", f"choose one of {', '.join(METRICS[1:])}")
    return _METRICS[name]


def _of_loss(name: str, about: str, terms: TermFunction) -> Metric:
    return Metric(name, _mean_of(about, terms, _check), terms)


def metric_for(objective: Objective, config: TrainingConfig) -> Metric:
    """The metric of a training run: the one that `config` names, or that of the loss."""
    return metric_named(objective.default_metric if config.eval_metric == "auto" else config.eval_metric, config)


def summed_metric_for(objective: Objective, config: TrainingConfig) -> Metric:
    """The metric of a run on horizontally partitioned rows: that of `config`, or that of the loss if it is a mean."""
    found = metric_for(objective, config)
    return found if config.eval_metric != "auto" or found.terms is not None else metric_named("logloss")


def check_metric_fits(metric: str, objective: str) -> None:
    """Refuse a metric that does not apply to the predictions of an objective.

    The predictions of a custom objective are margins, so metrics that need probabilities do not fit it.
    """
    metric_named(metric)
    if objective not in _FITTING:
        raise InvalidParameter(f"unknown objective {objective!r}", f"choose one of {', '.join(_FITTING)}")
    if metric not in _FITTING[objective]:
        raise UnsupportedCombination(
            f"metric {metric!r} does not fit objective {objective!r}",
            f"choose one of {', '.join(_FITTING[objective])}",
        )


def _counts_above(
    y: Float64Array, prediction: Float64Array, weight: Float64Array | None
) -> tuple[Float64Array, Float64Array]:
    """Weight of positives and of negatives at or above each distinct prediction, in descending order.

    Both start with 0 for a threshold above all predictions. A label strictly between 0 and 1 counts as that fraction
    of a positive and the rest of a negative, as in XGBoost.
    """
    _check_binary(y, prediction, weight)
    # Without weights the sums are counts, which do not depend on the order. With weights the order within a tie affects
    # the last bits, and an unstable sort would make it differ between machines.
    order = np.argsort(-prediction, kind=None if weight is None else "stable")
    ranked, positive = prediction[order], y[order]
    negative = 1.0 - positive
    if weight is not None:
        ranked_weight = weight[order]
        positive = positive * ranked_weight
        negative = negative * ranked_weight
    last_of_tie = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), len(y) - 1)
    start = np.zeros(1)
    return (
        np.concatenate((start, np.cumsum(positive)[last_of_tie])),
        np.concatenate((start, np.cumsum(negative)[last_of_tie])),
    )


def _check(
    y: Float64Array, prediction: Float64Array, weight: Float64Array | None, shape: tuple[int, ...] | None = None
) -> None:
    """Refuse input that NumPy would broadcast, sort or average into a meaningless number."""
    shape = y.shape if shape is None else shape
    if y.ndim != 1 or len(y) == 0:
        raise InvalidParameter("a metric needs one label per row", "give at least one row")
    if prediction.shape != shape:
        raise InvalidParameter(
            f"predictions have shape {prediction.shape} and not {shape}", "give predictions for the same rows"
        )
    if np.isnan(prediction).any():
        raise InvalidParameter("a prediction is NaN", "check the model and a custom objective")
    if weight is None:
        return
    if weight.shape != y.shape:
        raise InvalidParameter(f"weights have shape {weight.shape} and not {y.shape}", "give one per row")
    if not (weight.min() >= 0.0 and weight.sum() > 0.0):
        raise InvalidParameter(
            "weights are negative, NaN or all zero", "give weights of 0 or more, one of them above 0"
        )


def _check_binary(y: Float64Array, prediction: Float64Array, weight: Float64Array | None) -> None:
    _check(y, prediction, weight)
    if not (y.min() >= 0.0 and y.max() <= 1.0):
        raise LabelOutOfRange("a label is not in [0, 1], which this metric requires")


def _check_classes(y: Float64Array, prediction: Float64Array, weight: Float64Array | None) -> None:
    if prediction.ndim != 2:
        raise InvalidParameter(f"predictions have shape {prediction.shape}", "give one probability per row and class")
    classes = prediction.shape[1]
    _check(y, prediction, weight, (len(y), classes))
    if not (y.min() >= 0.0 and y.max() < classes):
        raise LabelOutOfRange(f"a label is not one of the predictions' classes 0 to {classes - 1}")


def _mean_of(about: str, terms: TermFunction, check: CheckFunction, root: bool = False) -> MetricFunction:
    """The mean of a value per row, or its square root. `about` becomes the docstring and appears in the reference."""

    def metric(y: Float64Array, prediction: Float64Array, weight: Float64Array | None = None) -> float:
        check(y, prediction, weight)
        values = terms(y, prediction)
        mean = float(values.mean() if weight is None else (values @ weight) / weight.sum())
        return math.sqrt(mean) if root else mean

    metric.__doc__ = about
    return metric


logloss = _mean_of("Mean negative log likelihood of binary labels.", _losses, _check_binary)
error = _mean_of(
    "Share of misclassified rows at threshold 0.5; a prediction of exactly 0.5 counts as class 0.",
    _mistakes,
    _check_binary,
)
rmse = _mean_of("Root of the mean squared error.", _squares, _check, root=True)
mae = _mean_of("Mean absolute error.", _distances, _check)
poisson_deviance = _mean_of("Mean Poisson deviance; labels are 0 or more, predictions above 0.", _poisson_terms, _check)
gamma_deviance = _mean_of("Mean gamma deviance; labels and predictions are above 0.", _gamma_terms, _check)
mlogloss = _mean_of(
    "Mean negative log likelihood of class labels; predictions are (n, K).", _class_losses, _check_classes
)
merror = _mean_of(
    "Share of rows whose most likely class (the first in a tie) is not their label; predictions are (n, K).",
    _class_mistakes,
    _check_classes,
)

_METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("auc", auc),
        Metric("logloss", logloss, _losses),
        Metric("error", error, _mistakes),
        Metric("rmse", rmse, _squares, root=True),
        Metric("mae", mae, _distances),
        Metric("poisson_deviance", poisson_deviance, _poisson_terms),
        Metric("gamma_deviance", gamma_deviance, _gamma_terms),
        Metric("mlogloss", mlogloss, _class_losses),
        Metric("merror", merror, _class_mistakes),
        Metric("aucpr", aucpr),
        Metric("ks", ks),
    )
}

_FITTING: Mapping[str, tuple[str, ...]] = {
    "binary": ("auc", "logloss", "error", "aucpr", "ks", "rmse", "mae"),
    "multiclass": ("mlogloss", "merror"),
    "regression": ("rmse", "mae", "mphe"),
    "absolute_error": ("mae", "rmse", "mphe"),
    "quantile": ("quantile", "mae", "rmse"),
    "pseudo_huber": ("mphe", "rmse", "mae"),
    "poisson": ("poisson_deviance", "rmse", "mae"),
    "gamma": ("gamma_deviance", "rmse", "mae"),
    "tweedie": ("tweedie_deviance", "rmse", "mae"),
    "custom": ("rmse", "mae", "auc", "aucpr", "ks"),
}
