"""`HorizontalClassifier` and `HorizontalRegressor`: the same columns, rows in different hands."""

from __future__ import annotations

from typing import Any

import numpy as np

from veilboost.boost.objective import make_objective
from veilboost.errors import ImpossibleParameter, LabelOutOfRange
from veilboost.estimators.horizontal import Horizontal, HorizontalParameters
from veilboost.estimators.sklearn_base import ClassifierMixin, RegressorMixin, kind_of_labels
from veilboost.model.part import Skeleton
from veilboost.types import AnyArray, Float64Array


class HorizontalClassifier(ClassifierMixin, Horizontal):
    __doc__ = f"""A boosted classifier over rows in different hands.
    {HorizontalParameters.__doc__}"""

    def predict_proba(self, X: Any) -> Float64Array:
        """Probabilities, a column per class of `classes_`."""
        margin = self._margins(X)
        if self.model_.objective == "multiclass":
            return make_objective("multiclass", classes=len(margin)).predict(margin)
        positive = make_objective("binary").predict(margin)
        return np.column_stack((1.0 - positive, positive))

    def predict(self, X: Any) -> AnyArray:
        """The likeliest class of each row."""
        likeliest = self.predict_proba(X).argmax(axis=1)
        return self.classes_[likeliest]

    def _learn_classes(self, y: AnyArray) -> AnyArray:
        kind = kind_of_labels(y)
        if kind not in ("binary", "multiclass"):
            raise LabelOutOfRange(f"Unknown label type: {kind}", "give classes, or use HorizontalRegressor for numbers")
        classes = np.unique(y)
        if len(classes) < 2:
            raise LabelOutOfRange("the labels hold only one class", "give rows of at least two classes")
        return classes

    def _encode(self, y: AnyArray, classes: AnyArray | None) -> Float64Array:
        return np.searchsorted(np.asarray(classes), y).astype(np.float64)

    def _objective_name(self, classes: AnyArray | None) -> str:
        found = 0 if classes is None else len(classes)
        if self.objective == "auto":
            return "binary" if found == 2 else "multiclass"
        if self.objective not in ("binary", "multiclass"):
            raise ImpossibleParameter(f"objective={self.objective!r} is not for a classifier")
        if self.objective == "binary" and found > 2:
            raise LabelOutOfRange(f"the labels hold {found} classes, and binary needs two")
        return self.objective

    @classmethod
    def _fits(cls, skeleton: Skeleton) -> bool:
        return skeleton.objective in ("binary", "multiclass")

    @classmethod
    def _known_classes(cls, skeleton: Skeleton) -> AnyArray:
        return np.arange(max(2, skeleton.trees_per_round)) if skeleton.classes is None else np.array(skeleton.classes)


class HorizontalRegressor(RegressorMixin, Horizontal):
    __doc__ = f"""A boosted regressor over rows in different hands.
    {HorizontalParameters.__doc__}"""

    def predict(self, X: Any) -> Float64Array:
        """The predicted value of each row."""
        margin = self._margins(X)
        return make_objective(self.model_.objective).predict(margin)

    def _learn_classes(self, y: AnyArray) -> None:
        if y.dtype.kind not in "biuf":
            raise LabelOutOfRange("the labels are text, and a regressor predicts numbers", "use HorizontalClassifier")

    def _encode(self, y: AnyArray, classes: AnyArray | None) -> Float64Array:
        return y.astype(np.float64)

    def _objective_name(self, classes: AnyArray | None) -> str:
        if self.objective not in ("auto", "regression", "poisson"):
            raise ImpossibleParameter(f"objective={self.objective!r} is not for a regressor")
        return "regression" if self.objective == "auto" else self.objective

    @classmethod
    def _fits(cls, skeleton: Skeleton) -> bool:
        return skeleton.objective not in ("binary", "multiclass")

    @classmethod
    def _known_classes(cls, skeleton: Skeleton) -> None:
        return None
