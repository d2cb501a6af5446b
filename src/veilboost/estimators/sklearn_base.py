"""The one place where scikit-learn, which has no types, is touched."""
# pyright: basic

from __future__ import annotations

from typing import Any, cast

import numpy as np
from sklearn.base import BaseEstimator as _SkBase
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import _check_sample_weight, validate_data
from sklearn.utils.validation import check_is_fitted as _check_is_fitted

from veilboost.types import AnyArray, Float64Array

__all__ = [
    "BaseEstimator",
    "ClassifierMixin",
    "RegressorMixin",
    "check_is_fitted",
    "check_weights",
    "validate",
]


class BaseEstimator(_SkBase):
    """scikit-learn's base, with missing values declared."""

    n_features_in_: int

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def check_is_fitted(estimator: Any) -> None:
    _check_is_fitted(estimator)


def validate(estimator: Any, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any]:
    """scikit-learn's checks of one matrix: shape, numbers, finite but for NaN; same columns as in fit."""
    from sklearn.utils.multiclass import check_classification_targets

    if y is None and not reset:
        matrix = validate_data(estimator, X, reset=False, dtype=np.float32, ensure_all_finite="allow-nan")
        return matrix, np.empty(0)
    numeric = isinstance(estimator, RegressorMixin)
    matrix, target = validate_data(
        estimator,
        X,
        cast(Any, y),
        dtype=np.float32,
        ensure_all_finite="allow-nan",
        y_numeric=numeric,
        ensure_min_samples=2,
    )
    if not numeric:
        check_classification_targets(target)
    return matrix, target


def column_names(estimator: Any, count: int) -> list[str]:
    """The names that fit saw, or x0, x1, ..."""
    names = getattr(estimator, "feature_names_in_", None)
    return [str(name) for name in names] if names is not None else [f"x{at}" for at in range(count)]


def check_weights(weight: Any, matrix: AnyArray) -> Float64Array | None:
    """A non-negative weight per row, or None."""
    if weight is None:
        return None
    checked: Float64Array = _check_sample_weight(weight, matrix, dtype=np.float64, ensure_non_negative=True)
    return checked
