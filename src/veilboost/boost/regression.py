"""Losses of numeric labels."""

from __future__ import annotations

import math

import numpy as np

from veilboost.boost.loss import MEAN_FLOOR, Objective, mean
from veilboost.errors import InvalidParameter, LabelOutOfRange
from veilboost.types import BoolArray, Float64Array, Int64Array

POISSON_MAX_DELTA_STEP = 0.7  # XGBoost's default for count:poisson


class SquaredError(Objective):
    """Half the squared error."""

    name = "regression"
    xgboost_name = "reg:squarederror"
    default_metric = "rmse"
    limits = None, 1.0

    def _derivatives(self, margin: Float64Array, y: Float64Array, threads: int) -> tuple[Float64Array, Float64Array]:
        g = margin - y
        return g, np.ones_like(g)

    def _margin_from_labels(self, y: Float64Array, weight: Float64Array | None) -> float:
        return mean(y, weight)


class QuantileError(Objective):
    """Pinball loss: predicts the quantile `alpha` of the label.

    The second derivative is 1 and only weighs the rows. A leaf's weight is the quantile of its rows' residuals.
    """

    name = "quantile"
    xgboost_name = "reg:quantileerror"
    default_metric = "quantile"
    bounded = True
    limits = 1.0, 1.0

    def __init__(self, alpha: float = 0.5, order: str = "second", max_delta_step: float = 0.0) -> None:
        super().__init__(order, max_delta_step)
        self.leaf_quantile = self._alpha = alpha

    def _derivatives(self, margin: Float64Array, y: Float64Array, threads: int) -> tuple[Float64Array, Float64Array]:
        g = np.where(margin >= y, 1.0 - self._alpha, -self._alpha)
        return g, np.ones_like(g)

    def _margin_from_labels(self, y: Float64Array, weight: Float64Array | None) -> float:
        return float(quantiles(y, weight, np.array([len(y)]), self._alpha)[0])


class AbsoluteError(QuantileError):
    """Absolute error: predicts the median of the label."""

    name = "absolute_error"
    xgboost_name = "reg:absoluteerror"
    default_metric = "mae"

    def __init__(self, order: str = "second", max_delta_step: float = 0.0) -> None:
        super().__init__(0.5, order, max_delta_step)

    def _derivatives(self, margin: Float64Array, y: Float64Array, threads: int) -> tuple[Float64Array, Float64Array]:
        g = np.sign(margin - y)
        return g, np.ones_like(g)


def quantiles(values: Float64Array, weight: Float64Array | None, counts: Int64Array, alpha: float) -> Float64Array:
    """The quantile `alpha` of each group of values; the first counts[0] values are the first group, and so on.

    As in XGBoost: interpolated between two values without weights, otherwise the first value at which the weights reach
    their share. A group without values has the quantile 0.
    """
    group = np.repeat(np.arange(len(counts)), counts)
    order = np.lexsort((values, group))
    ranked, ends = values[order], np.cumsum(counts)
    result = np.zeros(len(counts))
    filled = np.flatnonzero(counts)
    first, last, size = (ends - counts)[filled], ends[filled] - 1, counts[filled]
    if weight is None:
        place = np.clip(alpha * (size + 1.0) - 1.0, 0.0, size - 1.0)
        below = np.floor(place).astype(np.int64)
        low, high = ranked[first + below], ranked[np.minimum(first + below + 1, last)]
        result[filled] = low + (place - below) * (high - low)
        return result
    reached = np.cumsum(weight[order])
    before = np.where(first > 0, reached[first - 1], 0.0)
    target = before + alpha * (reached[last] - before)
    result[filled] = ranked[np.clip(np.searchsorted(reached, target), first, last)]
    return result


