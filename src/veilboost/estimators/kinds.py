"""Labels and predictions of classifiers and regressors, for vertical and horizontal estimators alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from veilboost.boost.objective import make_objective
from veilboost.config import OBJECTIVE_ALIASES, OBJECTIVES
from veilboost.errors import InvalidParameter, LabelOutOfRange, UnreadableModel, UnsupportedCombination
from veilboost.estimators.base import Federated
from veilboost.estimators.foreign_names import PREDICT_ARGUMENTS, refuse_arguments
from veilboost.estimators.sklearn_base import ClassifierMixin, RegressorMixin, kind_of_labels, weights_by_class
from veilboost.model.share import Skeleton
from veilboost.types import AnyArray, Float64Array

CLASSES = """    classes_ : ndarray of shape (n_classes,)
        The class labels.
"""


class Classifier(ClassifierMixin, Federated):
    """Methods of both classifiers."""

    classes_: AnyArray

    def predict_proba(
        self, X: Any, *, base_margin: Any = None, iteration_range: tuple[int, int] | None = None, **others: Any
    ) -> Float64Array:
        """Predict class probabilities.

        Parameters
        ----------
        X : matrix, frame, or mapping of party name to matrix or frame
            The rows, in the form that `fit` was given. Horizontal estimators take one matrix or frame.
        base_margin : array-like of shape (n_samples,) or (n_samples, n_classes), default=None
            The margins from which the rows start, instead of the model's base margin.
        iteration_range : tuple of int, default=None
            `(0, end)` predicts with the first `end` boosting rounds only.
        **others
            Arguments of XGBoost that do not exist here; each raises an error that says what to use.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities, in the order of `classes_`.
        """
        refuse_arguments("predict_proba", others, PREDICT_ARGUMENTS)
        return _by_class(self._predicted(self._margins_from(X, base_margin, iteration_range)))

    def staged_predict_proba(self, X: Any) -> Iterator[Float64Array]:
        """Predict class probabilities after each boosting round.

        Parameters
        ----------
        X : matrix, frame, or mapping of party name to matrix or frame
            The rows, as in `predict_proba`.

        Yields
        ------
        ndarray of shape (n_samples, n_classes)
            Probabilities, in the order of `classes_`.
        """
        for margin in self._staged_margins(X):
            yield _by_class(self._predicted(margin))

    def staged_predict(self, X: Any) -> Iterator[AnyArray]:
        """Predict the most probable class of each row after each boosting round.

        Parameters
        ----------
        X : matrix, frame, or mapping of party name to matrix or frame
            The rows, as in `predict_proba`.

        Yields
        ------
        ndarray of shape (n_samples,)
            Predicted classes.
        """
        for probabilities in self.staged_predict_proba(X):
            yield self.classes_[probabilities.argmax(axis=1)]

    def predict(
        self,
        X: Any,
        *,
        output_margin: bool = False,
        base_margin: Any = None,
        iteration_range: tuple[int, int] | None = None,
        **others: Any,
    ) -> AnyArray:
        """Predict the most probable class of each row.

        Parameters
        ----------
        X : matrix, frame, or mapping of party name to matrix or frame
            The rows, as in `predict_proba`.
        output_margin : bool, default=False
            Whether to return margins, the values before the link function.
        base_margin : array-like of shape (n_samples,) or (n_samples, n_classes), default=None
            The margins from which the rows start, instead of the model's base margin.
        iteration_range : tuple of int, default=None
            `(0, end)` predicts with the first `end` boosting rounds only.
        **others
            Arguments of XGBoost that do not exist here; each raises an error that says what to use.

        Returns
        -------
        ndarray of shape (n_samples,)
            Predicted classes; margins with `output_margin`, one column per class if there are more than two.
        """
        refuse_arguments("predict", others, PREDICT_ARGUMENTS)
        margins = self._margins_from(X, base_margin, iteration_range)
        return _shaped(margins) if output_margin else self.classes_[_by_class(self._predicted(margins)).argmax(axis=1)]

    def _predicted(self, margin: Float64Array) -> Float64Array:
        if self._joined.skeleton.objective == "multiclass":
            return make_objective("multiclass", classes=len(margin)).predict(margin)
        return make_objective("binary").predict(margin)

    def _class_weights(self, y: AnyArray) -> Float64Array | None:
        return None if self.class_weight is None else weights_by_class(self.class_weight, y)

    def _find_classes(self, y: AnyArray) -> AnyArray | None:
        kind = kind_of_labels(y)
        if kind not in ("binary", "multiclass"):
            raise LabelOutOfRange(f"Unknown label type: {kind}", f"give classes, or use {self.other} for numbers")
        declared = getattr(self, "classes", None)
        classes = np.unique(y) if declared is None else _declared(declared, y)
        if declared is None and len(classes) < 2:
            raise LabelOutOfRange(
                f"the labels hold only one class ({len(y)} rows)", "give rows of at least two classes"
            )
        return classes

    def _encode_labels(self, y: AnyArray, classes: AnyArray | None) -> Float64Array:
        code = {name: float(at) for at, name in enumerate([] if classes is None else classes.tolist())}
        try:
            return np.array([code[name] for name in y.tolist()], dtype=np.float64)
        except KeyError:
            raise LabelOutOfRange(
                "a label belongs to a class that is neither declared nor in the training labels",
                "add it to classes, or drop such rows",
            ) from None

    def _objective_name(self, classes: AnyArray | None) -> str:
        found = 0 if classes is None else len(classes)
        if callable(self.objective):
            if found > 2:
                raise UnsupportedCombination(
                    f"a callable objective supports two classes, and the labels have {found}",
                    'set objective to "multiclass"',
                )
            return "binary"
        objective = OBJECTIVE_ALIASES.get(self.objective, self.objective)
        if objective == "auto":
            return "binary" if found == 2 else "multiclass"
        if objective not in ("binary", "multiclass"):
            what, other = _misplaced(self.objective, "a classifier", self.other)
            raise InvalidParameter(what, f"set objective to 'auto', 'binary' or 'multiclass'{other}")
        if objective == "binary" and found > 2:
            raise LabelOutOfRange(
                f"the labels hold {found} classes, and binary needs two",
                "set objective to 'multiclass' or 'auto'",
            )
        return objective

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


def _shaped(margins: Float64Array) -> Float64Array:
    """Margins (K, rows) as XGBoost returns them: (rows,), or (rows, K)."""
    return margins[0] if len(margins) == 1 else np.ascontiguousarray(margins.T)


def _misplaced(objective: Any, kind: str, other: str) -> tuple[str, str]:
    """Why an estimator refuses an objective, and the end of the fix: the other estimator, if that has it."""
    if objective in OBJECTIVES or objective in OBJECTIVE_ALIASES:
        return f"objective={objective!r} is not for {kind}", f", or use {other}"
    return f"objective={objective!r} does not exist here", ""


def _by_class(probability: Float64Array) -> Float64Array:
    """Probabilities (rows, classes), from those of the second class if there are two."""
    return probability if probability.ndim == 2 else np.column_stack((1.0 - probability, probability))


def _declared(classes: Sequence[Any], y: AnyArray) -> AnyArray:
    """The declared classes in the dtype of the labels; each is given by its value or by its text."""
    known = {str(value): value for value in np.unique(y).tolist()}
    values = [known.get(str(value), value) for value in classes]
    try:
        return np.array(values, dtype=y.dtype if y.dtype.kind in "biufO" else None)
    except (TypeError, ValueError):
        raise LabelOutOfRange("the labels are numbers, and declared classes are not") from None


class Regressor(RegressorMixin, Federated):
    """Methods of both regressors."""

    def predict(
        self,
        X: Any,
        *,
        output_margin: bool = False,
        base_margin: Any = None,
        iteration_range: tuple[int, int] | None = None,
        **others: Any,
    ) -> Float64Array:
        """Predict the value of each row.

        Parameters
        ----------
        X : matrix, frame, or mapping of party name to matrix or frame
            The rows, in the form that `fit` was given. Horizontal estimators take one matrix or frame.
        output_margin : bool, default=False
            Whether to return margins, the values before the link function.
        base_margin : array-like of shape (n_samples,), default=None
            The margins from which the rows start, instead of the model's base margin.
        iteration_range : tuple of int, default=None
            `(0, end)` predicts with the first `end` boosting rounds only.
        **others
            Arguments of XGBoost that do not exist here; each raises an error that says what to use.

        Returns
        -------
        ndarray of shape (n_samples,)
            Predicted values; with a callable `objective` or `output_margin`, margins.
        """
        refuse_arguments("predict", others, PREDICT_ARGUMENTS)
        margins = self._margins_from(X, base_margin, iteration_range)
        return _shaped(margins) if output_margin else self._predicted(margins)

    def staged_predict(self, X: Any) -> Iterator[Float64Array]:
        """Predict the value of each row after each boosting round.

        Parameters
        ----------
        X : matrix, frame, or mapping of party name to matrix or frame
            The rows, as in `predict`.

        Yields
        ------
        ndarray of shape (n_samples,)
            Predicted values; with a callable `objective`, margins.
        """
        for margin in self._staged_margins(X):
            yield self._predicted(margin)

    def _predicted(self, margin: Float64Array) -> Float64Array:
        return self._joined.skeleton.loss.predict(margin)

    def _class_weights(self, y: AnyArray) -> Float64Array | None:
        if self.class_weight is not None:
            raise InvalidParameter("a regressor takes no class_weight", f"use {self.other}, or leave class_weight out")
        return None

    def _find_classes(self, y: AnyArray) -> AnyArray | None:
        if getattr(self, "classes", None) is not None:
            raise InvalidParameter("a regressor takes no classes", f"use {self.other}, or leave classes out")
        return None

    def _encode_labels(self, y: AnyArray, classes: AnyArray | None) -> Float64Array:
        if y.dtype.kind not in "biuf":
            raise LabelOutOfRange("the labels are text, and a regressor predicts numbers", f"use {self.other}")
        return y.astype(np.float64)

    def _objective_name(self, classes: AnyArray | None) -> str:
        if callable(self.objective) or self.objective == "auto":
            return "regression"
        objective = OBJECTIVE_ALIASES.get(self.objective, self.objective)
        if objective in ("binary", "multiclass") or objective not in OBJECTIVES:
            what, other = _misplaced(self.objective, "a regressor", self.other)
            raise InvalidParameter(what, f"set objective to one of auto, {', '.join(OBJECTIVES[3:])}{other}")
        return objective

    @classmethod
    def _fits(cls, skeleton: Skeleton) -> bool:
        return skeleton.classes is None and skeleton.objective not in ("binary", "multiclass")

    @classmethod
    def _stored_classes(cls, skeleton: Skeleton, stored: AnyArray | None) -> None:
        return None
