"""Losses of numeric labels against XGBoost and scikit-learn: derivatives, base scores, leaves, models and metrics."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import sklearn.metrics as sk
import xgboost as xgb

from support import sha, train
from veilboost import VerticalRegressor, export_xgboost, join
from veilboost.boost.metrics import check_metric_fits, metric_named
from veilboost.boost.objective import make_objective
from veilboost.boost.regression import quantiles
from veilboost.config import OBJECTIVES, TrainingConfig
from veilboost.data.schema import check_labels
from veilboost.engine.api import check_job
from veilboost.errors import LabelOutOfRange, UnsupportedCombination
from veilboost.protocols.registry import protocol_named
from veilboost.protocols.validation import check_config
from veilboost.testing.tables import make_columns, make_labels, split_among

pytestmark = pytest.mark.fast

LOSSES = {
    "regression": {},
    "absolute_error": {},
    "quantile": {"quantile_alpha": 0.25},
    "pseudo_huber": {"huber_slope": 2.0},
    "poisson": {},
    "gamma": {},
    "tweedie": {"tweedie_variance_power": 1.3},
}
STEPS = ("absolute_error", "quantile")


def amounts(rows: int = 200) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Whole numbers as features, so that both systems have the same bins; labels above 0; weights."""
    rng = np.random.default_rng(7)
    features = rng.integers(0, 8, (rows, 3)).astype(np.float64)
    labels = np.exp(0.2 * features[:, 0] - 0.1 * features[:, 1] + rng.normal(0, 0.4, rows))
    return features, labels, rng.integers(1, 4, rows).astype(np.float64)


def of_xgboost(name: str, rounds: int, weight: np.ndarray | None, **params: float) -> np.ndarray:
    features, labels, _ = amounts()
    data = xgb.DMatrix(features, labels, weight=weight)
    loss = make_objective(name)
    given = {"objective": loss.xgboost_name, "tree_method": "hist", "nthread": 1, **LOSSES[name], **params}
    return xgb.train(given, data, rounds).predict(data, output_margin=True).astype(np.float64)


def test_all_losses_of_numbers_are_covered():
    assert set(LOSSES) == set(OBJECTIVES) - {"auto", "binary", "multiclass"}


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in STEPS and name != "poisson"])
@pytest.mark.parametrize("label", [0.5, 3.0])
@pytest.mark.parametrize("margin", [-2.0, 0.0, 1.5])
def test_derivatives_are_xgboosts(name, label, margin):
    """XGBoost grows one leaf from one row, of weight -g / (h + 1) and cover h."""
    data = xgb.DMatrix(np.ones((1, 1)), label=[label])
    data.set_base_margin(np.array([margin]))
    loss = make_objective(name, **LOSSES[name])
    given = {"objective": loss.xgboost_name, "eta": 1.0, "min_child_weight": 0.0, "nthread": 1, **LOSSES[name]}
    leaf = xgb.train(given, data, 1).trees_to_dataframe()
    g, h = loss.gradients(np.array([[margin]]), np.array([label]), None)
    np.testing.assert_allclose(h[0], leaf["Cover"], rtol=2e-5)
    np.testing.assert_allclose(g[0], -leaf["Gain"] * (leaf["Cover"] + 1.0), rtol=2e-5, atol=1e-6)


