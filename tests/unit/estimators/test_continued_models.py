"""Models that are continued, and rows that start from margins of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from xgboost import XGBRegressor

from veilboost import HorizontalClassifier, VerticalClassifier, VerticalRegressor
from veilboost.errors import ForeignColumns, InvalidParameter, RowsDiffer, UnsupportedCombination

pytestmark = pytest.mark.fast
SMALL = {"max_depth": 3, "max_bin": 16}
CASES = {"binary": (VerticalClassifier, load_breast_cancer), "classes": (VerticalClassifier, load_wine)}
CASES["regression"] = (VerticalRegressor, load_diabetes)


def problem(name: str) -> Any:
    estimator, load = CASES[name]
    X, y = load(return_X_y=True)
    return estimator, X[:, :6], y


@pytest.mark.parametrize("protocol", ["plain", "lattice"])
@pytest.mark.parametrize("name", CASES)
def test_two_trainings_give_the_model_of_one(name: str, protocol: str) -> None:
    estimator, X, y = problem(name)
    whole = estimator(n_estimators=5, protocol=protocol, **SMALL).fit(X, y)
    first = estimator(n_estimators=2, protocol=protocol, **SMALL).fit(X, y)
    both = estimator(n_estimators=3, protocol=protocol, **SMALL).fit(X, y, xgb_model=first)
    assert both.model_sha256_ == whole.model_sha256_
    assert np.array_equal(both.predict(X), whole.predict(X))
    assert both.best_iteration == 4
    assert first.best_iteration == 1  # unchanged
    assert both.joined_.skeleton.config.n_estimators == 5


def test_warm_start_counts_all_rounds(tmp_path: Path) -> None:
    estimator, X, y = problem("binary")
    whole = estimator(n_estimators=5, **SMALL).fit(X, y)
    model = estimator(n_estimators=2, warm_start=True, **SMALL).fit(X, y)
    assert model.set_params(n_estimators=5).fit(X, y).model_sha256_ == whole.model_sha256_
    with pytest.raises(InvalidParameter, match="5 rounds already"):
        model.fit(X, y)
    assert clone(model).set_params(warm_start=False, n_estimators=2).fit(X, y).best_iteration == 1


def test_a_saved_model_is_continued_and_saved_again(tmp_path: Path) -> None:
    estimator, X, y = problem("classes")
    whole = estimator(n_estimators=4, **SMALL).fit(X, y)
    estimator(n_estimators=2, **SMALL).fit(X, y).save(tmp_path / "first")
    both = estimator(n_estimators=2, **SMALL).fit(X, y, xgb_model=tmp_path / "first")
    both.save(tmp_path / "both")
    assert estimator.load(tmp_path / "both").model_sha256_ == whole.model_sha256_


def test_evaluation_counts_from_the_first_added_round() -> None:
    estimator, X, y = problem("binary")
    settings = {"eval_metric": ["error", "logloss"], **SMALL}
    sets = [(X[:100], y[:100]), (X[400:], y[400:])]
    first = estimator(n_estimators=3, **settings).fit(X[:400], y[:400], eval_set=sets)
    whole = estimator(n_estimators=7, **settings).fit(X[:400], y[:400], eval_set=sets)
    both = estimator(n_estimators=4, **settings).fit(X[:400], y[:400], eval_set=sets, xgb_model=first)
    for name, metrics in whole.evals_result().items():
        for metric, curve in metrics.items():
            assert both.evals_result()[name][metric] == curve[3:]
    assert both.best_score == whole.best_score


def test_early_stopping_keeps_at_least_the_earlier_rounds() -> None:
    estimator, X, y = problem("binary")
    first = estimator(n_estimators=3, **SMALL).fit(X[:400], y[:400])
    settings = {"n_estimators": 100, "early_stopping_rounds": 2, "learning_rate": 1.0, "eval_metric": "logloss"}
    model = estimator(**settings, **SMALL).fit(X[:400], y[:400], eval_set=(X[400:], y[400:]), xgb_model=first)
    assert 3 <= model.best_iteration < 50
    assert model.best_score == min(model.evals_result()["validation_0"]["logloss"])


# --- categories -------------------------------------------------------------------------------------------


def test_categories_keep_the_codes_of_the_earlier_model() -> None:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    color = rng.choice(["red", "green", "blue"], 300)
    X = pandas.DataFrame({"number": rng.normal(size=300), "color": color})
    y = (color == "green") ^ (rng.random(300) < 0.1)
    first = VerticalClassifier(n_estimators=2, **SMALL).fit(X, y)
    fewer = X[X["color"] != "red"]
    both = VerticalClassifier(n_estimators=2, **SMALL).fit(fewer, y[fewer.index], xgb_model=first)
    assert both.joined_.columns == first.joined_.columns
    assert np.array_equal(list(both.staged_predict_proba(X))[1], first.predict_proba(X))
    with pytest.raises(ForeignColumns, match="1 categories that are not in"):
        VerticalClassifier(**SMALL).fit(X.replace({"color": {"red": "pink"}}), y, xgb_model=first)


# --- refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"protocol": "lattice"}, UnsupportedCombination),
        ({"parties": 3}, ForeignColumns),
        ({"parties": {"p": [0, 1, 2], "q": [3, 4, 5]}}, ForeignColumns),
        ({"parties": {"active": [1, 0, 2], "passive1": [3, 4, 5]}}, ForeignColumns),
    ],
)
def test_another_training_is_no_continuation(changes: Any, error: type[Exception]) -> None:
    estimator, X, y = problem("binary")
    first = estimator(n_estimators=1, **SMALL).fit(X, y)
    with pytest.raises(error):
        estimator(**SMALL, **changes).fit(X, y, xgb_model=first)


def test_another_loss_is_no_continuation() -> None:
    _, X, y = problem("regression")
    first = VerticalRegressor(n_estimators=1, objective="quantile", quantile_alpha=0.2, **SMALL).fit(X, y)
    for changes in ({"objective": "regression"}, {"objective": "quantile", "quantile_alpha": 0.3}):
        with pytest.raises(UnsupportedCombination):
            VerticalRegressor(**SMALL, **changes).fit(X, y, xgb_model=first)


def test_what_is_no_fitted_model_is_refused() -> None:
    _, X, y = problem("binary")
    for given in (VerticalRegressor(), 7):
        with pytest.raises(InvalidParameter, match="xgb_model"):
            VerticalClassifier(**SMALL).fit(X, y, xgb_model=given)
    with pytest.raises(ValueError, match="not fitted"):
        VerticalClassifier(**SMALL).fit(X, y, xgb_model=VerticalClassifier())


@pytest.mark.parametrize(
    "settings",
    [
        {"protocol": "sealed", "objective": "binary"},
        {
            "protocol": "ldp",
            "min_child_weight": 0,
            "base_score": 0.5,
            "options": {"private_leaves": True},
        },
    ],
    ids=lambda each: each["protocol"],
)
def test_protocols_with_claims_about_labels_start_from_nothing(settings: Any) -> None:
    _, X, y = problem("binary")
    first = VerticalClassifier(n_estimators=1, **SMALL).fit(X, y)
    for given in ({"base_margin": np.zeros(len(y))}, {"xgb_model": first}):
        with pytest.raises(UnsupportedCombination, match="claim about labels"):
            VerticalClassifier(n_estimators=1, **settings).fit(X, y, **given)


def test_horizontal_rows_start_from_one_number() -> None:
    _, X, y = problem("binary")
    model = HorizontalClassifier(participants=2, n_estimators=1, warm_start=True, **SMALL).fit(X, y)
    for given in ({"base_margin": np.zeros(len(y))}, {}):
        with pytest.raises(UnsupportedCombination, match="horizontal"):
            model.set_params(n_estimators=2).fit(X, y, **given)


# --- base_margin ------------------------------------------------------------------------------------------


def test_the_margins_of_a_model_start_the_trees_that_continue_it() -> None:
    estimator, X, y = problem("binary")
    first = estimator(n_estimators=2, **SMALL).fit(X, y)
    margins = list(first._staged_margins(X))[-1][0]
    continued = estimator(n_estimators=3, **SMALL).fit(X, y, xgb_model=first)
    started = estimator(n_estimators=3, **SMALL).fit(X, y, base_margin=margins)
    ours = [tree.weight.tolist() for tree in started.joined_.trees]
    assert ours == [tree.weight.tolist() for tree in continued.joined_.trees[2:]]
    assert (started.joined_.skeleton.base_margin == 0).all()
    np.testing.assert_allclose(
        started.predict_proba(X, base_margin=margins), continued.predict_proba(X), rtol=0, atol=1e-12
    )


def test_base_margins_work_as_in_xgboost() -> None:
    _, X, y = problem("regression")
    start = np.random.default_rng(1).normal(150, 30, len(y))
    settings = {"n_estimators": 3, "max_depth": 3, "learning_rate": 0.5, "max_bin": 400}
    ours = VerticalRegressor(gradient_bits=30, **settings).fit(X, y, base_margin=start)
    theirs = XGBRegressor(**settings).fit(X, y, base_margin=start)
    np.testing.assert_allclose(
        ours.predict(X, base_margin=start), theirs.predict(X, base_margin=start), rtol=1e-3, atol=0.5
    )


def test_margins_of_evaluation_sets_and_of_dropped_rows() -> None:
    """Rows of weight 0 are dropped with their margins; evaluation rows start from theirs."""
    _, X, y = problem("regression")
    start, weight = np.linspace(0, 300, len(y)), np.arange(len(y)) % 3 > 0
    metrics = {"eval_metric": ["mae", "rmse"]}
    half = VerticalRegressor(n_estimators=2, **metrics, **SMALL)
    sets = {"eval_set": [(X, y), (X[:50], y[:50])], "base_margin_eval_set": [start, start[:50]]}
    half.fit(X, y, sample_weight=weight.astype(float), base_margin=start, **sets)
    same = VerticalRegressor(n_estimators=2, **SMALL).fit(X[weight], y[weight], base_margin=start[weight])
    assert half.model_sha256_ == same.model_sha256_
    for name, rows in (("validation_0", len(y)), ("validation_1", 50)):
        error = half.predict(X[:rows], base_margin=start[:rows]) - y[:rows]
        curves = half.evals_result()[name]
        np.testing.assert_allclose(curves["rmse"][-1], np.sqrt(np.mean(error**2)), rtol=1e-9)
        np.testing.assert_allclose(curves["mae"][-1], np.mean(np.abs(error)), rtol=1e-9)


@pytest.mark.parametrize("shape", [(10,), (178, 2), (178, 3, 1), ()])
def test_margins_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    estimator, X, y = problem("classes")
    with pytest.raises(RowsDiffer):
        estimator(n_estimators=1, **SMALL).fit(X, y, base_margin=np.zeros(shape))
    model = estimator(n_estimators=1, **SMALL).fit(X, y)
    with pytest.raises(RowsDiffer):
        model.predict(X, base_margin=np.zeros(shape))


def test_missing_margins_are_refused() -> None:
    estimator, X, y = problem("binary")
    with pytest.raises(InvalidParameter, match="infinite"):
        estimator(n_estimators=1, **SMALL).fit(X, y, base_margin=np.full(len(y), np.nan))


def test_a_share_of_the_first_trees_is_that_of_a_shorter_training() -> None:
    estimator, X, y = problem("binary")
    short, long = (estimator(n_estimators=count, **SMALL).fit(X, y) for count in (2, 5))
    for name, share in long.shares_.items():
        assert share.first(2).records.rules() == short.shares_[name].records.rules()


# --- the number of rounds ---------------------------------------------------------------------------------


def test_rounds_are_as_many_as_were_asked_for() -> None:
    estimator, X, y = problem("binary")
    assert estimator(max_depth=1, max_bin=4).fit(X, y).best_iteration == 99
    with pytest.raises(UnsupportedCombination, match="n_estimators is auto"):
        estimator(n_estimators="auto").fit(X, y)
    with pytest.raises(InvalidParameter, match="n_estimators"):
        estimator(n_estimators="many").fit(X, y)
    sealed = {"protocol": "sealed", "objective": "binary", "max_depth": 1, "max_bin": 4, "options": {"eps": 1.0}}
    for asked, rounds in ((None, 10), ("auto", 10), (12, 12)):
        assert estimator(n_estimators=asked, **sealed).fit(X, y).best_iteration == rounds - 1
