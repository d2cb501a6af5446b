"""What scripts for XGBoost and scikit-learn hold, with the import changed: each line works, or its error says what to
use instead."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
import xgboost
from scipy import sparse
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.experimental import enable_halving_search_cv  # noqa: F401 - makes HalvingGridSearchCV importable
from sklearn.feature_selection import RFE, SelectFromModel
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.metrics import mean_absolute_error, mean_absolute_percentage_error
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    RandomizedSearchCV,
    cross_val_predict,
    cross_validate,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import veilboost
from veilboost import VerticalClassifier as XGBClassifier
from veilboost import VerticalRegressor as XGBRegressor
from veilboost.data.report import DataWarning

pytestmark = pytest.mark.fast

RNG = np.random.default_rng(1)
X = RNG.normal(size=(60, 4)).astype(np.float32)
Y = (X[:, 0] + X[:, 1] > 0).astype(int)
AMOUNT = np.exp(X[:, 0]) + 0.1
KIND = np.arange(60) % 3
TEXT = np.array(["no", "yes"])[Y]
FRAME = pd.DataFrame(X.astype(float), columns=list("abcd"))
FEW: dict[str, Any] = {"n_estimators": 2, "max_depth": 2}


def two(**given: Any) -> XGBClassifier:
    return XGBClassifier(**FEW | given)


def number(**given: Any) -> XGBRegressor:
    return XGBRegressor(**FEW | given)


def with_column(values: Any) -> pd.DataFrame:
    return FRAME.assign(new=values)


def fits(frame: Any) -> Any:
    return two().fit(frame, Y).predict(frame)


def logistic(y_true: Any, y_pred: Any) -> Any:
    p = 1 / (1 + np.exp(-y_pred))
    return p - y_true, p * (1 - p)


def squared(y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
    return y_pred - y_true, np.ones_like(y_true)


def native(predt: Any, dtrain: Any) -> Any:
    return predt - dtrain.get_label(), np.ones_like(predt)


def named_value(y_true: Any, y_pred: Any) -> Any:
    return "mine", 1.0


def routed() -> Any:
    with sklearn.config_context(enable_metadata_routing=True):
        model = two().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        return cross_validate(model, X, Y, params={"sample_weight": np.ones(60)}, cv=2)


def dumped(folder: Any) -> Any:
    joblib.dump(two().fit(X, Y), folder / "model.joblib")
    return joblib.load(folder / "model.joblib").predict(X)


def callbacks() -> Any:
    every = xgboost.callback
    given = [
        every.EarlyStopping(rounds=2, save_best=True),
        every.LearningRateScheduler(lambda n: 0.3 * 0.9**n),
        every.EvaluationMonitor(),
    ]
    return two(callbacks=given).fit(X, Y, eval_set=[(X, Y)])


WORKS: dict[str, Callable[..., Any]] = {
    # Parameters.
    "usual parameters": lambda: XGBClassifier(
        n_estimators=2,
        max_depth=3,
        learning_rate=0.1,
        subsample=0.8,
        colsample_bytree=0.8,
        gamma=1,
        reg_alpha=0.1,
        reg_lambda=1,
        min_child_weight=2,
        n_jobs=-1,
        random_state=42,
        verbosity=0,
        tree_method="hist",
        device="cpu",
        booster="gbtree",
        use_label_encoder=False,
        max_leaves=0,
        grow_policy="depthwise",
        max_bin=256,
        missing=np.nan,
    ).fit(X, Y),
    "get_params of XGBClassifier": lambda: XGBClassifier(**xgboost.XGBClassifier(**FEW).get_params()).fit(X, Y),
    "get_params of XGBRegressor": lambda: XGBRegressor(**xgboost.XGBRegressor(**FEW).get_params()).fit(X, Y),
    "NumPy's numbers": lambda: two(max_depth=np.int64(2), learning_rate=np.float32(0.1)).fit(X, Y),
    "random_state=None": lambda: two(random_state=None).fit(X, Y),
    "eval_metric=None": lambda: two(eval_metric=None).fit(X, Y, eval_set=[(X, Y)]),
    "colsample_bylevel": lambda: two(colsample_bylevel=0.5).fit(X, Y),
    "base_score": lambda: two(base_score=0.5).fit(X, Y),
    "scale_pos_weight": lambda: two(scale_pos_weight=(Y == 0).sum() / Y.sum()).fit(X, Y),
    "class_weight": lambda: two(class_weight="balanced").fit(X, Y),
    "monotone by name": lambda: two(monotone_constraints={"a": 1, "b": -1}).fit(FRAME, Y),
    "monotone by place": lambda: two(monotone_constraints=(1, -1, 0, 0)).fit(X, Y),
    "interactions by name": lambda: two(interaction_constraints=[["a", "b"], ["c", "d"]]).fit(FRAME, Y),
    # Objectives and metrics.
    "binary:logistic": lambda: two(objective="binary:logistic", eval_metric="logloss").fit(X, Y),
    "multi:softprob": lambda: two(objective="multi:softprob").fit(X, KIND).predict_proba(X),
    "multi:softmax": lambda: two(objective="multi:softmax").fit(X, KIND).predict(X),
    "reg:quantileerror": lambda: number(objective="reg:quantileerror", quantile_alpha=0.9).fit(X, AMOUNT),
    "reg:absoluteerror": lambda: number(objective="reg:absoluteerror").fit(X, AMOUNT),
    "reg:pseudohubererror": lambda: number(objective="reg:pseudohubererror", huber_slope=2.0).fit(X, AMOUNT),
    "count:poisson": lambda: number(objective="count:poisson", max_delta_step=0.7).fit(X, AMOUNT),
    "reg:tweedie": lambda: number(objective="reg:tweedie", tweedie_variance_power=1.3).fit(X, AMOUNT),
    "gamma-deviance": lambda: number(objective="reg:gamma", eval_metric="gamma-deviance").fit(
        X, AMOUNT, eval_set=[(X, AMOUNT)]
    ),
    "custom objective": lambda: two(objective=logistic).fit(X, Y).predict_proba(X),
    "custom objective with weights": lambda: number(objective=squared).fit(X, AMOUNT, sample_weight=np.ones(60)),
    "metric of scikit-learn": lambda: number(eval_metric=mean_absolute_error).fit(X, AMOUNT, eval_set=[(X, AMOUNT)]),
    # Arguments of fit.
    "several sets": lambda: (
        XGBClassifier(n_estimators=5, eval_metric=["error", "logloss"], early_stopping_rounds=2)
        .fit(X, Y, eval_set=[(X[:30], Y[:30]), (X[30:], Y[30:])], verbose=False)
        .best_score
    ),
    "a tuple of sets": lambda: two().fit(X, Y, eval_set=((X, Y), (X, Y))).evals_result()["validation_1"],
    "verbose=None": lambda: two().fit(X, Y, sample_weight=None, eval_set=None, verbose=None),
    "text labels": lambda: two().fit(X, TEXT, eval_set=[(X, TEXT)]).predict(X),
    "base_margin": lambda: two().fit(X, Y, base_margin=np.zeros(60)).predict_proba(X, base_margin=np.zeros(60)),
    "xgb_model": lambda: two().fit(X, Y, xgb_model=two().fit(X, Y)),
    "warm_start": lambda: two(warm_start=True).fit(X, Y).set_params(n_estimators=4).fit(X, Y),
    "XGBoost's callbacks": callbacks,
    # Labels.
    "bool": lambda: two().fit(X, Y.astype(bool)).predict(X),
    "2 and 5": lambda: two().fit(X, np.where(Y, 5, 2)).predict(X),
    "series with another index": lambda: two().fit(FRAME, pd.Series(Y, index=FRAME.index[::-1])),
    "category labels": lambda: two().fit(FRAME, pd.Series(TEXT).astype("category")).predict(FRAME),
    "nullable labels": lambda: two().fit(FRAME, pd.Series(Y).astype("Int64")),
    "string labels": lambda: two().fit(FRAME, pd.Series(TEXT).astype("string")),
    "Float64 labels": lambda: number().fit(X, pd.Series(AMOUNT).astype("Float64")),
    # Data.
    "lists": lambda: two().fit(X.tolist(), Y.tolist()).predict(X.tolist()),
    "bool matrix": lambda: two().fit(X > 0, Y).predict(X > 0),
    "one column": lambda: number().fit(X[:, :1], AMOUNT).predict(X[:, :1]),
    "one row": lambda: number().fit(X[:1], AMOUNT[:1]).predict(X),
    "more columns than rows": lambda: number().fit(RNG.normal(size=(20, 500)), AMOUNT[:20]),
    "category": lambda: fits(with_column(pd.Categorical(TEXT))),
    "text": lambda: fits(with_column(TEXT)),
    "sparse column": lambda: fits(pd.get_dummies(with_column(TEXT), sparse=True)),
    "one missing value": lambda: two(missing_values=-999).fit(X, Y).predict(X),
    "missing_values=None": lambda: two(missing_values=None, categorical=None).fit(X, Y).predict(X),
    "Int64": lambda: fits(with_column(pd.array([1, None] * 30, dtype="Int64"))),
    "boolean": lambda: fits(with_column(pd.array([True, None] * 30, dtype="boolean"))),
    "decimal": lambda: fits(with_column([Decimal(at) / 7 for at in range(60)])),
    "Arrow types": lambda: fits(FRAME.convert_dtypes(dtype_backend="pyarrow")),
    "polars": lambda: two().fit(pl.DataFrame(dict(FRAME)), pl.Series(Y)).predict(pl.DataFrame(dict(FRAME))),
    "pyarrow": lambda: fits(pa.table(dict(FRAME))),
    "odd names": lambda: fits(FRAME.set_axis(["a[1]", "a<2", "c d", "é"], axis=1)),
    "names of two levels": lambda: fits(FRAME.set_axis(pd.MultiIndex.from_product([["x", "y"], ["a", "b"]]), axis=1)),
    "a constant and a missing value": lambda: fits(FRAME.assign(a=1.0, b=FRAME["b"].where(FRAME["b"] > 0))),
    "a new category": lambda: two().fit(with_column(TEXT), Y).predict(with_column("other")),
    "a column without values": lambda: two().fit(with_column(TEXT), Y).predict(with_column(None)),
    # Predictions and attributes.
    "output_margin": lambda: two().fit(X, Y).predict(X, output_margin=True),
    "iteration_range": lambda: two().fit(X, Y).predict_proba(X, iteration_range=(0, 1)),
    "staged": lambda: list(two().fit(X, Y).staged_predict_proba(X)),
    "attributes": lambda: [
        getattr(two().fit(FRAME, Y), name)
        for name in ("feature_importances_", "n_features_in_", "feature_names_in_", "classes_", "best_iteration")
    ],
    # Ecosystem.
    "clone": lambda: clone(two(random_state=None)).get_params(),
    "pickle": lambda: pickle.loads(pickle.dumps(two().fit(X, Y))).predict(X),  # noqa: S301
    "deepcopy": lambda: copy.deepcopy(two().fit(X, Y)).predict(X),
    "repr": lambda: repr(two().fit(X, Y)) + two()._repr_html_(),
    "metadata routing": routed,
    "set_output": lambda: make_pipeline(StandardScaler().set_output(transform="pandas"), two()).fit(FRAME, Y),
    "set_params of a pipeline": lambda: make_pipeline(two()).set_params(verticalclassifier__max_depth=3).fit(X, Y),
    "grid search": lambda: GridSearchCV(two(), {"max_depth": [1, 2]}, cv=2).fit(X, Y),
    "random search": lambda: RandomizedSearchCV(two(), {"learning_rate": [0.1, 0.2]}, n_iter=1, cv=2).fit(X, Y),
    "halving search": lambda: HalvingGridSearchCV(
        two(), {"max_depth": [1, 2]}, resource="n_estimators", min_resources=1, max_resources=2, cv=2
    ).fit(X, Y),
    "cross_val_predict": lambda: cross_val_predict(two(), X, TEXT, cv=2, method="predict_proba"),
    "ensembles": lambda: [
        VotingClassifier([("one", two()), ("other", two(max_depth=1))], voting="soft").fit(X, Y),
        StackingClassifier([("one", two())], cv=2).fit(X, Y),
        BaggingClassifier(two(), n_estimators=2).fit(X, Y),
        CalibratedClassifierCV(two(), cv=2).fit(X, Y),
        OneVsRestClassifier(two()).fit(X, KIND),
        MultiOutputRegressor(number()).fit(X, np.c_[AMOUNT, AMOUNT]),
    ],
    "inspection": lambda: [
        permutation_importance(two().fit(FRAME, Y), FRAME, Y, n_repeats=1),
        partial_dependence(two().fit(FRAME, Y), FRAME, ["a"], grid_resolution=3),
    ],
    "feature selection": lambda: [SelectFromModel(two()).fit(X, Y), RFE(two(), n_features_to_select=2).fit(X, Y)],
}

# What does not work, with the words of the error that say what to use.
REFUSED: dict[str, tuple[str, Callable[..., Any]]] = {
    # Parameters.
    "device": ("VB-1002: device='cuda' is not supported; .*on the CPU", lambda: two(device="cuda")),
    "tree_method": ("VB-1002: tree_method='exact'.*histograms", lambda: two(tree_method="exact")),
    "booster": ("VB-1002.*always consists of trees", lambda: two(booster="dart")),
    "grow_policy": ("VB-1002.*level by level", lambda: two(grow_policy="lossguide")),
    "max_leaves": ("VB-1002.*use max_depth", lambda: two(max_leaves=31)),
    "colsample_bynode": ("VB-1002.*use colsample_bytree", lambda: two(colsample_bynode=0.5)),
    "importance_type": ("VB-1002.*total gain", lambda: two(importance_type="gain")),
    "missing": ("VB-1002.*use missing_values", lambda: two(missing=-999)),
    "feature_types": ("VB-1002.*categorical", lambda: two(feature_types=["q"] * 4)),
    "num_class": ("VB-1002.*labels have the number of classes", lambda: two(num_class=3)),
    "eta": ("VB-1002.*use learning_rate", lambda: two(eta=0.1)),
    "seed": ("VB-1002.*use random_state=3", lambda: two(seed=3)),
    "misspelt": ("VB-1002.*did you mean 'learning_rate'", lambda: two(learning_rat=0.1)),
    "generator": ("VB-1002.*whole number", lambda: two(random_state=np.random.RandomState(0)).fit(X, Y)),
    "max_depth=0": (r"VB-1002.*\[1, 16\]", lambda: two(max_depth=0).fit(X, Y)),
    "n_estimators=5.5": ("VB-1002.*whole number", lambda: two(n_estimators=5.5).fit(X, Y)),
    "n_jobs=0": ("VB-1002.*n_jobs", lambda: two(n_jobs=0).fit(X, Y)),
    "monotone as text": ("VB-1002.*mapping", lambda: two(monotone_constraints="(1,0,0,0)").fit(X, Y)),
    "interactions as text": ("VB-1002.*list of lists", lambda: two(interaction_constraints="[[0, 1]]").fit(X, Y)),
    "misspelt constraint": ("VB-1112", lambda: two(monotone_constraints={"aa": 1}).fit(FRAME, Y)),
    "misspelt categorical": ("VB-1112", lambda: two(categorical=["aa"]).fit(FRAME, Y)),
    # Objectives and metrics.
    "rank:pairwise": ("VB-1002.*set objective to", lambda: two(objective="rank:pairwise").fit(X, Y)),
    "binary with 3 classes": ("VB-1106.*multiclass", lambda: two(objective="binary:logistic").fit(X, KIND)),
    "several quantiles": ("VB-1002.*to a number", lambda: number(quantile_alpha=[0.1, 0.9]).fit(X, AMOUNT)),
    "gamma with negative labels": ("VB-1106.*above 0", lambda: number(objective="reg:gamma").fit(X, -AMOUNT)),
    "objective of xgboost.train": ("VB-1002.*labels are the first", lambda: number(objective=native).fit(X, AMOUNT)),
    "objective without a result": ("VB-1002.*return", lambda: number(objective=lambda y, p: None).fit(X, AMOUNT)),
    "mape": (
        "VB-1002.*give a function",
        lambda: number(eval_metric="mape").fit(X, AMOUNT, eval_set=[(X, AMOUNT)]),
    ),
    "error@0.7": ("VB-1002.*give a function", lambda: two(eval_metric="error@0.7").fit(X, Y, eval_set=[(X, Y)])),
    "metric with a name": (
        "VB-1002: the metric named_value did not return a number",
        lambda: two(eval_metric=named_value).fit(X, Y, eval_set=[(X, Y)]),
    ),
    # Arguments of fit.
    "early_stopping_rounds of fit": ("VB-1002.*constructor", lambda: two().fit(X, Y, early_stopping_rounds=5)),
    "eval_metric of fit": ("VB-1002.*constructor", lambda: two().fit(X, Y, eval_metric="auc")),
    "sample_weight_eval_set": ("VB-1002.*no weights", lambda: two().fit(X, Y, sample_weight_eval_set=[np.ones(60)])),
    "early stopping without rows": ("VB-1004.*eval_set", lambda: two(early_stopping_rounds=2).fit(X, Y)),
    "unknown class in eval_set": ("VB-1106.*classes", lambda: two().fit(X, Y, eval_set=[(X, Y + 5)])),
    "negative weights": ("VB-1002.*zero or more", lambda: two().fit(X, Y, sample_weight=-np.ones(60))),
    "too few weights": ("VB-1202", lambda: two().fit(X, Y, sample_weight=np.ones(5))),
    "a file as xgb_model": ("VB-1301", lambda: two().fit(X, Y, xgb_model="model.json")),
    # Data.
    "DMatrix": ("VB-1002: X is a DMatrix.*and the labels", lambda: two().fit(xgboost.DMatrix(X, Y))),
    "DMatrix of predict": ("VB-1002: X is a DMatrix", lambda: two().fit(X, Y).predict(xgboost.DMatrix(X))),
    "sparse": ("toarray", lambda: two().fit(sparse.csr_matrix(X), Y)),
    "two columns of one name": ("VB-1115.*columns 1 and 2", lambda: two().fit(FRAME.set_axis(list("aacd"), axis=1), Y)),
    "the same in a party's table": (
        "VB-1115.*columns 1 and 2",
        lambda: two().fit({"bank": FRAME.assign(y=Y).set_axis(list("aacdy"), axis=1)}, "y"),
    ),
    "lists in a column": ("VB-1109.*one number or one text", lambda: fits(with_column([[1, 2]] * 60))),
    "mixed": ("VB-1109.*convert", lambda: fits(with_column([1, "a"] * 30))),
    "infinite": ("VB-1110.*finite", lambda: two().fit(np.where(X[:, :1] > 1, np.inf, X[:, :1]), Y)),
    "one class": ("VB-1106.*two classes", lambda: two().fit(X, np.zeros(60))),
    "numbers as classes": ("VB-1106.*VerticalRegressor", lambda: two().fit(X, AMOUNT)),
    "text as numbers": ("VB-1106.*VerticalClassifier", lambda: number().fit(X, TEXT)),
    "NaN among labels": ("contains NaN", lambda: two().fit(X, np.where(Y, np.nan, 0.0))),
    "other columns": ("feature names should match", lambda: two().fit(FRAME, Y).predict(FRAME[list("dcba")])),
    "a horizontal protocol": ("VB-1001.*use HorizontalClassifier", lambda: two(protocol="secagg").fit(X, Y)),
    "a vertical protocol": (
        "VB-1001.*use VerticalRegressor",
        lambda: veilboost.HorizontalRegressor(protocol="lattice").fit(X, AMOUNT),
    ),
    "misspelt protocol": ("VB-1001.*did you mean 'lattice'", lambda: two(protocol="latice").fit(X, Y)),
    # Predictions, attributes and functions.
    "not fitted": ("not fitted", lambda: two().predict(X)),
    "pred_contribs": ("VB-1002.*use explain", lambda: two().fit(X, Y).predict(X, pred_contribs=True)),
    "ntree_limit": ("VB-1002.*iteration_range", lambda: two().fit(X, Y).predict(X, ntree_limit=1)),
    "best_ntree_limit": ("VB-1002.*best_iteration", lambda: two().fit(X, Y).best_ntree_limit),
    "apply": ("VB-1002.*joined_", lambda: two().fit(X, Y).apply(X)),
    "get_booster": ("VB-1002.*export_xgboost", lambda: two().fit(X, Y).get_booster()),
    "save_model": ("VB-1002.*use save", lambda: two().fit(X, Y).save_model("model.json")),
    "xgb.train": ("use fit of an estimator", lambda: veilboost.train),
    "xgb.cv": ("cross_validate", lambda: veilboost.cv),
    "xgb.DMatrix": ("to fit of an estimator", lambda: veilboost.DMatrix),
    "xgb.XGBClassifier": ("use VerticalClassifier", lambda: veilboost.XGBClassifier),
}


@pytest.mark.parametrize("line", WORKS.values(), ids=WORKS)
def test_it_works(line: Callable[..., Any]) -> None:
    assert line() is not None


@pytest.mark.parametrize(("words", "line"), REFUSED.values(), ids=REFUSED)
def test_its_error_says_what_to_use(words: str, line: Callable[..., Any]) -> None:
    with pytest.raises((veilboost.VeilBoostError, ValueError, TypeError, AttributeError, NotFittedError), match=words):
        line()


def test_joblib(tmp_path: Any) -> None:
    np.testing.assert_array_equal(dumped(tmp_path), two().fit(X, Y).predict(X))


def test_dates_become_days_with_a_note() -> None:
    with pytest.warns(DataWarning, match="'new' holds dates"):
        fits(with_column(pd.date_range("2020-01-01", periods=60)))


def test_parameters_of_xgboost_move_as_a_dictionary() -> None:
    """`get_params` of XGBoost gives None for everything that was not set."""
    moved = XGBClassifier(**xgboost.XGBClassifier(**FEW).get_params()).fit(X, Y)
    assert moved.model_sha256_ == two().fit(X, Y).model_sha256_


def test_metrics_have_the_parameter_of_their_loss() -> None:
    """Also on sets and at positions where training does not measure them."""
    for name, given in {
        "quantile": {"objective": "quantile", "quantile_alpha": 0.9},
        "mphe": {"objective": "pseudo_huber", "huber_slope": 0.2},
        "tweedie_deviance": {"objective": "tweedie", "tweedie_variance_power": 1.1},
    }.items():
        model = number(**given, eval_metric=[name, name]).fit(X, AMOUNT, eval_set=[(X, AMOUNT), (X, AMOUNT)])
        curves = model.evals_result()
        assert curves["validation_0"][name] == pytest.approx(curves["validation_1"][name]), name


def test_gamma_deviance_is_xgboosts() -> None:
    given: dict[str, Any] = {"objective": "reg:gamma", "eval_metric": "gamma-deviance", "max_bin": 64} | FEW
    curves = [
        model.fit(X, AMOUNT, eval_set=[(X, AMOUNT)], verbose=False).evals_result()["validation_0"]
        for model in (XGBRegressor(**given, gradient_bits=24), xgboost.XGBRegressor(**given))
    ]
    assert curves[0]["gamma_deviance"] == pytest.approx(curves[1]["gamma-deviance"], rel=1e-4)


def test_a_missing_metric_can_be_a_function() -> None:
    model = number(eval_metric=mean_absolute_percentage_error).fit(X, AMOUNT, eval_set=[(X, AMOUNT)])
    (curve,) = model.evals_result()["validation_0"].values()
    assert curve == pytest.approx([mean_absolute_percentage_error(AMOUNT, p) for p in model.staged_predict(X)])
