import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_classification, make_regression
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from veilboost import HorizontalClassifier, VerticalClassifier, VerticalRegressor


@parametrize_with_checks([VerticalClassifier(n_estimators=20), VerticalRegressor(n_estimators=20)])
def test_scikit_learn_checks(estimator, check) -> None:
    check(estimator)


@pytest.mark.fast
def test_clone_and_params_round_trip() -> None:
    estimator = VerticalClassifier(parties={"bank": [0], "shop": [1]}, max_depth=3, categorical=[1], id=None)
    copy = clone(estimator)
    assert copy.get_params() == estimator.get_params()
    assert copy.set_params(max_depth=4).max_depth == 4


@pytest.mark.fast
def test_pipeline_grid_search_and_cross_validation() -> None:
    X, y = make_classification(200, 8, random_state=0)
    pipeline = make_pipeline(StandardScaler(), VerticalClassifier(parties=3, n_estimators=5))
    grid = GridSearchCV(pipeline, {"verticalclassifier__max_depth": [1, 3]}, cv=3, scoring="roc_auc").fit(X, y)
    assert grid.best_score_ > 0.8
    X, y = make_regression(200, 5, noise=1.0, random_state=0)
    assert cross_val_score(VerticalRegressor(n_estimators=30), X, y, cv=3).mean() > 0.5


@pytest.mark.fast
def test_column_transformer_in_front(people: pd.DataFrame) -> None:
    scaled = make_column_transformer((StandardScaler(), ["age", "basket"]), remainder="drop")
    pipeline = make_pipeline(scaled.set_output(transform="pandas"), VerticalClassifier(n_estimators=5))
    assert pipeline.fit(people, people["late"]).score(people, people["late"]) > 0.7


@pytest.mark.fast
@pytest.mark.parametrize("name", ["model_sha256_", "joined_", "feature_importances_", "best_iteration_"])
def test_unfitted_estimator_says_so(name: str) -> None:
    with pytest.raises(NotFittedError):
        getattr(VerticalClassifier(), name)
    assert not hasattr(VerticalClassifier(), name)


@pytest.mark.fast
def test_failed_fit_is_no_fit() -> None:
    estimator = VerticalClassifier(max_depth=99)
    with pytest.raises(ValueError, match="VB-1002"):
        estimator.fit(np.eye(4), [0, 1, 0, 1])
    with pytest.raises(NotFittedError):
        estimator.predict(np.eye(4))


@pytest.mark.fast
@pytest.mark.parametrize("estimator", [VerticalClassifier(n_estimators=3), HorizontalClassifier(n_estimators=3)])
def test_joblib_keeps_a_fitted_estimator(estimator, tmp_path) -> None:
    X, y = make_classification(60, 4, random_state=0)
    fitted = estimator.fit(X, y, eval_set=(X, y))
    joblib.dump(fitted, tmp_path / "model.joblib")
    loaded = joblib.load(tmp_path / "model.joblib")
    np.testing.assert_array_equal(loaded.predict_proba(X), fitted.predict_proba(X))
    assert loaded.model_sha256_ == fitted.model_sha256_
    assert loaded.evals_result() == fitted.evals_result()


@pytest.mark.fast
def test_metadata_routing_and_set_output() -> None:
    X, y = make_classification(120, 4, random_state=0)
    weight = np.where(np.arange(120) < 60, 1.0, 0.0)
    with config_context(enable_metadata_routing=True):
        estimator = VerticalClassifier(n_estimators=3).set_fit_request(sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        pipeline = make_pipeline(scaler, estimator).set_output(transform="pandas")
        routed = pipeline.fit(X, y, sample_weight=weight)[-1]
        assert list(routed.feature_names_in_) == ["x0", "x1", "x2", "x3"]
        grid = GridSearchCV(estimator.set_score_request(sample_weight=True), {"max_depth": [2]}, cv=2)
        assert 0.5 < grid.fit(X, y, sample_weight=np.ones(120)).best_score_ <= 1.0
    scaled = StandardScaler().fit(X).transform(X)
    assert routed.model_sha256_ == VerticalClassifier(n_estimators=3).fit(scaled[:60], y[:60]).model_sha256_


@pytest.mark.fast
def test_all_cores() -> None:
    X, y = make_classification(60, 4, random_state=0)
    one, every = (VerticalClassifier(n_estimators=3, n_jobs=n_jobs).fit(X, y) for n_jobs in (1, -1))
    assert one.model_sha256_ == every.model_sha256_
