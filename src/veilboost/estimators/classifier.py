"""`VerticalClassifier`: which of several classes, from columns in different hands."""

from __future__ import annotations

from typing import Any

import numpy as np

from veilboost.boost.objective import make_objective
from veilboost.errors import ImpossibleParameter, LabelOutOfRange, UnreadableModel, UnsupportedCombination
from veilboost.estimators.parameters import Parameters
from veilboost.estimators.sklearn_base import ClassifierMixin, kind_of_labels
from veilboost.estimators.vertical import Labels, Vertical
from veilboost.model.part import Skeleton
from veilboost.types import AnyArray, Float64Array


class VerticalClassifier(ClassifierMixin, Vertical):
    __doc__ = f"""A boosted classifier over columns in different hands.

    A user's own `objective` is for two classes; its margin is read as log odds.
    {Parameters.__doc__}"""

    classes_: AnyArray

    def predict_proba(self, X: Any) -> Float64Array:
        """Probabilities, a column per class of `classes_`."""
        margin = self._margins(X)
        if self._skeleton.objective == "multiclass":
            return make_objective("multiclass", classes=len(margin)).predict(margin)
        positive = make_objective("binary").predict(margin)
        return np.column_stack((1.0 - positive, positive))

    def predict(self, X: Any) -> AnyArray:
        """The likeliest class of each row."""
        likeliest = self.predict_proba(X).argmax(axis=1)
        return self.classes_[likeliest]

    def _learn_labels(self, y: AnyArray) -> Labels:
        kind = kind_of_labels(y)
        if kind not in ("binary", "multiclass"):
            raise LabelOutOfRange(f"Unknown label type: {kind}", "give classes, or use VerticalRegressor for numbers")
        classes = np.unique(y)
        if len(classes) < 2:
            raise LabelOutOfRange(
                f"the labels hold only one class ({len(y)} rows)", "give rows of at least two classes"
            )
        return Labels(self._encode_labels(y, classes), classes)

    def _encode_labels(self, y: AnyArray, classes: AnyArray | None) -> Float64Array:
        code = {name: float(at) for at, name in enumerate([] if classes is None else classes.tolist())}
        try:
            return np.array([code[name] for name in y.tolist()], dtype=np.float64)
        except KeyError:
            raise LabelOutOfRange(
                "a label to validate on is of a class that training does not know", "drop such rows"
            ) from None

    def _objective_name(self, labels: Labels) -> str:
        found = 0 if labels.classes is None else len(labels.classes)
        if callable(self.objective):
            if found > 2:
                raise UnsupportedCombination(f"a user's own objective is for two classes, and there are {found}")
            return "binary"
        if self.objective == "auto":
            return "binary" if found == 2 else "multiclass"
        if self.objective not in ("binary", "multiclass"):
            raise ImpossibleParameter(f"objective={self.objective!r} is not for a classifier")
        if self.objective == "binary" and found > 2:
            raise LabelOutOfRange(f"the labels hold {found} classes, and binary needs two")
        return self.objective

    @classmethod
    def _fits(cls, skeleton: Skeleton) -> bool:
        return skeleton.classes is not None or skeleton.objective in ("binary", "multiclass")

    @classmethod
    def _stored_classes(cls, skeleton: Skeleton, stored: AnyArray | None) -> AnyArray:
        count = max(skeleton.trees_per_round, 2)
        if stored is None:
            return np.arange(count) if skeleton.classes is None else np.asarray(skeleton.classes)
        if len(stored) != count:
            raise UnreadableModel(f"the estimator has {len(stored)} classes, and the model {count}")
        return stored