class PseudoHuber(Objective):
    """Pseudo-Huber loss: squared for residuals below `slope`, absolute for those above, smooth between."""

    name = "pseudo_huber"
    xgboost_name = "reg:pseudohubererror"
    default_metric = "mphe"

    def __init__(self, slope: float = 1.0, order: str = "second", max_delta_step: float = 0.0) -> None:
        super().__init__(order, max_delta_step)
        self._slope, self.limits = slope, (slope, 1.0)

    def _derivatives(self, margin: Float64Array, y: Float64Array, threads: int) -> tuple[Float64Array, Float64Array]:
        residual = margin - y
        with np.errstate(over="ignore"):
            root = np.sqrt(1.0 + np.square(residual / self._slope))
            return residual / root, 1.0 / (root * root * root)

    def label_terms(self, y: Float64Array) -> Float64Array:
        """The derivatives at margin 0, for one Newton step, as in XGBoost."""
        return np.concatenate(self._derivatives(np.zeros((1, len(y))), y, 1))

    def base_margin_of_means(self, means: Float64Array, base_score: float | None) -> Float64Array:
        if base_score is not None:
            return super().base_margin_of_means(np.zeros(1), base_score)
        g, h = means.tolist()
        if not h > 0.0:
            raise LabelOutOfRange(
                "the labels are too far from 0 for the slope of the loss", "set base_score, or a larger huber_slope"
            )
        return np.array([-g / h])

    def _margin_from_labels(self, y: Float64Array, weight: Float64Array | None) -> Float64Array:
        return self.base_margin_of_means(np.array([mean(each, weight) for each in self.label_terms(y)]), None)


class LogLink(Objective):
    """A loss of labels whose mean is exp(margin)."""

    def predict(self, margin: Float64Array) -> Float64Array:
        with np.errstate(over="ignore"):
            return np.exp(margin[0])

    def _valid_labels(self, y: Float64Array) -> BoolArray:
        return y >= 0.0

    def _margin_from_labels(self, y: Float64Array, weight: Float64Array | None) -> float:
        # Only zeros: start at a finite margin.
        return math.log(max(mean(y, weight), MEAN_FLOOR))

    def _margin_from_score(self, base_score: float) -> float:
        if not base_score > 0.0:
            raise InvalidParameter(f"base_score={base_score!r} is not above 0", "set base_score to a number above 0")
        return math.log(base_score)


class Poisson(LogLink):
    """Negative log likelihood of counts.

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

    def _derivatives(self, margin: Float64Array, y: Float64Array, threads: int) -> tuple[Float64Array, Float64Array]:
        with np.errstate(over="ignore"):
            g = np.exp(margin)
            h = g * self._hessian_factor
        g -= y
        return g, h


class Gamma(LogLink):
    """Deviance of gamma-distributed labels, such as the size of insurance claims."""

    name = "gamma"
    xgboost_name = "reg:gamma"
    default_metric = "gamma_deviance"
    label_range = "above 0"

    def _derivatives(self, margin: Float64Array, y: Float64Array, threads: int) -> tuple[Float64Array, Float64Array]:
        with np.errstate(over="ignore"):
            h = y * np.exp(-margin)
        return 1.0 - h, h

    def _valid_labels(self, y: Float64Array) -> BoolArray:
        return y > 0.0


class Tweedie(LogLink):
    """Deviance of Tweedie-distributed labels: many zeros and positive values, such as claims per policy.

    The variance is proportional to the mean to the power of `power`, between 1 (Poisson) and 2 (gamma).
    """

    name = "tweedie"
    xgboost_name = "reg:tweedie"
    default_metric = "tweedie_deviance"
    label_range = "0 or more"

    def __init__(self, power: float = 1.5, order: str = "second", max_delta_step: float = 0.0) -> None:
        super().__init__(order, max_delta_step)
        self._power = power

    def _derivatives(self, margin: Float64Array, y: Float64Array, threads: int) -> tuple[Float64Array, Float64Array]:
        below, above = 1.0 - self._power, 2.0 - self._power
        with np.errstate(over="ignore", invalid="ignore"):
            falling, rising = y * np.exp(below * margin), np.exp(above * margin)
            return rising - falling, above * rising - below * falling
