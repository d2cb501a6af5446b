"""Losses against XGBoost's own numbers, and what they refuse."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import xgboost as xgb

from veilboost.boost.metrics import check_metric_fits
from veilboost.boost.objective import BinaryLogistic, Objective, make_objective, objective_of, sigmoid, softmax
from veilboost.config import OBJECTIVES, TrainingConfig
from veilboost.errors import (
    GradientRange,
    InvalidParameter,
    LabelNotANumber,
    LabelOutOfRange,
    UnsupportedCombination,
)
from veilboost.fixedpoint import Scale, exponent_for, to_fixed

pytestmark = pytest.mark.fast

MARGINS = (-4.0, -0.7, 0.0, 0.3, 2.5)


def squared(y_true, y_pred):
    return y_pred - y_true, np.ones_like(y_true)


def objectives() -> list[Objective]:
    return [
        make_objective("binary"),
        make_objective("binary", scale_pos_weight=7.0),
        make_objective("multiclass", classes=4),
        make_objective("regression"),
        make_objective("poisson"),
        make_objective("custom", custom=squared),
    ]


def of_xgboost(objective: Objective, margin: np.ndarray, label: float, weight: float, **params: float):
    """The (g, h) of one row: XGBoost grows one leaf per class from it, of weight -g / (h + 1) and cover h."""
    train = xgb.DMatrix(np.ones((1, 1)), label=[label], weight=[weight])
    train.set_base_margin(margin.reshape(1, -1))
    booster = xgb.train(
        {
            "objective": objective.xgboost_name,
            "learning_rate": 1.0,
            "reg_lambda": 1.0,
            "min_child_weight": 0.0,
            "nthread": 1,
            **params,
        },
        train,
        num_boost_round=1,
    )
    leaves = booster.trees_to_dataframe()
    h = leaves["Cover"].to_numpy()
    return -leaves["Gain"].to_numpy() * (h + 1.0), h


@pytest.mark.parametrize("weight", [1.0, 2.5])
@pytest.mark.parametrize("margin", MARGINS)
@pytest.mark.parametrize(
    ("name", "label", "params"),
    [
        ("binary", 0.0, {}),
        ("binary", 1.0, {}),
        ("binary", 0.0, {"scale_pos_weight": 3.0}),
        ("binary", 1.0, {"scale_pos_weight": 3.0}),
        ("regression", 1.5, {}),
        ("poisson", 1.0, {"max_delta_step": 20.0}),
    ],
)
def test_gradients_are_xgboosts(name, label, params, margin, weight):
    objective = make_objective(name, **params)
    start = np.array([[margin]])
    g, h = objective.gradients(start, np.array([label]), np.array([weight]))
    want_g, want_h = of_xgboost(objective, start, label, weight, **params)
    np.testing.assert_allclose(h[:, 0], want_h, rtol=2e-6)
    np.testing.assert_allclose(g[:, 0], want_g, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("weight", [1.0, 2.5])
@pytest.mark.parametrize("label", [0.0, 1.0, 2.0])
def test_multiclass_gradients_are_xgboosts(label, weight):
    objective = make_objective("multiclass", classes=3)
    start = np.array([[0.4], [-1.2], [2.0]])
    g, h = objective.gradients(start, np.array([label]), np.array([weight]))
    want_g, want_h = of_xgboost(objective, start, label, weight, num_class=3)
    np.testing.assert_allclose(h[:, 0], want_h, rtol=2e-6)
    np.testing.assert_allclose(g[:, 0], want_g, rtol=2e-5, atol=1e-6)


def test_poisson_takes_xgboosts_default_of_max_delta_step():
    objective = make_objective("poisson")
    assert objective.max_delta_step == 0.7
    start = np.array([[0.25]])
    g, h = objective.gradients(start, np.array([1.0]), None)
    want_g, want_h = of_xgboost(objective, start, 1.0, 1.0)  # this leaf is below 0.7, so nothing cuts it off
    np.testing.assert_allclose(h[:, 0], want_h, rtol=2e-6)
    np.testing.assert_allclose(g[:, 0], want_g, rtol=2e-5)


@pytest.mark.parametrize("name", ["binary", "regression", "poisson"])
@pytest.mark.parametrize("weighted", [False, True])
def test_base_margin_from_labels_is_xgboosts(name, weighted):
    rng = np.random.default_rng(3)
    y = {
        "binary": (rng.random(300) < 0.3).astype(float),
        "regression": rng.normal(5.0, 2.0, 300),
        "poisson": rng.poisson(3.0, 300).astype(float),
    }[name]
    weight = rng.random(300) + 0.1 if weighted else None
    objective = make_objective(name)
    # Too large a split penalty for any split and too large a lambda for any leaf: the base score remains.
    booster = xgb.train(
        {"objective": objective.xgboost_name, "gamma": 1e12, "reg_lambda": 1e12, "nthread": 1},
        xgb.DMatrix(np.ones((300, 1)), label=y, weight=weight),
        num_boost_round=1,
    )
    want = booster.predict(xgb.DMatrix(np.ones((1, 1))), output_margin=True)
    np.testing.assert_allclose(objective.base_margin(y, weight, None), want, rtol=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("classes", [3, 5])
def test_multiclass_starts_from_xgboosts_class_shares(weighted, classes):
    """With five classes, one has no rows."""
    rng = np.random.default_rng(3)
    y = rng.choice([0.0, 1.0, 2.0, 4.0][:classes], 300, p=[0.6, 0.2, 0.2] if classes == 3 else [0.5, 0.3, 0.1, 0.1])
    weight = rng.random(300) + 0.1 if weighted else None
    booster = xgb.train(
        {"objective": "multi:softprob", "num_class": classes, "gamma": 1e12, "reg_lambda": 1e12, "nthread": 1},
        xgb.DMatrix(np.ones((300, 1)), label=y, weight=weight),
        num_boost_round=1,
    )
    (want,) = booster.predict(xgb.DMatrix(np.ones((1, 1))), output_margin=True)
    objective = make_objective("multiclass", classes=classes)
    start = objective.base_margin(y, weight, None)
    np.testing.assert_allclose(start, want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        objective.predict(start[:, None])[0], np.average(objective.label_terms(y), axis=1, weights=weight), atol=1e-5
    )


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan])
def test_impossible_class_shares_are_refused(share):
    with pytest.raises(LabelOutOfRange):
        make_objective("multiclass", classes=3).base_margin_of_means(np.array([0.5, 0.5, share]), None)


def test_base_margin_counts_class_weights():
    y = np.array([0.0, 0.0, 0.0, 1.0])
    start = make_objective("binary", scale_pos_weight=3.0).base_margin(y, None, None)
    np.testing.assert_allclose(start, [0.0], atol=1e-12)


@pytest.mark.parametrize(
    "objective", [o for o in objectives() if o.name not in ("multiclass", "custom")], ids=lambda o: o.name
)
def test_gradients_sum_to_zero_at_the_base_margin(objective):
    rng = np.random.default_rng(5)
    y = (rng.random(200) < 0.2).astype(float)
    weight = rng.random(200)
    start = objective.base_margin(y, weight, None)
    g, _ = objective.gradients(np.repeat(start[:, None], 200, axis=1), y, weight)
    assert abs(g.sum()) < 1e-9


@pytest.mark.parametrize(
    ("name", "score", "margin"),
    [
        ("binary", 0.5, 0.0),
        ("binary", 0.9, math.log(9.0)),
        ("regression", -2.0, -2.0),
        ("poisson", 3.0, math.log(3.0)),
    ],
)
def test_base_score_is_a_prediction(name, score, margin):
    objective = make_objective(name)
    start = objective.base_margin(np.array([0.0, 1.0]), None, score)
    np.testing.assert_allclose(start, [margin], atol=1e-15)
    np.testing.assert_allclose(objective.predict(start[:, None]), [score])


def test_base_margin_of_many_classes_and_of_custom_losses():
    y = np.array([0.0, 2.0])
    multiclass = make_objective("multiclass", classes=3)
    of_classes = multiclass.base_margin(y, None, None)
    assert of_classes[0] == of_classes[2] > of_classes[1] + 10
    assert multiclass.base_margin(y, None, 0.5).tolist() == [0.5, 0.5, 0.5]
    custom = make_objective("custom", custom=squared)
    assert custom.base_margin(y, None, None).tolist() == [0.0]
    assert custom.base_margin(y, None, 2.0).tolist() == [2.0]


@pytest.mark.parametrize(("name", "label"), [("binary", 0.0), ("binary", 1.0), ("poisson", 0.0)])
def test_base_margin_of_one_class_is_finite(name, label):
    start = make_objective(name).base_margin(np.full(5, label), None, None)
    assert np.isfinite(start).all()
    assert abs(start[0]) > 10.0


@pytest.mark.parametrize(
    ("name", "score"),
    [
        ("binary", 0.0),
        ("binary", 1.0),
        ("binary", -0.1),
        ("binary", math.nan),
        ("poisson", 0.0),
        ("poisson", -1.0),
        ("regression", math.inf),
        ("multiclass", math.nan),
    ],
)
def test_impossible_base_scores_are_refused(name, score):
    with pytest.raises(InvalidParameter, match="base_score"):
        make_objective(name).base_margin(np.array([0.0, 1.0]), None, score)


@pytest.mark.parametrize("weight", [None, np.zeros(0)])
def test_no_rows_give_no_base_score(weight):
    with pytest.raises(InvalidParameter, match="base_score"):
        make_objective("regression").base_margin(np.zeros(0), weight, None)


def test_no_weight_gives_no_base_score():
    with pytest.raises(InvalidParameter, match="base_score"):
        make_objective("regression").base_margin(np.ones(3), np.zeros(3), None)


@pytest.mark.parametrize(
    ("name", "label"),
    [("binary", 2.0), ("binary", -1.0), ("multiclass", 3.0), ("multiclass", 0.5), ("poisson", -1.0)],
)
def test_labels_outside_the_loss_are_refused(name, label):
    with pytest.raises(LabelOutOfRange, match=name):
        make_objective(name, classes=3).base_margin(np.array([0.0, label]), None, None)


@pytest.mark.parametrize("objective", objectives(), ids=lambda o: o.name)
@pytest.mark.parametrize("label", [math.nan, math.inf])
def test_missing_labels_are_refused(objective, label):
    with pytest.raises(LabelNotANumber):
        objective.base_margin(np.array([0.0, label]), None, 0.5)


@pytest.mark.parametrize("objective", objectives(), ids=lambda o: o.name)
def test_first_order_boosting_has_hessian_one(objective):
    first = make_objective(
        objective.name,
        classes=objective.trees_per_round,
        scale_pos_weight=objective.scale_pos_weight if isinstance(objective, BinaryLogistic) else 1.0,
        order="first",
        custom=squared if objective.name == "custom" else None,
    )
    rng = np.random.default_rng(1)
    margin = rng.normal(size=(objective.trees_per_round, 50))
    y = rng.integers(0, 2, 50).astype(float)
    weight = rng.random(50)
    g, h = first.gradients(margin, y, weight)
    np.testing.assert_array_equal(g, objective.gradients(margin, y, weight)[0])
    row_weight = weight
    if isinstance(objective, BinaryLogistic):
        row_weight = weight * np.where(y == 1.0, objective.scale_pos_weight, 1.0)
    np.testing.assert_array_equal(h, np.broadcast_to(row_weight, h.shape))
    np.testing.assert_array_equal(first.gradients(margin, np.zeros(50), None)[1], np.ones_like(margin))
    assert (h <= first.bounds(1.0, g, h)[1]).all()


@pytest.mark.parametrize("objective", objectives(), ids=lambda o: o.name)
def test_shapes_and_inputs_left_alone(objective):
    rng = np.random.default_rng(2)
    k = objective.trees_per_round
    margin, y, weight = rng.normal(size=(k, 9)), rng.integers(0, 2, 9).astype(float), rng.random(9)
    kept = margin.copy(), y.copy(), weight.copy()
    for some_weight in (weight, None):
        g, h = objective.gradients(margin, y, some_weight)
        assert g.shape == h.shape == (k, 9)
        assert g.dtype == h.dtype == np.float64
        g[:], h[:] = -1.0, -1.0
    prediction = objective.predict(margin)
    assert prediction.shape == ((9, k) if objective.name == "multiclass" else (9,))
    prediction[:] = -1.0
    for now, then in zip((margin, y, weight), kept, strict=True):
        np.testing.assert_array_equal(now, then)


def test_bounds_of_bounded_losses_ignore_the_data():
    g = h = np.full((1, 3), 1e-3)
    assert make_objective("binary").bounds(1.0, g, h) == (1.0, 0.25)
    assert make_objective("binary").bounds(8.0, g, h) == (8.0, 2.0)
    assert make_objective("binary", scale_pos_weight=4.0).bounds(2.0, g, h) == (8.0, 2.0)
    assert make_objective("binary", scale_pos_weight=0.25).bounds(2.0, g, h) == (2.0, 0.5)
    assert make_objective("multiclass", classes=3).bounds(2.0, g, h) == (2.0, 1.0)
    assert make_objective("binary", order="first").bounds(2.0, g, h) == (2.0, 2.0)


def test_bounds_of_other_losses_are_the_rounds_largest():
    g, h = np.array([[-5.0, 3.0]]), np.array([[0.5, 1.5]])
    assert make_objective("regression").bounds(2.0, g, h) == (5.0, 2.0)
    assert make_objective("poisson").bounds(2.0, g, h) == (5.0, 1.5)
    assert make_objective("custom", custom=squared).bounds(2.0, g, h) == (5.0, 1.5)
    assert make_objective("poisson").bounds(2.0, g[:, :0], h[:, :0]) == (0.0, 0.0)


def test_nothing_warns_at_extreme_margins():
    margin = np.array([[-1e308, -800.0, -37.0, 0.0, 37.0, 800.0, 1e308]])
    y = np.array([0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        p = sigmoid(margin)
        assert ((p >= 0.0) & (p <= 1.0)).all()
        np.testing.assert_allclose(p[0, [0, 3, 6]], [0.0, 0.5, 1.0], atol=1e-300)
        np.testing.assert_allclose(p[0, 2], math.exp(-37.0), rtol=1e-12)
        for name in ("binary", "regression", "poisson"):
            make_objective(name).gradients(margin, y, y)
            make_objective(name).predict(margin)
        shares = softmax(np.vstack([margin, -margin]) / 2)
        np.testing.assert_allclose(shares.sum(axis=0), 1.0)
        g, h = make_objective("multiclass").gradients(np.vstack([margin, margin]), y, None)
        assert np.isfinite(g).all()
        assert (h > 0.0).all()
    _, h = make_objective("binary").gradients(margin, y, None)
    assert h.min() == 1e-16
    _, h = make_objective("multiclass").gradients(np.array([[0.0], [900.0]]), np.zeros(1), None)
    assert h.tolist() == [[1e-16], [1e-16]]


def test_an_overflowing_loss_is_refused_by_the_scale():
    objective = make_objective("poisson")
    g, h = objective.gradients(np.array([[0.0, 1000.0]]), np.zeros(2), np.array([1.0, 0.0]))
    bounds = objective.bounds(1.0, g, h)
    with pytest.raises(GradientRange):
        exponent_for(bounds[0], 20)
    with pytest.raises(GradientRange):
        to_fixed(g, h, Scale(20, 20))


def test_a_nan_margin_is_refused_by_the_grid():
    g, h = make_objective("binary").gradients(np.array([[0.0, math.nan]]), np.zeros(2), None)
    with pytest.raises(GradientRange):
        to_fixed(g, h, Scale(20, 20))


def test_a_custom_loss_is_weighed_like_the_others():
    rng = np.random.default_rng(7)
    margin, y, weight = rng.normal(size=(1, 20)), rng.normal(size=20), rng.random(20)
    ours = make_objective("regression").gradients(margin, y, weight)
    custom = make_objective("custom", custom=squared).gradients(margin, y, weight)
    np.testing.assert_array_equal(custom, ours)
    np.testing.assert_array_equal(make_objective("custom", custom=squared).predict(margin), margin[0])


@pytest.mark.parametrize(
    ("loss", "error"),
    [
        (lambda y, m: m - y, InvalidParameter),
        (lambda y, m: None, InvalidParameter),
        (lambda y, m: (m - y, np.ones(2)), InvalidParameter),
        (lambda y, m: ((m - y)[None], np.ones(3)), InvalidParameter),
        (lambda y, m: (m - y, 1.0), InvalidParameter),
        (lambda y, m: (m - y, ["a", "b", "c"]), InvalidParameter),
        (lambda y, m: (m * np.nan, np.ones(3)), GradientRange),
        (lambda y, m: (m, np.array([1.0, np.inf, 1.0])), GradientRange),
        (lambda y, m: (m, np.array([1.0, -1e-9, 1.0])), GradientRange),
    ],
)
def test_bad_custom_losses_are_refused(loss, error):
    objective = make_objective("custom", custom=loss)
    with pytest.raises(error, match="custom objective"):
        objective.gradients(np.zeros((1, 3)), np.zeros(3), None)


def test_a_custom_loss_cannot_write_into_the_margins():
    def greedy(y_true, y_pred):
        y_pred += 1.0
        return y_pred, y_true

    with pytest.raises(ValueError, match="read-only"):
        make_objective("custom", custom=greedy).gradients(np.zeros((1, 3)), np.zeros(3), None)


def test_arrays_of_a_custom_loss_stay_its_own():
    kept = np.full(3, 2.0)
    objective = make_objective("custom", custom=lambda y_true, y_pred: (y_pred, kept))
    margin, weight = np.ones((1, 3)), np.full(3, 5.0)
    for _ in range(2):
        g, h = objective.gradients(margin, np.zeros(3), weight)
        np.testing.assert_array_equal(g, [[5.0] * 3])
        np.testing.assert_array_equal(h, [[10.0] * 3])
    assert margin.tolist() == [[1.0] * 3]


def test_a_custom_loss_hears_of_its_own_mistakes():
    def broken(y_true, y_pred):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        make_objective("custom", custom=broken).gradients(np.zeros((1, 3)), np.zeros(3), None)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"name": "auto"}, InvalidParameter),
        ({"name": "custom"}, InvalidParameter),
        ({"name": "multiclass", "classes": 1}, InvalidParameter),
        ({"name": "binary", "scale_pos_weight": 0.0}, InvalidParameter),
        ({"name": "binary", "scale_pos_weight": math.inf}, InvalidParameter),
        ({"name": "poisson", "max_delta_step": -0.1}, InvalidParameter),
        ({"name": "poisson", "max_delta_step": math.nan}, InvalidParameter),
        ({"name": "binary", "order": "third"}, InvalidParameter),
        ({"name": "regression", "scale_pos_weight": 2.0}, UnsupportedCombination),
        ({"name": "binary", "custom": squared}, UnsupportedCombination),
    ],
)
def test_impossible_objectives_are_refused(arguments, error):
    with pytest.raises(error):
        make_objective(**arguments)


@pytest.mark.parametrize("name", [*OBJECTIVES[1:], "custom"])
def test_every_objective_of_the_configuration_exists(name):
    objective = make_objective(name, custom=squared if name == "custom" else None)
    assert objective.name == name
    assert objective.trees_per_round == (2 if name == "multiclass" else 1)
    check_metric_fits(objective.default_metric, name)


def test_the_loss_of_a_run_has_all_its_parameters():
    config = TrainingConfig(scale_pos_weight=3.0, order="first", max_delta_step=2.0)
    made = objective_of("binary", config, 2)
    expected = make_objective("binary", scale_pos_weight=3.0, order="first", max_delta_step=2.0)
    margin, y = np.array([[0.5, -1.0]]), np.array([0.0, 1.0])
    np.testing.assert_array_equal(made.gradients(margin, y, None), expected.gradients(margin, y, None))
    assert made.max_delta_step == 2.0
    assert objective_of("multiclass", TrainingConfig(), 4).trees_per_round == 4
    loss = objective_of("custom", TrainingConfig(), 2, squared)
    np.testing.assert_array_equal(loss.gradients(margin, y, None)[0], squared(y, margin[0])[0][None])
