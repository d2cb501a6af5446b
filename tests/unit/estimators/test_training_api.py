"""Evaluation sets, metrics, class weights and staged predictions, under XGBoost's and scikit-learn's names."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import log_loss, mean_absolute_error, roc_auc_score
from xgboost import XGBClassifier

from veilboost import HorizontalClassifier, VerticalClassifier, VerticalRegressor
from veilboost.errors import InvalidParameter, UnsupportedCombination

pytestmark = pytest.mark.fast

COLUMNS = ["age", "income", "branch", "basket", "visits"]


@pytest.fixture
def parts(people: pd.DataFrame) -> list[tuple[pd.DataFrame, pd.Series]]:
    """Training rows and two evaluation sets, with labels that are text."""
    labels = people["late"].map({0: "no", 1: "yes"})
    return [(people[COLUMNS].iloc[part], labels.iloc[part]) for part in (slice(140), slice(140, 190), slice(190, None))]


def both(y: Any, p: Any) -> float:
    """A metric of its own."""
    return float(((p > 0.5) != y).sum())


def test_several_sets_and_metrics(parts: Any) -> None:
    (X, y), *sets = parts
    model = VerticalClassifier(n_estimators=12, eval_metric=["logloss", both, "auc"]).fit(X, y, eval_set=sets)
    curves = model.evals_result()
    assert {name: list(found) for name, found in curves.items()} == {
        "validation_0": ["logloss", "both", "auc"],
        "validation_1": ["logloss", "both", "auc"],
    }
    for (rows, labels), found in zip(sets, curves.values(), strict=True):
        probabilities = list(model.staged_predict_proba(rows))
        truth = labels == "yes"
        assert found["logloss"] == pytest.approx([log_loss(truth, p) for p in probabilities])
        assert found["auc"] == pytest.approx([roc_auc_score(truth, p[:, 1]) for p in probabilities])
        assert found["both"] == [both(truth, p[:, 1]) for p in probabilities]
    assert model.best_score == curves["validation_1"]["auc"][-1]
    assert model.best_iteration == model.best_iteration_ == 11


def test_early_stopping_uses_the_last_set_and_metric(parts: Any) -> None:
    (X, y), first, last = parts
    settings: dict[str, Any] = {"n_estimators": 60, "learning_rate": 0.6, "early_stopping_rounds": 3}
    model = VerticalClassifier(**settings, eval_metric=["auc", "logloss"]).fit(X, y, eval_set=[first, last])
    alone = VerticalClassifier(**settings, eval_metric="logloss").fit(X, y, eval_set=last)
    assert model.model_sha256_ == alone.model_sha256_
    curves = model.evals_result()
    assert curves["validation_1"]["logloss"] == alone.evals_result()["validation_0"]["logloss"]
    assert len(curves["validation_1"]["logloss"]) == model.best_iteration + 4
    assert len(curves["validation_0"]["logloss"]) == model.best_iteration + 1  # the final model's rounds
    assert model.best_score == min(curves["validation_1"]["logloss"])
    with pytest.raises(UnsupportedCombination, match="function"):
        VerticalClassifier(**settings, eval_metric=both).fit(X, y, eval_set=[last])


@pytest.mark.parametrize("given", ["X", [["X", "y"]], [("X", "y", 1)], ("X",)])
def test_a_wrong_eval_set_is_refused(parts: Any, given: Any) -> None:
    with pytest.raises(InvalidParameter, match="eval_set"):
        VerticalClassifier().fit(*parts[0], eval_set=given)
    with pytest.raises(InvalidParameter, match="eval_metric"):
        VerticalClassifier(eval_metric=[]).fit(*parts[0], eval_set=parts[1])


def test_curves_of_a_multiclass_a_regression_and_a_horizontal_model(people: pd.DataFrame) -> None:
    X = people[COLUMNS]
    many = VerticalClassifier(n_estimators=3, eval_metric=["merror", "mlogloss"])
    many.fit(X, people["branch"], eval_set=[(X, people["branch"])])
    staged = list(many.staged_predict(X))
    assert len(staged) == 3
    assert many.evals_result()["validation_0"]["merror"] == pytest.approx(
        [np.mean(p != people["branch"]) for p in staged]
    )
    number = VerticalRegressor(n_estimators=3, eval_metric=[mean_absolute_error, "rmse"])
    number.fit(X, people["value"], eval_set=(X, people["value"]))
    errors = [mean_absolute_error(people["value"], p) for p in number.staged_predict(X)]
    assert number.evals_result()["validation_0"]["mean_absolute_error"] == pytest.approx(errors)
    rows = HorizontalClassifier(participants=2, n_estimators=3, eval_metric=["auc", "logloss"])
    rows.fit(X, people["late"], eval_set=[(X.iloc[:90], people["late"].iloc[:90]), (X, people["late"])])
    expected = [roc_auc_score(people["late"], p[:, 1]) for p in rows.staged_predict_proba(X)]
    assert rows.evals_result()["validation_1"]["auc"] == pytest.approx(expected)
    np.testing.assert_array_equal(list(rows.staged_predict_proba(X))[-1], rows.predict_proba(X))


def test_predictions_of_the_first_rounds_and_margins(people: pd.DataFrame) -> None:
    X = people[COLUMNS]
    two = VerticalClassifier(n_estimators=5).fit(X, people["late"])
    staged = list(two.staged_predict_proba(X))
    np.testing.assert_array_equal(two.predict_proba(X, iteration_range=(0, 2)), staged[1])
    np.testing.assert_array_equal(two.predict(X, iteration_range=(0, 1)), staged[0].argmax(axis=1))
    for every in (None, (0, 0), (0, two.best_iteration + 1)):
        np.testing.assert_array_equal(two.predict_proba(X, iteration_range=every), staged[-1])
    margin = two.predict(X, output_margin=True)
    np.testing.assert_allclose(1 / (1 + np.exp(-margin)), staged[-1][:, 1])
    start = np.full(len(X), 0.7)
    base = two.joined_.skeleton.base_margin[0]
    np.testing.assert_allclose(two.predict(X, output_margin=True, base_margin=start), margin - base + 0.7)
    for wrong in ((0, 6), (1, 3), (2, 1), (0, -1)):
        with pytest.raises(InvalidParameter, match="iteration_range"):
            two.predict(X, iteration_range=wrong)
    many = HorizontalClassifier(participants=2, n_estimators=3).fit(X.drop(columns="branch"), people["branch"])
    margins = many.predict(X.drop(columns="branch"), output_margin=True)
    np.testing.assert_array_equal(many.classes_[margins.argmax(axis=1)], many.predict(X.drop(columns="branch")))
    number = VerticalRegressor(objective="poisson", n_estimators=4).fit(X, people["visits"])
    np.testing.assert_array_equal(number.predict(X, iteration_range=(0, 2)), list(number.staged_predict(X))[1])
    np.testing.assert_allclose(np.exp(number.predict(X, output_margin=True)), number.predict(X))


def test_class_weights_are_sample_weights(people: pd.DataFrame) -> None:
    X, y = people[COLUMNS], people["late"].where(people["age"] > 40, 0)
    weights = np.where(y == 1, 3.0, 0.5)
    by_class = VerticalClassifier(n_estimators=4, class_weight={0: 0.5, 1: 3.0}).fit(X, y)
    by_row = VerticalClassifier(n_estimators=4).fit(X, y, sample_weight=weights)
    assert by_class.model_sha256_ == by_row.model_sha256_
    twice = VerticalClassifier(n_estimators=4, class_weight={0: 0.5, 1: 1.5}).fit(X, y, np.where(y == 1, 2.0, 1.0))
    assert twice.model_sha256_ == by_row.model_sha256_
    balanced = VerticalClassifier(n_estimators=4, class_weight="balanced").fit(X, y)
    same = VerticalClassifier(n_estimators=4).fit(X, y, sample_weight=(len(y) / (2 * np.bincount(y)))[y])
    assert balanced.model_sha256_ == same.model_sha256_
    with pytest.raises(InvalidParameter, match="class_weight"):
        VerticalClassifier(class_weight="heavy").fit(X, y)
    with pytest.raises(InvalidParameter, match="class_weight"):
        VerticalRegressor(class_weight="balanced").fit(X, y)


def test_verbose_prints_as_xgboost(parts: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (X, y), first, last = parts
    VerticalClassifier(n_estimators=5, eval_metric="logloss").fit(X, y, eval_set=[first, last], verbose=2)
    printed = capsys.readouterr()
    assert [line.split(":")[0] for line in printed.out.splitlines()] == [
        f"[{number}]\tvalidation_1-logloss" for number in (0, 2, 4)
    ]
    assert printed.err == ""
    XGBClassifier(n_estimators=1, eval_metric="logloss").fit(X, y == "yes", eval_set=[(X, y == "yes")], verbose=True)
    theirs = capsys.readouterr().out
    assert theirs.startswith("[0]\tvalidation_0-logloss:")
    VerticalClassifier(n_estimators=2).fit(X, y, eval_set=last)
    assert capsys.readouterr().out == ""


def test_progress_is_shown_on_a_terminal_only(
    parts: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    VerticalClassifier(n_estimators=3).fit(*parts[0], verbose=True)
    shown = capsys.readouterr().err
    assert "training" in shown
    assert "3/3" in shown
    VerticalClassifier(n_estimators=3).fit(*parts[0])
    assert capsys.readouterr().err == ""
