"""Losses of classes and of the caller, and all losses by name."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from veilboost import _native
from veilboost.boost.loss import MEAN_FLOOR, Objective, mean
from veilboost.boost.regression import (
    AbsoluteError,
    Gamma,
    Poisson,
    PseudoHuber,
    QuantileError,
    SquaredError,
    Tweedie,
)
from veilboost.config import OBJECTIVES, ORDERS, TrainingConfig
from veilboost.errors import GradientRange, InvalidParameter, LabelOutOfRange, UnsupportedCombination
from veilboost.types import BoolArray, Float64Array

CustomLoss: TypeAlias = Callable[..., tuple[Any, Any]]  # (y_true, y_pred) -> (g, h)

HESSIAN_FLOOR = 1e-16  # XGBoost's: a saturated row keeps a hessian above zero
_SAFE_EXPONENT = 700.0  # exp of it, and of its negative, is a normal float64


def sigmoid(margin: Float64Array) -> Float64Array:
    """1 / (1 + exp(-margin)) without overflow, with full relative precision near 0."""
    out = np.clip(margin, -_SAFE_EXPONENT, _SAFE_EXPONENT)
    np.negative(out, out=out)
    np.exp(out, out=out)
    out += 1.0
    return np.reciprocal(out, out=out)


def softmax(margin: Float64Array) -> Float64Array:
    """Softmax over the first axis of (K, n), without overflow."""
    out = margin - margin.max(axis=0)
    np.exp(out, out=out)
    out /= out.sum(axis=0)
    return out


class BinaryLogistic(Objective):
    """Logistic loss; labels are 0 or 1 (or probabilities in between)."""

    name = "binary"
    xgboost_name = "binary:logistic"
    default_metric = "auc"
    bounded = True
    limits = 1.0, 0.25
    label_range = "in [0, 1]"

    def __init__(self, order: str = "second", max_delta_step: float = 0.0, scale_pos_weight: float = 1.0) -> None:
        super().__init__(order, max_delta_step)
        self.scale_pos_weight = scale_pos_weight

    def predict(self, margin: Float64Array) -> Float64Array:
        return sigmoid(margin[0])

    def _derivatives(self, margin: Float64Array, y: Float64Array, threads: int) -> tuple[Float64Array, Float64Array]:
        g, h = np.empty_like(margin), np.empty_like(margin)
        _native.logistic_gradients(margin[0], y, g[0], h[0], threads)
        return g, h

    def _row_weight(self, y: Float64Array, weight: Float64Array | None) -> Float64Array | None:
        if self.scale_pos_weight == 1.0:
            return weight
        # A table lookup is several times faster than np.where on labels in random order.
        class_weight = np.array([1.0, self.scale_pos_weight]).take((y == 1.0).view(np.uint8))
        return class_weight if weight is None else class_weight * weight

    def _valid_labels(self, y: Float64Array) -> BoolArray:
        return (y >= 0.0) & (y <= 1.0)

    def _margin_from_labels(self, y: Float64Array, weight: Float64Array | None) -> float:
        # All of one class: start at a finite margin.
        return self._margin_from_score(min(max(mean(y, weight), MEAN_FLOOR), 1.0 - MEAN_FLOOR))

    def _margin_from_score(self, base_score: float) -> float:
        if not 0.0 < base_score < 1.0:
            raise InvalidParameter(
                f"base_score={base_score!r} is not a probability inside (0, 1)", "set it between 0 and 1"
            )
        return math.log(base_score) - math.log1p(-base_score)


class MulticlassSoftmax(Objective):
    """Cross entropy over K classes; labels are 0 .. K-1.

    As in XGBoost the hessian is 2p(1-p), twice the diagonal of the true one, which bounds the full matrix.
    """

    name = "multiclass"
    xgboost_name = "multi:softprob"
    default_metric = "mlogloss"
    bounded = True
    limits = 1.0, 0.5

    def __init__(self, classes: int, order: str = "second", max_delta_step: float = 0.0) -> None:
        super().__init__(order, max_delta_step)
        self.trees_per_round = classes
        self.label_range = f"a whole number from 0 to {classes - 1}"
        self._class_column = np.arange(classes, dtype=np.float64)[:, np.newaxis]

    def predict(self, margin: Float64Array) -> Float64Array:
        return np.ascontiguousarray(softmax(margin).T)

    def _derivatives(self, margin: Float64Array, y: Float64Array, threads: int) -> tuple[Float64Array, Float64Array]:
        p = softmax(margin)
        h = 1.0 - p
        h *= p
        h *= 2.0
        np.maximum(h, HESSIAN_FLOOR, out=h)
        p -= y == self._class_column
        return p, h

    def label_terms(self, y: Float64Array) -> Float64Array:
        """One row of zeros and ones per class."""
        return (y == self._class_column).astype(np.float64)

    def base_margin_of_means(self, means: Float64Array, base_score: float | None) -> Float64Array:
        if base_score is not None:
            return super().base_margin_of_means(np.zeros(1), base_score)
        if not ((means >= 0.0) & (means <= 1.0)).all():
            raise LabelOutOfRange("the share of a class is not in [0, 1]")
        # XGBoost's: the logarithms of the classes' shares, centred. Also a class without rows has a finite one.
        logs = np.array([math.log(share + MEAN_FLOOR) for share in means.tolist()])
        return logs - math.fsum(logs) / len(logs)

    def _valid_labels(self, y: Float64Array) -> BoolArray:
        return (y >= 0.0) & (y < self.trees_per_round) & (y == np.floor(y))

    def _margin_from_labels(self, y: Float64Array, weight: Float64Array | None) -> Float64Array:
        return self.base_margin_of_means(np.array([mean(each, weight) for each in self.label_terms(y)]), None)


class CustomObjective(Objective):
    """A loss given by the caller as `(y_true, y_pred) -> (g, h)`, as XGBoost's estimators take it.

    All are one-dimensional float arrays; `y_pred` holds margins. The callable sees read-only arrays. Predictions are
    margins, and so is `base_score`. Weights multiply g and h afterwards: a parameter `sample_weight` is None.
    """

    name = "custom"
    xgboost_name = None
    default_metric = "rmse"

    def __init__(self, loss: CustomLoss, order: str = "second", max_delta_step: float = 0.0) -> None:
        super().__init__(order, max_delta_step)
        names = _parameters_of(loss)
        if names[:1] == ["margin"]:
            raise InvalidParameter(
                "the custom objective takes (margin, y), the order of release 0.2", "change it to (y_true, y_pred)"
            )
        if names[1:2] == ["dtrain"]:
            raise InvalidParameter(
                "the custom objective takes (predt, dtrain), as xgboost.train passes them",
                "change it to (y_true, y_pred): the labels are the first argument",
            )
        self._loss = partial(loss, sample_weight=None) if "sample_weight" in names else loss

    def _derivatives(self, margin: Float64Array, y: Float64Array, threads: int) -> tuple[Float64Array, Float64Array]:
        margin_view, y_view = margin[0].view(), y.view()
        margin_view.flags.writeable = False
        y_view.flags.writeable = False
        answer = self._loss(y_view, margin_view)
        try:
            first, second = answer
        except (TypeError, ValueError) as error:
            raise InvalidParameter(
                "the custom objective did not return a pair", "return (g, h), an array of derivatives each"
            ) from error
        g = _custom_array("g", first, y.shape)
        h = _custom_array("h", second, y.shape)
        if h.min(initial=0.0) < 0.0:
            raise GradientRange("the custom objective returned a negative h", "return a second derivative of 0 or more")
        return g[np.newaxis], h[np.newaxis]


def _parameters_of(loss: CustomLoss) -> list[str]:
    try:
        return list(inspect.signature(loss).parameters)
    except (TypeError, ValueError):  # a compiled function may have none
        return []


def _custom_array(name: str, value: object, shape: tuple[int, ...]) -> Float64Array:
    """A copy of the array that a custom objective returned, which may be the caller's own."""
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidParameter(
            f"the custom objective's {name} is not an array of numbers", "return (g, h), an array each"
        ) from error
    if array.shape != shape:
        raise InvalidParameter(
            f"the custom objective's {name} has shape {array.shape} and not {shape}",
            "return one derivative per row",
        )
    if not np.isfinite(array).all():
        raise GradientRange(f"the custom objective's {name} is NaN or infinite for a row")
    return array


