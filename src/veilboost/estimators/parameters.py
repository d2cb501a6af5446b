"""The constructor parameters that all estimators share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from veilboost.config import DEFAULTS, OptionValue
from veilboost.data.categories import MAX_CATEGORIES
from veilboost.estimators.evaluation_sets import MetricCallable
from veilboost.estimators.sklearn_base import BaseEstimator


@dataclass(kw_only=True, eq=False, repr=False)
class BoostingParameters(BaseEstimator):
    """The parameters of all estimators. scikit-learn reads them from the signature that the dataclass generates."""

    protocol: str = "plain"
    categorical: Sequence[Any] = ()
    missing_values: Sequence[Any] = ()
    max_categories: int = MAX_CATEGORIES
    objective: str | Callable[..., Any] = DEFAULTS.objective
    n_estimators: int | str | None = None
    max_depth: int = DEFAULTS.max_depth
    learning_rate: float = DEFAULTS.learning_rate
    max_bin: int = DEFAULTS.max_bin
    binning: str = DEFAULTS.binning
    categories: str = DEFAULTS.categories
    max_cat_to_onehot: int = DEFAULTS.max_cat_to_onehot
    max_cat_threshold: int = DEFAULTS.max_cat_threshold
    reg_lambda: float = DEFAULTS.reg_lambda
    reg_alpha: float = DEFAULTS.reg_alpha
    gamma: float = DEFAULTS.gamma
    min_child_weight: float = DEFAULTS.min_child_weight
    min_node_rows: int = DEFAULTS.min_node_rows
    max_delta_step: float = DEFAULTS.max_delta_step
    colsample_bytree: float = DEFAULTS.colsample_bytree
    colsample_bylevel: float = DEFAULTS.colsample_bylevel
    monotone_constraints: Mapping[Any, int] | Sequence[int] | None = None
    interaction_constraints: Sequence[Sequence[Any]] | Mapping[str, Sequence[Any]] | None = None
    scale_pos_weight: float = DEFAULTS.scale_pos_weight
    quantile_alpha: float = DEFAULTS.quantile_alpha
    huber_slope: float = DEFAULTS.huber_slope
    tweedie_variance_power: float = DEFAULTS.tweedie_variance_power
    base_score: float | None = DEFAULTS.base_score
    order: str = DEFAULTS.order
    class_weight: Mapping[Any, float] | str | None = None
    eval_metric: str | MetricCallable | Sequence[str | MetricCallable] = DEFAULTS.eval_metric
    early_stopping_rounds: int | None = DEFAULTS.early_stopping_rounds
    gradient_bits: int = DEFAULTS.gradient_bits
    random_state: int | None = DEFAULTS.random_state
    callbacks: Sequence[Any] | None = None
    warm_start: bool = False
    options: Mapping[str, OptionValue] | None = None
    n_jobs: int | None = 1
