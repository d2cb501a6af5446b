"""Names of XGBoost and scikit-learn that the estimators do not have: why, or what to use instead.

A parameter of theirs whose value asks for what the estimators do anyway is accepted and dropped.

`bench/compatibility.py` makes the table in docs/reference/compatibility.md from them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

from veilboost.errors import InvalidParameter
from veilboost.fields import RENAMED, closest

_Class = TypeVar("_Class", bound=type)

_ALWAYS_HISTOGRAMS = "leave it out: trees always grow level by level from histograms, on the CPU"
_CATEGORICAL = "name numeric columns in categorical; text and category columns are categorical"

# A parameter of the constructor, and the fix that its error gives.
PARAMETERS: Mapping[str, str] = {
    "booster": "leave it out: the model always consists of trees",
    "colsample_bynode": "use colsample_bytree or colsample_bylevel: columns are sampled for each tree or level",
    "device": _ALWAYS_HISTOGRAMS,
    "enable_categorical": _CATEGORICAL,
    "feature_types": _CATEGORICAL,
    "feature_weights": "leave it out: columns are sampled with equal weights",
    "grow_policy": _ALWAYS_HISTOGRAMS,
    "importance_type": "leave it out: feature_importances_ is the share of the total gain; use veilboost inspect",
    "max_leaves": "use max_depth: trees grow level by level",
    "missing": "use missing_values; NaN is always missing",
    "multi_strategy": "leave it out: a round has one tree per class",
    "num_parallel_tree": "leave it out: a round has one tree, or one per class",
    "sampling_method": "use sampling='goss' for sampling by gradient",
    "tree_method": _ALWAYS_HISTOGRAMS,
    "validate_parameters": "leave it out: parameters are always validated",
    "verbosity": "use verbose in fit",
    "loss": "use objective",
    "max_iter": "use n_estimators",
    "max_leaf_nodes": "use max_depth: trees grow level by level",
    "min_samples_leaf": "use min_node_rows or min_child_weight",
    "l2_regularization": "use reg_lambda",
    "max_features": "use colsample_bytree: columns are sampled for each tree",
    "max_bins": "use max_bin",
    "categorical_features": _CATEGORICAL,
    "monotonic_cst": "use monotone_constraints",
    "interaction_cst": "use interaction_constraints; a column in no set interacts with none",
    "early_stopping": "use early_stopping_rounds, and eval_set in fit",
    "scoring": "use eval_metric",
    "validation_fraction": "give fit an eval_set",
    "n_iter_no_change": "use early_stopping_rounds",
    "tol": "leave it out: early stopping counts every improvement",
    "verbose": "give verbose to fit",
    "quantile": "use quantile_alpha, with objective='quantile'",
    # Names that XGBoost takes beside those of its signature.
    "alpha": "use reg_alpha",
    "eta": "use learning_rate",
    "lambda": "use reg_lambda",
    "min_split_loss": "use gamma",
    "nthread": "use n_jobs",
    "num_boost_round": "use n_estimators",
    "num_class": "leave it out: the labels have the number of classes",
    "silent": "leave it out: fit prints nothing unless verbose asks for it",
    "use_label_encoder": "leave it out: labels of any type are encoded",
}

# The values of these parameters that change nothing. None, the default in most of XGBoost, is one everywhere.
SAME: Mapping[str, tuple[Any, ...]] = {
    "booster": ("gbtree",),
    "colsample_bynode": (1,),
    "device": ("cpu",),
    "early_stopping": (False,),
    "enable_categorical": (True, False),
    "grow_policy": ("depthwise",),
    "importance_type": ("total_gain",),
    "max_features": (1,),
    "max_leaves": (0,),
    "multi_strategy": ("one_output_per_tree",),
    "num_parallel_tree": (1,),
    "sampling_method": ("uniform",),
    "tree_method": ("auto", "hist"),
    "use_label_encoder": (False,),
    "validate_parameters": (True,),
    "verbose": (0,),
    "verbosity": (0, 1),
}

# An argument of `fit`, and the fix that its error gives.
FIT_ARGUMENTS: Mapping[str, str] = {
    "sample_weight_eval_set": "leave it out: evaluation sets have no weights",
    "feature_weights": "leave it out: columns are sampled with equal weights",
    "X_val": "use eval_set=(X, y)",
    "y_val": "use eval_set=(X, y)",
    "sample_weight_val": "leave it out: evaluation sets have no weights",
    "eval_metric": "set eval_metric in the constructor",
    "early_stopping_rounds": "set early_stopping_rounds in the constructor",
    "callbacks": "set callbacks in the constructor",
}

# An argument of `predict` or `predict_proba`, and the fix that its error gives.
PREDICT_ARGUMENTS: Mapping[str, str] = {
    "approx_contribs": "use explain, which gives exact contributions",
    "pred_contribs": "use explain",
    "pred_interactions": "use explain, which gives the contributions of single columns",
    "pred_leaf": "use joined_.trees: the leaves of rows are not an output",
    "validate_features": "leave it out: names of columns are always checked",
    "ntree_limit": "use iteration_range",
}

# A method or an attribute, and the fix that its error gives.
ATTRIBUTES: Mapping[str, str] = {
    "best_ntree_limit": "use best_iteration + 1",
    "apply": "use joined_.trees: the leaves of rows are not an output",
    "coef_": "use feature_importances_: the model has no linear part",
    "intercept_": "use joined_.skeleton.base_margin",
    "decision_function": "use predict_proba",
    "do_early_stopping_": "use early_stopping_rounds",
    "get_booster": "use export_xgboost, and load the file with xgboost.Booster",
    "get_num_boosting_rounds": "use n_estimators",
    "get_xgb_params": "use get_params",
    "is_categorical_": "use joined_.columns",
    "load_model": "use load, a class method",
    "n_classes_": "use len(classes_)",
    "n_iter_": "use best_iteration + 1",
    "n_trees_per_iteration_": "use joined_.skeleton.trees_per_round",
    "save_model": "use save, or export_xgboost for a file of XGBoost",
    "staged_decision_function": "use staged_predict_proba",
    "train_score_": "give fit the training rows as one more eval_set, and use evals_result",
    "validation_score_": "use evals_result",
}


def own_parameters(given: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """The parameters without those of other libraries that change nothing. Raises for every other unknown name."""
    names, own = set(known), dict[str, Any]()
    for name, value in given.items():
        if name in names:
            own[name] = value
        elif RENAMED.get(name) in names:
            new = RENAMED[name]
            raise InvalidParameter(f"the parameter {name!r} was renamed to {new!r}", f"use {new}={value!r}")
        elif name not in PARAMETERS:
            close = closest(name, names)
            raise InvalidParameter(
                f"there is no parameter {name!r}",
                "see help(estimator)" if close is None else f"did you mean {close!r}?",
            )
        elif not _changes_nothing(name, value):
            exists = name in SAME or name == "missing"
            what = f"{name}={value!r} is not supported" if exists else f"there is no parameter {name!r}"
            raise InvalidParameter(what, PARAMETERS[name])
    return own


def _changes_nothing(name: str, value: Any) -> bool:
    if name == "missing":
        return value is None or (isinstance(value, float) and math.isnan(value))
    return value is None or (isinstance(value, bool | int | float | str) and value in SAME.get(name, ()))


def with_foreign_names(cls: _Class) -> _Class:
    """A class decorator: the constructor takes names of other libraries, as far as they change nothing."""
    estimator = cast(Any, cls)
    construct: Callable[..., None] = estimator.__init__

    @functools.wraps(construct)
    def checked(self: object, *args: Any, **given: Any) -> None:
        construct(self, *args, **own_parameters(given, estimator._get_param_names()))

    estimator.__init__ = checked
    return cls


def refuse_matrix(X: object) -> None:
    """Raise a coded error for a matrix of XGBoost, which hides its values."""
    name = type(X).__name__
    if name in ("DMatrix", "QuantileDMatrix"):
        raise InvalidParameter(f"X is a {name} of XGBoost", "give the matrix or frame, and the labels")


def refuse_arguments(method: str, given: Iterable[str], fixes: Mapping[str, str]) -> None:
    """Raise a coded error for every other argument of a method."""
    for name in given:
        raise InvalidParameter(
            f"{method} has no argument {name!r}", fixes.get(name, f"leave it out; see help(estimator.{method})")
        )
