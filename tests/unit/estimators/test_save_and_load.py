import json
import stat

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris

from veilboost import VerticalClassifier, VerticalRegressor, load_model, save_model
from veilboost.errors import DamagedModel, ModelVersion, NotExportable, UnreadableModel

pytestmark = pytest.mark.fast

COLUMNS = ["age", "income", "branch", "basket", "visits", "city"]


def test_one_matrix(people: pd.DataFrame, tmp_path) -> None:
    X = people[COLUMNS]
    saved = VerticalClassifier(n_estimators=4, max_depth=2, parties={"bank": [1, 0], "shop": [3, 5]})
    saved.fit(X, np.where(people["late"] == 1, "yes", "no")).save(tmp_path)
    loaded = VerticalClassifier.load(tmp_path)
    assert loaded.model_sha256_ == saved.model_sha256_
    assert loaded.classes_.tolist() == ["no", "yes"]
    assert loaded.max_depth == 2
    assert loaded.n_features_in_ == 6
    np.testing.assert_array_equal(loaded.predict_proba(X), saved.predict_proba(X))
    np.testing.assert_array_equal(loaded.feature_importances_, saved.feature_importances_)
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(X[COLUMNS[::-1]])
    refitted = loaded.fit(X, np.where(people["late"] == 1, "yes", "no"))
    assert refitted.model_sha256_ == saved.model_sha256_


@pytest.mark.parametrize("names", [[0, 1, 2], [0.0, 1.0, 2.0], ["0", "1", "2"], [-3, 5, 2**40]])
def test_classes_keep_their_type(names, tmp_path) -> None:
    X, codes = load_iris(return_X_y=True)
    saved = VerticalClassifier(n_estimators=2).fit(X, np.asarray(names)[codes])
    saved.save(tmp_path)
    loaded = VerticalClassifier.load(tmp_path)
    assert loaded.classes_.dtype == saved.classes_.dtype
    np.testing.assert_array_equal(loaded.predict(X), saved.predict(X))
    assert not hasattr(loaded, "feature_names_in_")


def test_table_per_party(bank: pd.DataFrame, shop: pd.DataFrame, tmp_path) -> None:
    saved = VerticalClassifier(n_estimators=4, id="customer_id", categorical=["branch"])
    saved.fit({"bank": bank, "shop": shop}, "late").save(tmp_path)
    loaded = VerticalClassifier.load(tmp_path)
    rows = {"bank": bank[bank["customer_id"].isin(shop["customer_id"])], "shop": shop}
    np.testing.assert_array_equal(loaded.predict_proba(rows), saved.predict_proba(rows))
    assert loaded.id == "customer_id"
    assert loaded.evals_result_ == {}
    assert loaded.fit({"bank": bank, "shop": shop}, "late").model_sha256_ == saved.model_sha256_


def test_regressors(people: pd.DataFrame, tmp_path) -> None:
    for objective, label in (("regression", "value"), ("poisson", "visits")):
        saved = VerticalRegressor(n_estimators=3, objective=objective).fit(people[COLUMNS], people[label])
        saved.save(tmp_path)
        loaded = VerticalRegressor.load(tmp_path)
        np.testing.assert_array_equal(loaded.predict(people[COLUMNS]), saved.predict(people[COLUMNS]))
    with pytest.raises(UnreadableModel, match=r"VB-1301: .* VerticalClassifier"):
        VerticalClassifier.load(tmp_path)


def test_own_objective_is_not_stored(people: pd.DataFrame, tmp_path) -> None:
    X, y = people[COLUMNS], people["value"]
    saved = VerticalRegressor(n_estimators=3, objective=lambda y, margin: (margin - y, np.ones_like(y))).fit(X, y)
    saved.save(tmp_path)
    loaded = VerticalRegressor.load(tmp_path)
    np.testing.assert_array_equal(loaded.predict(X), saved.predict(X))
    with pytest.raises(ValueError, match="VB-1002: objective='custom'"):
        loaded.fit(X, y)
    with pytest.raises(NotExportable):
        loaded.export_xgboost(tmp_path / "model.json")


