"""What holds for losses and metrics whatever the numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sk

from veilboost.boost import metrics
from veilboost.boost.objective import make_objective

pytestmark = pytest.mark.fast

STEP = 1e-4
CLASSES = 3

small_margins = st.floats(-6.0, 6.0)
weights = st.floats(0.0, 10.0)
class_weights = st.floats(0.01, 20.0)


def columns(*elements: st.SearchStrategy[float], min_size: int = 1) -> st.SearchStrategy[np.ndarray]:
    """Arrays with one row per kind of element and as many columns as drawn."""
    return st.lists(st.tuples(*elements), min_size=min_size, max_size=30).map(lambda rows: np.array(rows).T)


def binary_loss(margin, y, class_weight):
    return np.where(y == 1.0, class_weight, 1.0) * (np.logaddexp(0.0, margin[0]) - y * margin[0])


def multiclass_loss(margin, y):
    return np.logaddexp.reduce(margin, axis=0) - margin[y.astype(int), np.arange(len(y))]


def slopes(loss, margin):
    """Central differences of a loss of (K, n) margins, first by each margin and then twice by it."""
    first, second = np.empty_like(margin), np.empty_like(margin)
    middle = loss(margin)
    for k in range(len(margin)):
        step = np.zeros_like(margin)
        step[k] = STEP
        above, below = loss(margin + step), loss(margin - step)
        first[k] = (above - below) / (2 * STEP)
        second[k] = (above - 2 * middle + below) / STEP**2
    return first, second


def assert_slopes(got, want, scale=1.0):
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5, atol=1e-5 * scale)
    np.testing.assert_allclose(got[1], want[1], rtol=1e-4, atol=2e-5 * scale)


@given(columns(small_margins, st.sampled_from([0.0, 1.0]), weights), class_weights)
def test_binary_gradients_are_slopes_of_the_loss(rows, class_weight):
    margin, y, weight = rows[:1], rows[1], rows[2]
    got = make_objective("binary", scale_pos_weight=class_weight).gradients(margin, y, weight)
    want = slopes(lambda m: weight * binary_loss(m, y, class_weight), margin)
    assert_slopes(got, want, scale=10.0 * max(1.0, class_weight))


@given(columns(*[small_margins] * CLASSES, st.integers(0, CLASSES - 1), weights))
def test_multiclass_gradients_are_slopes_of_the_loss(rows):
    margin, y, weight = rows[:CLASSES], rows[CLASSES], rows[CLASSES + 1]
    g, h = make_objective("multiclass", classes=CLASSES).gradients(margin, y, weight)
    want = slopes(lambda m: weight * multiclass_loss(m, y), margin)
    assert_slopes((g, h / 2.0), want, scale=10.0)  # XGBoost's hessian is twice the true one
    np.testing.assert_allclose(g.sum(axis=0), 0.0, atol=1e-13)


@given(columns(small_margins, st.floats(-6.0, 6.0), weights))
def test_squared_error_gradients_are_slopes_of_the_loss(rows):
    margin, y, weight = rows[:1], rows[1], rows[2]
    got = make_objective("regression").gradients(margin, y, weight)
    assert_slopes(got, slopes(lambda m: weight * (m[0] - y) ** 2 / 2, margin), scale=100.0)


@given(columns(st.floats(-3.0, 3.0), st.integers(0, 20), weights), st.floats(0.01, 2.0))
def test_poisson_gradients_are_slopes_of_the_loss(rows, max_delta_step):
    margin, y, weight = rows[:1], rows[1], rows[2]
    g, h = make_objective("poisson", max_delta_step=max_delta_step).gradients(margin, y, weight)
    want = slopes(lambda m: weight * (np.exp(m[0]) - y * m[0]), margin)
    assert_slopes((g, h * np.exp(-max_delta_step)), want, scale=100.0)


@given(columns(st.floats(-1e300, 1e300), st.sampled_from([0.0, 0.3, 1.0]), weights), class_weights)
def test_binary_bounds_hold(rows, class_weight):
    objective = make_objective("binary", scale_pos_weight=class_weight)
    assert_bounds_hold(objective, rows[:1], rows[1], rows[2])


@given(columns(*[st.floats(-1e300, 1e300)] * CLASSES, st.integers(0, CLASSES - 1), weights))
def test_multiclass_bounds_hold(rows):
    objective = make_objective("multiclass", classes=CLASSES)
    assert_bounds_hold(objective, rows[:CLASSES], rows[CLASSES], rows[CLASSES + 1])


@given(
    st.sampled_from(["regression", "poisson"]),
    st.sampled_from(["first", "second"]),
    columns(st.floats(-100.0, 100.0), st.floats(0.0, 100.0), weights),
)
def test_bounds_of_unbounded_losses_hold(name, order, rows):
    assert_bounds_hold(make_objective(name, order=order), rows[:1], rows[1], rows[2])


def assert_bounds_hold(objective, margin, y, weight):
    g, h = objective.gradients(margin, y, weight)
    g_bound, h_bound = objective.bounds(float(weight.max()), g, h)
    assert np.isfinite(g).all()
    assert (np.abs(g) <= g_bound).all()
    assert (h >= 0.0).all()
    assert (h <= np.nextafter(h_bound, np.inf)).all()  # p (1-p) may round up once


@given(st.sampled_from(["binary", "poisson", "regression"]), columns(st.sampled_from([0.0, 1.0]), weights))
def test_the_base_margin_predicts_the_weighted_mean(name, rows):
    y, weight = rows
    weight = weight + 0.01
    objective = make_objective(name)
    mean = np.average(y, weights=weight)
    start = objective.base_margin(y, weight, None)
    np.testing.assert_allclose(objective.predict(start[:, None]), [mean], rtol=1e-9, atol=1.1e-6)


def ranked_rows() -> st.SearchStrategy[np.ndarray]:
    """Both labels, few distinct predictions so that ties are common, weights that may be zero."""
    return (
        columns(st.sampled_from([0.0, 1.0]), st.integers(0, 6), st.sampled_from([0.0, 0.5, 1.0, 3.7]), min_size=2)
        .map(lambda rows: np.hstack([rows, [[0.0, 1.0], [3.0, 2.0], [0.1, 0.2]]]))
        .map(lambda rows: rows * [[1.0], [1 / 7], [1.0]])
    )


@given(ranked_rows(), st.booleans())
def test_ranking_metrics_are_scikit_learns(rows, weighted):
    y, p = rows[0], rows[1]
    weight = rows[2] if weighted else None
    assert metrics.auc(y, p, weight) == pytest.approx(sk.roc_auc_score(y, p, sample_weight=weight), abs=1e-12)
    assert metrics.aucpr(y, p, weight) == pytest.approx(
        sk.average_precision_score(y, p, sample_weight=weight), abs=1e-12
    )
    fpr, tpr, _ = sk.roc_curve(y, p, sample_weight=weight, drop_intermediate=False)
    assert metrics.ks(y, p, weight) == pytest.approx(np.abs(tpr - fpr).max(), abs=1e-12)


@given(ranked_rows())
def test_ranking_metrics_see_only_the_order(rows):
    y, p, weight = rows
    backwards = slice(None, None, -1)
    for metric in (metrics.auc, metrics.aucpr, metrics.ks):
        value = metric(y, p, weight)
        assert metric(y, np.exp(3.0 * p) - 5.0, weight) == value
        assert metric(y[backwards], p[backwards], weight[backwards]) == pytest.approx(value, abs=1e-12)
    assert metrics.auc(y, -p, weight) == pytest.approx(1.0 - metrics.auc(y, p, weight), abs=1e-12)
