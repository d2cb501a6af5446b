"""Losses: from margins and labels to gradients, from margins to predictions.

A margin is the sum of the trees before the link function, shape (K, n) with K trees per round; K is 1 except for
multiclass. Gradients follow XGBoost's conventions and give the same trees.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

import numpy as np

from veilboost import _native
from veilboost.config import ORDERS, TrainingConfig
from veilboost.errors import (
    GradientRange,
    InvalidParameter,
    LabelNotANumber,
    LabelOutOfRange,
    UnsupportedCombination,
)
from veilboost.types import BoolArray, Float64Array

CustomLoss: TypeAlias = Callable[[Float64Array, Float64Array], tuple[Any, Any]]

HESSIAN_FLOOR = 1e-16  # XGBoost's: a saturated row keeps a hessian above zero
MEAN_FLOOR = 1e-6  # XGBoost's: the smallest distance of the mean label from the ends of its range
POISSON_MAX_DELTA_STEP = 0.7  # XGBoost's default for count:poisson
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


def _largest(values: Float64Array) -> float:
    """The largest magnitude, without a temporary array; NaN and infinity are kept."""
    return float(max(values.max(initial=0.0), -values.min(initial=0.0)))


class Objective(ABC):
    """A loss. Create one with `make_objective`."""

    name: ClassVar[str]  # one of binary, multiclass, regression, poisson, custom
    xgboost_name: ClassVar[str | None]  # None if XGBoost does not have it
    default_metric: ClassVar[str]  # the meaning of `eval_metric="auto"`
    bounded: ClassVar[bool] = False  # whether every first derivative is within [-1, 1], whatever the labels
    limits: ClassVar[tuple[float | None, float | None]] = None, None  # upper bounds on |g| and h at weight 1
    trees_per_round: int = 1  # K
    label_range: str = "finite"  # the labels for which it is defined
    scale_pos_weight: float = 1.0  # factor on the weights of rows with label 1

    def __init__(self, order: str = "second", max_delta_step: float = 0.0) -> None:
        self.order = order
        # The largest leaf weight before shrinkage, 0 for no limit. For Poisson, 0 means XGBoost's 0.7, which limits the
        # leaves and also damps the hessian.
        self.max_delta_step = max_delta_step

    def gradients(
        self, margin: Float64Array, y: Float64Array, weight: Float64Array | None
    ) -> tuple[Float64Array, Float64Array]:
        """First and second derivatives of the loss by the margin (K, n), times the rows' weights (None: 1 each).

        With first-order boosting (`order="first"`) the second derivative is 1 for every row. Both are new arrays.
        A loss that overflows gives infinity or NaN without a warning; the fixed-point conversion refuses those.
        """
        g, h = self._derivatives(margin, y)
        if self.order == "first":
            h = np.ones_like(g)
        weight = self._row_weight(y, weight)
        if weight is not None:
            with np.errstate(over="ignore", invalid="ignore"):
                g *= weight
                h *= weight
        return g, h

    def bounds(self, weight_bound: float, g: Float64Array, h: Float64Array) -> tuple[float, float]:
        """Bounds on |g| and h, for the scale of the fixed-point grid; `weight_bound` is the largest row weight.

        If the derivatives are bounded, these depend on the weights alone, so that the scale reveals nothing about the
        labels; otherwise they are the largest values of this round.
        """
        g_limit, h_limit = self.limits
        if self.order == "first":
            h_limit = 1.0
        weight_bound *= max(1.0, self.scale_pos_weight)
        return (
            _largest(g) if g_limit is None else g_limit * weight_bound,
            _largest(h) if h_limit is None else h_limit * weight_bound,
        )

    def base_margin(self, y: Float64Array, weight: Float64Array | None, base_score: float | None) -> Float64Array:
        """The margin before the first tree, shape (K,). Refuses labels for which the loss is not defined.

        `base_score` is in the space of predictions, as in XGBoost: a probability for binary, a mean above 0 for
        Poisson. None means the weighted mean of the labels (zero for multiclass and custom losses).
        """
        if not np.isfinite(y).all():
            raise LabelNotANumber("a label is missing or infinite")
        if not self._valid_labels(y).all():
            raise LabelOutOfRange(f"a label is not {self.label_range}, which objective {self.name!r} requires")
        if base_score is None:
            start = self._margin_from_labels(y, self._row_weight(y, weight))
        else:
            if not math.isfinite(base_score):
                raise InvalidParameter(
                    f"base_score={base_score!r} is not a finite number", "set base_score to a finite number"
                )
            start = self._margin_from_score(base_score)
        return np.full(self.trees_per_round, start, dtype=np.float64)

    def predict(self, margin: Float64Array) -> Float64Array:
        """Predictions of margins (K, n): shape (n,), or (n, K) for multiclass."""
        return margin[0].copy()

    @abstractmethod
    def _derivatives(self, margin: Float64Array, y: Float64Array) -> tuple[Float64Array, Float64Array]:
        """First and second derivatives without weights, in arrays that the caller may modify."""

    def _row_weight(self, y: Float64Array, weight: Float64Array | None) -> Float64Array | None:
        """The weights of rows, including their class weights."""
        return weight

    def _valid_labels(self, y: Float64Array) -> BoolArray:
        return np.ones(y.shape, dtype=np.bool_)

    def _margin_from_labels(self, y: Float64Array, weight: Float64Array | None) -> float:
        return 0.0

    def _margin_from_score(self, base_score: float) -> float:
        return base_score


def _mean(y: Float64Array, weight: Float64Array | None) -> float:
    """Sums are exactly rounded, so a weight equals repetition and the order of summation does not matter."""
    total = float(len(y)) if weight is None else math.fsum(weight)
    if not total > 0.0:
        raise InvalidParameter(
            "base_score cannot be computed from the labels: the weights of all rows sum to zero",
            "give a row a positive weight, or set base_score",
        )
    return math.fsum(y if weight is None else y * weight) / total


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

    def _derivatives(self, margin: Float64Array, y: Float64Array) -> tuple[Float64Array, Float64Array]:
        g, h = np.empty_like(margin), np.empty_like(margin)
        _native.logistic_gradients(margin[0], y, g[0], h[0])
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
        return self._margin_from_score(min(max(_mean(y, weight), MEAN_FLOOR), 1.0 - MEAN_FLOOR))

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

    def _derivatives(self, margin: Float64Array, y: Float64Array) -> tuple[Float64Array, Float64Array]:
        p = softmax(margin)
        h = 1.0 - p
        h *= p
        h *= 2.0
        np.maximum(h, HESSIAN_FLOOR, out=h)
        p -= y == self._class_column
        return p, h

    def _valid_labels(self, y: Float64Array) -> BoolArray:
        return (y >= 0.0) & (y < self.trees_per_round) & (y == np.floor(y))


class SquaredError(Objective):
    """Half the squared error."""

    name = "regression"
    xgboost_name = "reg:squarederror"
    default_metric = "rmse"
    limits = None, 1.0

    def _derivatives(self, margin: Float64Array, y: Float64Array) -> tuple[Float64Array, Float64Array]:
        g = margin - y
        return g, np.ones_like(g)

    def _margin_from_labels(self, y: Float64Array, weight: Float64Array | None) -> float:
        return _mean(y, weight)


class Poisson(Objective):
    """Negative log likelihood of counts with mean exp(margin).

    The hessian is exp(margin + max_delta_step), as in XGBoost: no leaf moves the margin by more than
    max_delta_step, so it bounds the curvature in between.
    """

    name = "poisson"
    xgboost_name = "count:poisson"
    default_metric = "rmse"
    label_range = "0 or more"

    def __init__(self, order: str = "second", max_delta_step: float = 0.0) -> None:
        super().__init__(order, max_delta_step if max_delta_step > 0.0 else POISSON_MAX_DELTA_STEP)
        self._hessian_factor = math.exp(self.max_delta_step)

    def predict(self, margin: Float64Array) -> Float64Array:
        with np.errstate(over="ignore"):
            return np.exp(margin[0])

    def _derivatives(self, margin: Float64Array, y: Float64Array) -> tuple[Float64Array, Float64Array]:
        with np.errstate(over="ignore"):
            g = np.exp(margin)
            h = g * self._hessian_factor
        g -= y
        return g, h

    def _valid_labels(self, y: Float64Array) -> BoolArray:
        return y >= 0.0

    def _margin_from_labels(self, y: Float64Array, weight: Float64Array | None) -> float:
        # Only zeros: start at a finite margin.
        return math.log(max(_mean(y, weight), MEAN_FLOOR))

    def _margin_from_score(self, base_score: float) -> float:
        if not base_score > 0.0:
            raise InvalidParameter(f"base_score={base_score!r} is not above 0", "set base_score to a number above 0")
        return math.log(base_score)


class CustomObjective(Objective):
    """A loss given by the caller as `(margin, y) -> (g, h)`; all are one-dimensional float arrays.

    The callable sees read-only arrays. Predictions are margins, and so is `base_score`.
    """

    name = "custom"
    xgboost_name = None
    default_metric = "rmse"

    def __init__(self, loss: CustomLoss, order: str = "second", max_delta_step: float = 0.0) -> None:
        super().__init__(order, max_delta_step)
        self._loss = loss

    def _derivatives(self, margin: Float64Array, y: Float64Array) -> tuple[Float64Array, Float64Array]:
        margin_view, y_view = margin[0].view(), y.view()
        margin_view.flags.writeable = False
        y_view.flags.writeable = False
        answer = self._loss(margin_view, y_view)
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


def make_objective(
    name: str,
    *,
    classes: int = 2,
    scale_pos_weight: float = 1.0,
    max_delta_step: float = 0.0,
    order: str = "second",
    custom: CustomLoss | None = None,
) -> Objective:
    """The loss of this name. `classes` is for multiclass, `scale_pos_weight` for binary, `custom` for a custom loss.

    `max_delta_step` limits leaf weights before shrinkage, 0 for no limit. `order` is "second", or "first" for a hessian
    of 1. Raises for values out of range and for parameters of another loss.
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
    if name == SquaredError.name:
        return SquaredError(order, max_delta_step)
    if name == Poisson.name:
        return Poisson(order, max_delta_step)
    if name == CustomObjective.name:
        if custom is None:
            raise InvalidParameter("objective 'custom' has no loss", "pass a callable (margin, y) -> (g, h)")
        return CustomObjective(custom, order, max_delta_step)
    raise InvalidParameter(f"unknown objective {name!r}", "choose binary, multiclass, regression, poisson or custom")


def objective_of(name: str, config: TrainingConfig, classes: int, custom: CustomLoss | None = None) -> Objective:
    """The loss of this name with the parameters of a training run; `classes` is only used for multiclass."""
    return make_objective(
        name,
        classes=classes,
        scale_pos_weight=config.scale_pos_weight,
        max_delta_step=config.max_delta_step,
        order=config.order,
        custom=custom,
    )
