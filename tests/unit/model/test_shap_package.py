"""Explanations with the package shap itself."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris

from veilboost import VerticalClassifier

shap = pytest.importorskip("shap")


@pytest.mark.parametrize("classes", [2, 3])
def test_contributions_are_an_explanation_of_shap(classes: int) -> None:
    X, y = load_iris(return_X_y=True)
    X, y = X[y < classes], y[y < classes]
    model = VerticalClassifier(n_estimators=4, max_depth=3).fit(X, y)
    found = model.explain(X)
    theirs = found.to_shap()
    assert isinstance(theirs, shap.Explanation)
    assert theirs.shape == found.values.shape
    assert list(theirs.feature_names) == list(found.feature_names)
    np.testing.assert_array_equal(theirs.data, X.astype(np.float32))
    one = theirs if classes == 2 else theirs[:, :, "2"]  # a class by its name
    np.testing.assert_array_equal(one.values, found.output(classes - 1).values)
    np.testing.assert_array_equal(one.base_values, found.output(classes - 1).base_values)
    best = one.abs.mean(0).values.argmax()  # operations of shap
    assert best == np.abs(one.values).mean(axis=0).argmax()
    pytest.importorskip("matplotlib").use("Agg")
    for plot, rows in ((shap.plots.beeswarm, one), (shap.plots.waterfall, one[0])):
        drawn = plot(rows, show=False)
        labels = [each.get_text() for each in drawn.get_yticklabels()]
        assert all(any(label.endswith(name) for label in labels) for name in found.feature_names)
        drawn.figure.clear()
    additive = one.values.sum(axis=1) + one.base_values
    np.testing.assert_allclose(additive, found.margins[0 if classes == 2 else 2], atol=1e-12)
