"""`VerticalRegressor`: how much, from columns in different hands."""

from __future__ import annotations

from typing import Any

import numpy as np

from veilboost.boost.objective import make_objective
from veilboost.errors import ImpossibleParameter, LabelOutOfRange
from veilboost.estimators.parameters import Parameters
from veilboost.estimators.sklearn_base import RegressorMixin
from veilboost.estimators.vertical import Labels, Vertical
from veilboost.model.part import Skeleton
from veilboost.types import AnyArray, Float64Array


class VerticalRegressor(RegressorMixin, Vertical):
    __doc__ = f"""A boosted regressor over columns in different hands.

    With a user's own `objective`, predictions are margins.
    {Parameters.__doc__}"""

    def predict(self, X: Any) -> Float64Array:
        """The predicted value of each row."""
        margin = self._margins(X)
        return make_objective("poisson" if self._skeleton.objective == "poisson" else "regression").predict(margin)

    def _learn_labels(self, y: AnyArray) -> Labels:
        return Labels(self._encode_labels(y, None), None)

    def _encode_labels(self, y: AnyArray, classes: AnyArray | None) -> Float64Array:
        if y.dtype.kind not in "biuf":
            raise LabelOutOfRange("the labels are text, and a regressor predicts numbers", "use VerticalClassifier")
        return y.astype(np.float64)

    def _objective_name(self, labels: Labels) -> str:
        if callable(self.objective) or self.objective == "auto":
            return "regression"
        if self.objective not in ("regression", "poisson"):
            raise ImpossibleParameter(f"objective={self.objective!r} is not for a regressor")
        return self.objective

    @classmethod
    def _fits(cls, skeleton: Skeleton) -> bool:
        return skeleton.classes is None and skeleton.objective not in ("binary", "multiclass")

    @classmethod
    def _stored_classes(cls, skeleton: Skeleton, stored: AnyArray | None) -> None:
        return None
