"""The only module that imports scikit-learn, which has no type annotations."""
# pyright: basic

from __future__ import annotations

from typing import Any, Self, cast

import numpy as np
from sklearn.base import BaseEstimator as _SkBase
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted as _check_is_fitted
from sklearn.utils.validation import check_X_y, validate_data

from veilboost.errors import InvalidParameter
from veilboost.estimators.foreign_names import ATTRIBUTES, own_parameters
from veilboost.fields import RENAMED
from veilboost.types import AnyArray

__all__ = [
    "BaseEstimator",
    "ClassifierMixin",
    "RegressorMixin",
    "check_is_fitted",
    "kind_of_labels",
    "validate_fit",
    "validate_predict",
    "weights_by_class",
]


class BaseEstimator(_SkBase):
    """scikit-learn's base, with missing values declared.

    A former name, or a name of another library that asks for something else, raises an error that says what to use.
    """

    n_features_in_: int
    feature_names_in_: AnyArray

    def set_params(self, **params: Any) -> Self:
        """Set parameters of this estimator, as scikit-learn's `set_params` does."""
        return super().set_params(**own_parameters(params, self._get_param_names()))

    def __getattr__(self, name: str) -> Any:
        # Called for attributes that do not exist, and for properties that raise: `NotFittedError` is an AttributeError.
        if hasattr(type(self), name):
            return object.__getattribute__(self, name)
        # An AttributeError, so that `hasattr` returns False.
        new = RENAMED.get(name)
        if new is not None and (new in type(self)._get_param_names() or name.endswith("_")):
            renamed = InvalidParameter(f"the attribute {name!r} was renamed to {new!r}", f"use {new}")
            raise AttributeError(str(renamed), name=name, obj=self)
        if name in ATTRIBUTES:
            foreign = InvalidParameter(f"there is no attribute {name!r}", ATTRIBUTES[name])
            raise AttributeError(str(foreign), name=name, obj=self)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def check_is_fitted(estimator: Any) -> None:
    _check_is_fitted(estimator)


def validate_fit(estimator: Any, X: Any, y: Any, *, frame: bool) -> tuple[Any, AnyArray]:
    """Run scikit-learn's checks on one matrix and its labels, and record the columns' names and number.

    A frame is returned unchanged, because its columns need not be numeric.
    """
    numeric = isinstance(estimator, RegressorMixin)
    if not frame:
        # Infinite values are refused later, where the column's name is known.
        options: Any = {"dtype": np.float32, "ensure_all_finite": False, "y_numeric": numeric}
        return cast(Any, validate_data(estimator, X, y, **options))
    validate_data(estimator, X, y, skip_check_array=True)
    _, target = check_X_y(np.zeros((len(X), 1)), y, y_numeric=numeric)
    return X, target


def validate_predict(estimator: Any, X: Any, *, frame: bool) -> Any:
    """Check new rows; their columns must be those of `fit`."""
    if frame:
        return validate_data(estimator, X, reset=False, skip_check_array=True)
    return validate_data(estimator, X, reset=False, dtype=np.float32, ensure_all_finite=False)


def kind_of_labels(y: AnyArray) -> str:
    """The label type by scikit-learn's rules: binary, multiclass, continuous, ..."""
    return type_of_target(y, input_name="y")


def weights_by_class(class_weight: Any, y: AnyArray) -> Any:
    """The weight of each row by its class, by scikit-learn's rules."""
    try:
        return compute_sample_weight(class_weight, y)
    except ValueError as error:
        raise InvalidParameter(f"class_weight: {error}", "give a weight per class, or 'balanced'") from None
