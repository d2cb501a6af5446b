"""The base of all losses: from margins and labels to gradients, from margins to predictions.

A margin is the sum of the trees before the link function, shape (K, n) with K trees per round; K is 1 except for
multiclass. Gradients follow XGBoost's conventions and give the same trees.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from veilboost.errors import InvalidParameter, LabelNotANumber, LabelOutOfRange
from veilboost.types import BoolArray, Float64Array

MEAN_FLOOR = 1e-6  # XGBoost's: the smallest distance of the mean label from the ends of its range


def _largest(values: Float64Array) -> float:
    """The largest magnitude, without a temporary array; NaN and infinity are kept."""
    return float(max(values.max(initial=0.0), -values.min(initial=0.0)))


class Objective(ABC):
    """A loss. Create one with `make_objective`."""

    name: ClassVar[str]  # one of `config.OBJECTIVES`, or custom
    xgboost_name: ClassVar[str | None]  # None if XGBoost does not have it
    default_metric: ClassVar[str]  # the meaning of `eval_metric="auto"`
    bounded: ClassVar[bool] = False  # whether every first derivative is within [-1, 1], whatever the labels
    limits: tuple[float | None, float | None] = None, None  # upper bounds on |g| and h at weight 1
    trees_per_round: int = 1  # K
    label_range: str = "finite"  # the labels for which it is defined
    scale_pos_weight: float = 1.0  # factor on the weights of rows with label 1
    # A leaf's weight is this quantile of its rows' residuals; None: the minimum of the loss's second-order expansion.
    leaf_quantile: float | None = None

    def __init__(self, order: str = "second", max_delta_step: float = 0.0) -> None:
        self.order = order
        # The largest leaf weight before shrinkage, 0 for no limit. For Poisson, 0 means XGBoost's 0.7, which limits the
        # leaves and also damps the hessian.
        self.max_delta_step = max_delta_step

    def gradients(
        self, margin: Float64Array, y: Float64Array, weight: Float64Array | None, threads: int = 1
    ) -> tuple[Float64Array, Float64Array]:
        """First and second derivatives of the loss by the margin (K, n), times the rows' weights (None: 1 each).

        With first-order boosting (`order="first"`) the second derivative is 1 for every row. Both are new arrays.
        A loss that overflows gives infinity or NaN without a warning; the fixed-point conversion refuses those.
        """
        g, h = self._derivatives(margin, y, threads)
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
        Poisson, gamma and Tweedie. None means a value computed from the labels, in most losses their weighted mean
        (the shares of the classes for multiclass, zero for custom losses).
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

    def label_terms(self, y: Float64Array) -> Float64Array:
        """The numbers of each row, (K, n), whose weighted means `base_margin_of_means` needs."""
        return y[np.newaxis]

    def base_margin_of_means(self, means: Float64Array, base_score: float | None) -> Float64Array:
        """`base_margin` of rows of which only the weighted means of `label_terms` are known, (K,)."""
        return self.base_margin(means, None, base_score)

    def predict(self, margin: Float64Array) -> Float64Array:
        """Predictions of margins (K, n): shape (n,), or (n, K) for multiclass."""
        return margin[0].copy()

    @abstractmethod
    def _derivatives(self, margin: Float64Array, y: Float64Array, threads: int) -> tuple[Float64Array, Float64Array]:
        """First and second derivatives without weights, in arrays that the caller may modify."""

    def _row_weight(self, y: Float64Array, weight: Float64Array | None) -> Float64Array | None:
        """The weights of rows, including their class weights."""
        return weight

    def _valid_labels(self, y: Float64Array) -> BoolArray:
        return np.ones(y.shape, dtype=np.bool_)

    def _margin_from_labels(self, y: Float64Array, weight: Float64Array | None) -> float | Float64Array:
        return 0.0

    def _margin_from_score(self, base_score: float) -> float:
        return base_score


def mean(y: Float64Array, weight: Float64Array | None) -> float:
    """Sums are exactly rounded, so a weight equals repetition and the order of summation does not matter."""
    total = float(len(y)) if weight is None else math.fsum(weight)
    if not total > 0.0:
        raise InvalidParameter(
            "base_score cannot be computed from the labels: the weights of all rows sum to zero",
            "give a row a positive weight, or set base_score",
        )
    return math.fsum(y if weight is None else y * weight) / total