# The losses that XGBoost has too.
LOSSES: tuple[type[Objective], ...] = (
    BinaryLogistic,
    MulticlassSoftmax,
    SquaredError,
    AbsoluteError,
    QuantileError,
    PseudoHuber,
    Poisson,
    Gamma,
    Tweedie,
)


def make_objective(
    name: str,
    *,
    classes: int = 2,
    scale_pos_weight: float = 1.0,
    max_delta_step: float = 0.0,
    order: str = "second",
    quantile_alpha: float = 0.5,
    huber_slope: float = 1.0,
    tweedie_variance_power: float = 1.5,
    custom: CustomLoss | None = None,
) -> Objective:
    """The loss of this name. `classes` is for multiclass, `scale_pos_weight` for binary, `custom` for a custom loss.

    `max_delta_step` limits leaf weights before shrinkage, 0 for no limit. `order` is "second", or "first" for a hessian
    of 1. The other parameters are those of the losses in their names. Raises for values out of range and for
    parameters of another loss.
    """
    if order not in ORDERS:
        raise InvalidParameter(f"order={order!r} is not one of {', '.join(ORDERS)}", "use one of these names")
    if not (math.isfinite(scale_pos_weight) and scale_pos_weight > 0.0):
        raise InvalidParameter(
            f"scale_pos_weight={scale_pos_weight!r} is not above 0", "set scale_pos_weight to a number above 0"
        )
    if not (math.isfinite(max_delta_step) and max_delta_step >= 0.0):
        raise InvalidParameter(
            f"max_delta_step={max_delta_step!r} is not 0 or more", "set max_delta_step to a number of 0 or more"
        )
    if scale_pos_weight != 1.0 and name != BinaryLogistic.name:
        raise UnsupportedCombination(
            f"scale_pos_weight needs objective 'binary', not {name!r}",
            "leave scale_pos_weight at 1, or set the objective",
        )
    if custom is not None and name != CustomObjective.name:
        raise UnsupportedCombination(
            f"a custom loss needs objective 'custom', not {name!r}", 'set objective to "custom"'
        )

    if name == BinaryLogistic.name:
        return BinaryLogistic(order, max_delta_step, scale_pos_weight)
    if name == MulticlassSoftmax.name:
        if classes < 2:
            raise InvalidParameter(
                f"classes={classes!r} is not 2 or more", "set classes to the number of classes in the labels"
            )
        return MulticlassSoftmax(classes, order, max_delta_step)
    if name == QuantileError.name:
        return QuantileError(quantile_alpha, order, max_delta_step)
    if name == PseudoHuber.name:
        return PseudoHuber(huber_slope, order, max_delta_step)
    if name == Tweedie.name:
        return Tweedie(tweedie_variance_power, order, max_delta_step)
    for loss in (SquaredError, AbsoluteError, Poisson, Gamma):
        if name == loss.name:
            return loss(order, max_delta_step)
    if name == CustomObjective.name:
        if custom is None:
            raise InvalidParameter("objective 'custom' has no loss", "pass a callable (y_true, y_pred) -> (g, h)")
        return CustomObjective(custom, order, max_delta_step)
    raise InvalidParameter(f"unknown objective {name!r}", f"choose one of {', '.join(OBJECTIVES[1:])} or custom")


def objective_of(name: str, config: TrainingConfig, classes: int, custom: CustomLoss | None = None) -> Objective:
    """The loss of this name with the parameters of a training run; `classes` is only used for multiclass."""
    return make_objective(
        name,
        classes=classes,
        scale_pos_weight=config.scale_pos_weight,
        max_delta_step=config.max_delta_step,
        order=config.order,
        quantile_alpha=config.quantile_alpha,
        huber_slope=config.huber_slope,
        tweedie_variance_power=config.tweedie_variance_power,
        custom=custom,
    )
