"""`explain` of fitted and loaded estimators, and the conversion to `shap.Explanation`."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris

from veilboost import HorizontalRegressor, VerticalClassifier, VerticalRegressor, make_demo_data
from veilboost.errors import MissingExtra
from veilboost.model.explanation import Explanation

pytestmark = pytest.mark.fast


@pytest.fixture(scope="module")
def credit():
    tables = make_demo_data(customers=400)
    model = VerticalClassifier(id="customer_id", n_estimators=5, max_depth=3).fit(tables, "default")
    common = set.intersection(*(set(table["customer_id"].to_pylist()) for table in tables.values()))
    known = [each in common for each in tables["bank"]["customer_id"].to_pylist()]
    tables["bank"] = tables["bank"].filter(known)
    return model, tables, model.explain(tables)


def test_rows_of_a_table_per_party_add_up(credit):
    model, tables, found = credit
    positive = 1 / (1 + np.exp(-(found.values.sum(axis=1) + found.base_values)))
    np.testing.assert_allclose(positive, model.predict_proba(tables)[:, 1], atol=1e-9)
    assert list(found.feature_names) == [info.name for info in model.joined_.columns]
    assert set(found.parties) == {"bank", "shop", "telecom"}


def test_a_loaded_estimator_explains_alike(credit, tmp_path):
    model, tables, found = credit
    model.save(tmp_path / "model")
    again = VerticalClassifier.load(tmp_path / "model").explain(tables)
    np.testing.assert_array_equal(again.values, found.values)


def test_features_of_a_matrix_keep_their_order():
    X, y = load_diabetes(return_X_y=True)
    parties = {"clinic": [9, 1, 3], "laboratory": [0, 2, 4, 5, 6, 7, 8]}
    model = VerticalRegressor(parties=parties, n_estimators=4, max_depth=3).fit(X, y)
    found = model.explain(X[:30])
    assert found.feature_names == tuple(f"x{at}" for at in range(10))
    np.testing.assert_array_equal(found.data, X[:30].astype(np.float32))
    np.testing.assert_allclose(found.margins[0], model.predict(X[:30]), atol=1e-9)
    full = HorizontalRegressor(participants=2, n_estimators=4, max_depth=3).fit(X, y)
    np.testing.assert_allclose(full.explain(X[:30]).margins[0], full.predict(X[:30]), atol=1e-9)


def test_classes_have_contributions_of_their_own():
    X, y = load_iris(return_X_y=True)
    model = VerticalClassifier(parties=2, n_estimators=3, max_depth=2).fit(X, y)
    found = model.explain(X)
    assert found.values.shape == (150, 4, 3)
    assert found.output_names == ("0", "1", "2")
    np.testing.assert_array_equal(found.margins.argmax(axis=0), model.predict(X))
    one = found.output(2)
    np.testing.assert_array_equal(one.values, found.values[..., 2])
    assert one.output_names is None


def explanation(values, **more):
    values = np.array(values, dtype=np.float64)
    names = tuple("abc"[: values.shape[1]])
    base = np.zeros((len(values), *values.shape[2:]))
    return Explanation(values, base, np.zeros(values.shape[:2]), names, ("p",) * len(names), **more)


def test_reasons_are_what_raised_the_score_most():
    found = explanation([[0.5, -1.0, 2.0], [-1.0, -2.0, 0.0], [1.0, 1.0, 0.5]])
    assert found.reasons(2) == [["c", "a"], [], ["a", "b"]]
    several = explanation([[[0.1, 3.0], [0.2, -1.0], [0.0, 0.5]]], output_names=("x", "y"))
    assert several.reasons(3) == [["a", "c"]], "of the most probable class"
    np.testing.assert_allclose(several.importance, [3.1, 1.2, 0.5])


def test_to_shap_passes_every_attribute(monkeypatch):
    found = explanation([[0.5, -1.0, 2.0]])
    made = {}
    fake = SimpleNamespace(Explanation=lambda values, **more: made.update(more, values=values))
    monkeypatch.setitem(sys.modules, "shap", fake)
    found.to_shap()
    assert made["values"] is found.values
    assert made["feature_names"] == ["a", "b", "c"]
    assert set(made) == {"values", "base_values", "data", "feature_names", "output_names"}
    monkeypatch.setitem(sys.modules, "shap", None)
    with pytest.raises(MissingExtra, match="shap"):
        found.to_shap()