def test_derivatives_of_steps():
    margin, y = np.array([[1.0, 2.0, 3.0]]), np.array([2.0, 2.0, 2.0])
    absolute, quantile = make_objective("absolute_error"), make_objective("quantile", quantile_alpha=0.9)
    np.testing.assert_array_equal(absolute.gradients(margin, y, None)[0], [[-1.0, 0.0, 1.0]])
    np.testing.assert_allclose(quantile.gradients(margin, y, None)[0], [[-0.9, 0.1, 0.1]])


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("weighted", [False, True])
def test_base_margins_are_xgboosts(name, weighted):
    _, labels, weights = amounts()
    weight = weights if weighted else None
    given = make_objective(name, **LOSSES[name]).base_margin(labels, weight, None)
    # A penalty too large for any split; leaves that are refitted afterwards are shrunk to nothing.
    theirs = of_xgboost(name, 1, weight, gamma=1e12, reg_lambda=1e12, eta=1e-12)
    np.testing.assert_allclose(given[0], theirs[0], rtol=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("alpha", [0.001, 0.3, 0.5, 0.999])
def test_quantiles_of_groups(alpha, weighted):
    rng = np.random.default_rng(1)
    counts = np.array([5, 0, 1, 40])
    values = rng.normal(size=46).round(1)
    weight = rng.integers(0, 3, 46).astype(float) if weighted else None
    found, start = quantiles(values, weight, counts, alpha), 0
    for value, count in zip(found, counts, strict=True):
        own = slice(start, start + count)
        start += count
        if not count:
            assert value == 0.0
        elif weight is None:
            assert value == pytest.approx(np.quantile(values[own], alpha, method="weibull"))
        else:
            order = np.argsort(values[own], kind="stable")
            reached = np.cumsum(weight[own][order])
            first = min(int(np.searchsorted(reached, alpha * reached[-1])), count - 1)
            assert value == values[own][order][first]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", STEPS)
def test_models_with_refitted_leaves_are_xgboosts(name, weighted):
    """From a base score that is no label: where both are equal, rounding to float32 decides the sign of a gradient."""
    features, labels, weights = amounts()
    weight, common = weights if weighted else None, {"max_depth": 2, "base_score": 1.0}
    model = VerticalRegressor(objective=name, n_estimators=3, max_bin=16, **common, **LOSSES[name])
    ours = model.fit(features, labels, sample_weight=weight).predict(features)
    np.testing.assert_allclose(ours, of_xgboost(name, 3, weight, eta=0.3, **common), rtol=1e-5)


@pytest.mark.parametrize("name", LOSSES)
def test_exported_models_predict_the_same(name, tmp_path: Path):
    features, labels, _ = amounts()
    model = VerticalRegressor(objective=name, n_estimators=4, max_depth=3, **LOSSES[name]).fit(features, labels)
    export_xgboost(join(model.shares_), tmp_path / "model.json")
    booster = xgb.Booster(model_file=str(tmp_path / "model.json"))
    theirs = booster.predict(xgb.DMatrix(features, feature_names=booster.feature_names))
    np.testing.assert_allclose(theirs, model.predict(features), rtol=1e-5)


def test_encrypted_sums_give_the_same_model():
    columns = make_columns(3, 80, numeric=4, categorical=0)
    tables = split_among(columns, make_labels(3, columns, "regression"), 2)
    config = TrainingConfig(objective="absolute_error", n_estimators=2, max_depth=3, max_bin=8, subsample=0.7)
    assert sha(train(tables, config, "lattice")) == sha(train(tables, config, "plain"))


def test_rows_that_are_not_summed_do_not_influence_leaves():
    """Validation rows have labels far away; the leaves must not."""
    features, labels, _ = amounts()
    held_out = np.arange(len(labels)) >= 150
    moved = np.where(held_out, labels + 1e6, labels)
    common = {"objective": "absolute_error", "n_estimators": 2, "max_depth": 2}
    one, other = VerticalRegressor(**common), VerticalRegressor(**common)
    one.fit(features[~held_out], labels[~held_out])
    other.fit(features[~held_out], labels[~held_out], eval_set=(features[held_out], moved[held_out]))
    np.testing.assert_array_equal(one.predict(features), other.predict(features))


@pytest.mark.parametrize(
    ("name", "config", "reference"),
    [
        ("quantile", {"quantile_alpha": 0.3}, lambda y, p, w: sk.mean_pinball_loss(y, p, alpha=0.3, sample_weight=w)),
        ("poisson_deviance", {}, lambda y, p, w: sk.mean_poisson_deviance(y, p, sample_weight=w)),
        ("gamma_deviance", {}, lambda y, p, w: sk.mean_gamma_deviance(y, p, sample_weight=w)),
        (
            "tweedie_deviance",
            {"tweedie_variance_power": 1.3},
            lambda y, p, w: sk.mean_tweedie_deviance(y, p, power=1.3, sample_weight=w),
        ),
        (
            "mphe",
            {"huber_slope": 2.0},
            lambda y, p, w: np.average(4 * (np.sqrt(1 + ((p - y) / 2) ** 2) - 1), weights=w),
        ),
    ],
)
def test_metrics(name, config, reference):
    _, labels, weights = amounts()
    owner = {
        "quantile": "quantile",
        "tweedie_deviance": "tweedie",
        "mphe": "pseudo_huber",
        "poisson_deviance": "poisson",
        "gamma_deviance": "gamma",
    }
    metric = metric_named(name, TrainingConfig(objective=owner[name], **config))
    prediction = labels[::-1].copy()
    for weight in (None, weights):
        assert metric.function(labels, prediction, weight) == pytest.approx(reference(labels, prediction, weight))
    check_metric_fits(name, owner[name])


def test_the_poisson_deviance_of_zero_counts():
    counts, prediction = np.array([0.0, 3.0, 0.0]), np.array([0.4, 2.0, 1e-9])
    assert metric_named("poisson_deviance").function(counts, prediction, None) == pytest.approx(
        sk.mean_poisson_deviance(counts, prediction)
    )


@pytest.mark.parametrize(("name", "label"), [("gamma", 0.0), ("tweedie", -0.1), ("poisson", -1.0)])
def test_labels_outside_the_range_are_refused(name, label):
    with pytest.raises(LabelOutOfRange):
        check_labels(np.array([1.0, label]), name)
    with pytest.raises(LabelOutOfRange):
        make_objective(name).base_margin(np.array([1.0, label]), None, None)


@pytest.mark.parametrize("name", ["quantile_alpha", "huber_slope", "tweedie_variance_power"])
def test_a_parameter_of_another_loss_is_refused(name):
    with pytest.raises(UnsupportedCombination, match=name):
        TrainingConfig(objective="regression", **{name: 1.2 if name != "quantile_alpha" else 0.2})


def test_where_leaves_cannot_be_quantiles():
    config = TrainingConfig(objective="absolute_error")
    with pytest.raises(UnsupportedCombination, match="no party of secagg"):
        check_config(protocol_named("secagg"), config)
    private = TrainingConfig(objective="quantile", options={"private_leaves": True, "clip": 1.0, "clip_hessian": 1.0})
    with pytest.raises(UnsupportedCombination, match="private_leaves"):
        check_config(protocol_named("ldp"), private)
    with pytest.raises(UnsupportedCombination, match="needs all rows at once"):
        check_job("disk", "plain", ("local", "disk"), config)


def test_a_base_score_that_no_step_from_zero_gives():
    """The second derivatives of all labels are below the smallest number."""
    with pytest.raises(LabelOutOfRange, match="huber_slope"):
        make_objective("pseudo_huber").base_margin(np.full(3, 1e200), None, None)
    assert make_objective("pseudo_huber").base_margin(np.full(3, 1e200), None, 7.0) == 7.0