def test_model_that_no_estimator_saved(people: pd.DataFrame, tmp_path) -> None:
    """Such as one from the command line: every party gives a table, and classes are numbers or text."""
    X, y = people[COLUMNS], people["late"]
    fitted = VerticalClassifier(n_estimators=3, parties=3).fit(X, y)
    save_model(fitted.shares_, tmp_path)
    loaded = VerticalClassifier.load(tmp_path)
    assert loaded.classes_.tolist() == ["0", "1"]
    np.testing.assert_array_equal(loaded.predict_proba(dict.fromkeys(fitted.shares_, people)), fitted.predict_proba(X))


def test_files_are_for_their_owner_only(people: pd.DataFrame, tmp_path) -> None:
    VerticalClassifier(n_estimators=2).fit(people[COLUMNS], people["late"]).save(tmp_path)
    for path in tmp_path.rglob("*.*"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_description_of_another_model_is_refused(people: pd.DataFrame, tmp_path) -> None:
    VerticalClassifier(n_estimators=2).fit(people[COLUMNS], people["late"]).save(tmp_path / "a")
    VerticalClassifier(n_estimators=3).fit(people[COLUMNS], people["late"]).save(tmp_path / "b")
    save_model(load_model(tmp_path / "b"), tmp_path / "a")
    with pytest.raises(DamagedModel, match="VB-1302"):
        VerticalClassifier.load(tmp_path / "a")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"format": "something"}, UnreadableModel),
        ({"version": "1"}, UnreadableModel),
        ({"version": 3}, ModelVersion),
        ({"id": 5}, UnreadableModel),
        ({"named": None}, UnreadableModel),
        ({"columns": "abc"}, UnreadableModel),
        ({"columns": ["age", "age"]}, UnreadableModel),
        ({"columns": ["age", 1]}, UnreadableModel),
        ({"columns": ["age"]}, UnreadableModel),
        ({"columns": []}, UnreadableModel),
        ({"columns": [["age"]]}, UnreadableModel),
        ({"classes": [0, "1"]}, UnreadableModel),
        ({"classes": [0, 1, 2]}, UnreadableModel),
        ({"classes": [1, 1]}, UnreadableModel),
        ({"missing_values": [5]}, UnreadableModel),
    ],
)
def test_description_that_contradicts_itself_is_refused(people: pd.DataFrame, tmp_path, change, error) -> None:
    VerticalClassifier(n_estimators=2).fit(people[COLUMNS], people["late"]).save(tmp_path)
    path = tmp_path / "estimator.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(error):
        VerticalClassifier.load(tmp_path)


@pytest.mark.parametrize("content", ["", "[]", "not json", "[" * 100_000])
def test_description_that_is_none_is_refused(people: pd.DataFrame, tmp_path, content: str) -> None:
    VerticalClassifier(n_estimators=2).fit(people[COLUMNS], people["late"]).save(tmp_path)
    (tmp_path / "estimator.json").write_text(content)
    with pytest.raises(UnreadableModel):
        VerticalClassifier.load(tmp_path)


def test_folder_without_a_model(tmp_path) -> None:
    with pytest.raises(UnreadableModel, match="VB-1301"):
        VerticalClassifier.load(tmp_path)


def test_export_to_xgboost(people: pd.DataFrame, tmp_path) -> None:
    xgboost = pytest.importorskip("xgboost")
    X = people[["age", "income", "basket", "visits"]]
    fitted = VerticalClassifier(n_estimators=5, parties=2).fit(X, people["late"])
    fitted.export_xgboost(tmp_path / "model.json")
    booster = xgboost.Booster(model_file=tmp_path / "model.json")
    np.testing.assert_allclose(booster.predict(xgboost.DMatrix(X)), fitted.predict_proba(X)[:, 1], rtol=1e-5)


def test_markers_of_missing_values_are_kept(people: pd.DataFrame, tmp_path) -> None:
    marked = people[COLUMNS].fillna({"income": -999, "city": "unknown"})
    estimator = VerticalClassifier(n_estimators=5, missing_values=[-999, "unknown"]).fit(marked, people["late"])
    plain = VerticalClassifier(n_estimators=5).fit(people[COLUMNS], people["late"])
    assert estimator.model_sha256_ == plain.model_sha256_
    estimator.save(tmp_path)
    loaded = VerticalClassifier.load(tmp_path)
    np.testing.assert_array_equal(loaded.predict_proba(marked), plain.predict_proba(people[COLUMNS]))
