"""Metrics against scikit-learn and SciPy, and what they refuse."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import ks_2samp
from sklearn import metrics as sk

from veilboost.boost import metrics
from veilboost.boost.metrics import check_metric_fits, metric_named
from veilboost.config import METRICS
from veilboost.errors import InvalidParameter, LabelOutOfRange, UnsupportedCombination

pytestmark = pytest.mark.fast

RANKING = (metrics.auc, metrics.aucpr, metrics.ks)
BINARY = (*RANKING, metrics.logloss, metrics.error)
SINGLE = (*BINARY, metrics.rmse, metrics.mae)
CLASSES = (metrics.mlogloss, metrics.merror)


@pytest.fixture(params=["distinct", "ties"])
def binary(request):
    rng = np.random.default_rng(11)
    y = (rng.random(400) < 0.3).astype(float)
    p = np.clip(rng.random(400) * 0.7 + 0.3 * y, 0.01, 0.99)
    return y, (np.round(p, 1) if request.param == "ties" else p)


@pytest.fixture(params=["none", "some", "with zeros"])
def weight(request):
    rng = np.random.default_rng(12)
    if request.param == "none":
        return None
    weight = rng.random(400) * 3.0
    return weight * (rng.random(400) < 0.5) if request.param == "with zeros" else weight


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (metrics.auc, sk.roc_auc_score),
        (metrics.aucpr, sk.average_precision_score),
        (metrics.logloss, sk.log_loss),
        (
            metrics.error,
            lambda y, p, sample_weight: sk.zero_one_loss(y, p > 0.5, sample_weight=sample_weight),
        ),
        (metrics.rmse, sk.root_mean_squared_error),
        (metrics.mae, sk.mean_absolute_error),
    ],
    ids=lambda function: function.__name__,
)
def test_binary_metrics_are_scikit_learns(ours, theirs, binary, weight):
    y, p = binary
    assert ours(y, p, weight) == pytest.approx(theirs(y, p, sample_weight=weight), rel=1e-12)


def test_ks_is_scipys(binary):
    y, p = binary
    assert metrics.ks(y, p) == pytest.approx(ks_2samp(p[y == 1.0], p[y == 0.0]).statistic, rel=1e-12)


def test_weighted_ks_is_the_roc_curves(binary, weight):
    y, p = binary
    fpr, tpr, _ = sk.roc_curve(y, p, sample_weight=weight, drop_intermediate=False)
    assert metrics.ks(y, p, weight) == pytest.approx(np.abs(tpr - fpr).max(), rel=1e-12)


def test_ks_takes_both_directions():
    y, p = np.array([0.0, 0.0, 1.0, 1.0]), np.array([0.9, 0.8, 0.2, 0.1])
    assert metrics.ks(y, p) == 1.0
    assert metrics.auc(y, p) == 0.0


@pytest.mark.parametrize("sharp", [False, True])
def test_class_metrics_are_scikit_learns(weight, sharp):
    rng = np.random.default_rng(13)
    y = rng.integers(0, 4, 400).astype(float)
    p = rng.dirichlet(np.full(4, 0.01 if sharp else 1.0), 400)
    assert metrics.mlogloss(y, p, weight) == pytest.approx(
        sk.log_loss(y, p, sample_weight=weight, labels=range(4)), rel=1e-12
    )
    assert metrics.merror(y, p, weight) == pytest.approx(
        sk.zero_one_loss(y, p.argmax(axis=1), sample_weight=weight), rel=1e-12
    )


def test_sure_mistakes_stay_finite():
    assert metrics.logloss(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == pytest.approx(36.04, abs=0.01)
    assert metrics.logloss(np.array([1.0, 0.0]), np.array([1.0, 0.0])) < 1e-15
    assert metrics.mlogloss(np.array([1.0]), np.array([[1.0, 0.0]])) == pytest.approx(36.04, abs=0.01)


def test_one_half_says_no():
    assert metrics.error(np.array([0.0, 1.0]), np.array([0.5, 0.5])) == 0.5
    assert metrics.error(np.array([0.0, 0.0]), np.array([0.5, 0.5])) == 0.0


def test_constant_predictions_rank_nothing():
    y, p = np.array([0.0, 1.0, 1.0, 0.0, 0.0]), np.full(5, 0.4)
    assert metrics.auc(y, p) == 0.5
    assert metrics.aucpr(y, p) == pytest.approx(0.4)
    assert metrics.ks(y, p) == 0.0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("label", [0.0, 1.0])
def test_one_class_cannot_be_ranked(label):
    y, p = np.full(3, label), np.array([0.1, 0.2, 0.3])
    assert math.isnan(metrics.auc(y, p))
    assert math.isnan(metrics.ks(y, p))
    if label == 0.0:
        assert math.isnan(metrics.aucpr(y, p))
    else:
        assert metrics.aucpr(y, p) == 1.0


@pytest.mark.filterwarnings("error")
def test_a_class_without_weight_cannot_be_ranked():
    y, p, weight = np.array([0.0, 1.0]), np.array([0.1, 0.9]), np.array([1.0, 0.0])
    assert all(math.isnan(metric(y, p, weight)) for metric in RANKING)


def test_whole_numbers_are_welcome_as_labels():
    y, p, weight = np.array([0, 1, 1, 0]), np.array([0.1, 0.9, 0.4, 0.5]), np.array([1.0, 2.0, 3.0, 4.0])
    for metric in SINGLE:
        assert metric(y, p, weight) == metric(y.astype(float), p, weight)


@pytest.mark.parametrize("metric", SINGLE, ids=lambda function: function.__name__)
@pytest.mark.parametrize(
    ("y", "p", "weight"),
    [
        (np.zeros(0), np.zeros(0), None),
        (np.zeros((3, 1)), np.zeros((3, 1)), None),
        (np.array([0.0, 1.0]), np.zeros((2, 1)), None),
        (np.array([0.0, 1.0]), np.zeros(3), None),
        (np.array([0.0, 1.0]), np.array([0.5, np.nan]), None),
        (np.array([0.0, 1.0]), np.zeros(2), np.ones(1)),
        (np.array([0.0, 1.0]), np.zeros(2), np.zeros(2)),
        (np.array([0.0, 1.0]), np.zeros(2), np.array([2.0, -1.0])),
        (np.array([0.0, 1.0]), np.zeros(2), np.array([2.0, np.nan])),
    ],
)
def test_what_means_nothing_is_refused(metric, y, p, weight):
    with pytest.raises(InvalidParameter):
        metric(y, p, weight)


@pytest.mark.parametrize("metric", CLASSES, ids=lambda function: function.__name__)
def test_class_metrics_refuse_what_they_cannot_read(metric):
    with pytest.raises(InvalidParameter):
        metric(np.array([0.0, 1.0]), np.array([0.5, 0.5]), None)
    with pytest.raises(InvalidParameter):
        metric(np.array([0.0, 1.0]), np.full((3, 2), 0.5), None)
    for label in (2.0, -1.0, math.nan):
        with pytest.raises(LabelOutOfRange):
            metric(np.array([0.0, label]), np.full((2, 2), 0.5), None)


@pytest.mark.parametrize("metric", BINARY, ids=lambda function: function.__name__)
@pytest.mark.parametrize("label", [2.0, -1.0, math.nan])
def test_binary_metrics_refuse_other_labels(metric, label):
    with pytest.raises(LabelOutOfRange):
        metric(np.array([0.0, label]), np.array([0.5, 0.6]), None)


@pytest.mark.parametrize("name", METRICS[1:])
def test_every_metric_of_the_configuration_exists(name):
    metric = metric_named(name)
    assert metric.name == name
    # Metrics with a parameter are made for it.
    assert metric.function is getattr(metrics, name, metric.function)
    assert metric.higher_is_better == (name in ("auc", "aucpr", "ks"))


@pytest.mark.parametrize("name", ["auto", "AUC", ""])
def test_unknown_metrics_are_refused(name):
    with pytest.raises(InvalidParameter, match="metric"):
        metric_named(name)


@pytest.mark.parametrize(
    ("metric", "objective"),
    [
        ("auc", "regression"),
        ("auc", "multiclass"),
        ("mlogloss", "binary"),
        ("rmse", "multiclass"),
        ("logloss", "custom"),
    ],
)
def test_metrics_that_do_not_fit_are_refused(metric, objective):
    with pytest.raises(UnsupportedCombination, match=objective):
        check_metric_fits(metric, objective)


def test_fitting_needs_known_names():
    check_metric_fits("ks", "binary")
    with pytest.raises(InvalidParameter):
        check_metric_fits("nothing", "binary")
    with pytest.raises(InvalidParameter):
        check_metric_fits("auc", "nothing")
