"""Metrics and tables: by hand on few rows, and against scikit-learn on many."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn import metrics as sk
from sklearn.calibration import calibration_curve

from veilboost.boost.metrics import METRIC_INFO, auc, aucpr, ks, logloss
from veilboost.evaluation import measures
from veilboost.evaluation.measures import (
    binary_metrics,
    binary_tables,
    bootstrap,
    calibration,
    class_stability,
    gains,
    multiclass_metrics,
    multiclass_tables,
    quantiles,
    regression_metrics,
    regression_tables,
    stability,
)

pytestmark = [pytest.mark.fast, pytest.mark.filterwarnings("error")]

Y = np.array([1.0, 0.0, 1.0, 0.0])
SCORE = np.array([0.9, 0.8, 0.7, 0.1])


def problem(rows: int = 400, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, scores with ties, weights."""
    random = np.random.default_rng(seed)
    score = random.random(rows).round(2)
    return (random.random(rows) < score).astype(float), score, random.random(rows) + 0.1


# --- binary -------------------------------------------------------------------------------------------------------


def test_binary_metrics_by_hand() -> None:
    found = binary_metrics(Y, SCORE, None)
    assert found["auc"] == 0.75  # three of four pairs are in order
    assert found["gini"] == 0.5
    assert found["ks"] == 0.5  # at or above 0.9: half of the positives, no negative
    assert found["aucpr"] == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)
    assert found["brier"] == pytest.approx((0.01 + 0.64 + 0.09 + 0.01) / 4)
    assert found["logloss"] == pytest.approx(-np.log([0.9, 0.2, 0.7, 0.9]).mean())


@pytest.mark.parametrize("weighted", [False, True])
def test_binary_metrics_are_those_of_scikit_learn_and_of_training(weighted: bool) -> None:
    y, score, weight = problem()
    w = weight if weighted else None
    found = binary_metrics(y, score, w)
    assert found["auc"] == pytest.approx(sk.roc_auc_score(y, score, sample_weight=w))
    for name, ours in {"auc": auc, "aucpr": aucpr, "ks": ks, "logloss": logloss}.items():
        assert found[name] == pytest.approx(ours(y, score, w)), name
    assert found["brier"] == pytest.approx(sk.brier_score_loss(y, score, sample_weight=w))


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_one_class_leaves_ranking_metrics_undefined(label: float) -> None:
    y = np.full(4, label)
    found = binary_metrics(y, SCORE, None)
    assert math.isnan(found["auc"])
    assert math.isnan(found["gini"])
    assert math.isnan(found["ks"])
    assert math.isnan(found["aucpr"]) == (label == 0)
    assert found["brier"] == pytest.approx(np.square(SCORE - label).mean())
    assert found["logloss"] == pytest.approx(logloss(y, SCORE, None))
    tables = binary_tables(y, SCORE, None, [0.5])
    assert tables.roc is None
    assert len(tables.gains) == (10 if label else 0)


def test_constant_scores_are_one_threshold() -> None:
    found = binary_metrics(Y, np.full(4, 0.3), None)
    assert (found["auc"], found["gini"], found["ks"], found["aucpr"]) == (0.5, 0.0, 0.0, 0.5)
    tables = binary_tables(Y, np.full(4, 0.3), None, [0.3, 0.31])
    assert [each.lift for each in tables.gains] == pytest.approx([1.0] * 10)
    assert [(each.true_positives, each.false_positives) for each in tables.thresholds] == [(2, 2), (0, 0)]
    assert [(group.rows, group.score, group.label) for group in tables.calibration] == [(4, pytest.approx(0.3), 0.5)]


def test_lift_and_gain_by_hand() -> None:
    # 20 rows, 5 positives: two in the first tenth, one in each of the next three.
    y = np.zeros(20)
    y[[0, 1, 2, 5, 6]] = 1
    found = gains(y, np.linspace(0.95, 0.0, 20), None)
    assert [row.positives for row in found] == [2, 1, 1, 1, 0, 0, 0, 0, 0, 0]
    assert [row.rate for row in found][:2] == [1.0, 0.5]
    assert [row.lift for row in found][:2] == [4.0, 2.0]
    assert [row.gain for row in found][:4] == pytest.approx([0.4, 0.6, 0.8, 1.0])
    assert [row.cumulative_lift for row in found][:4] == pytest.approx([4.0, 3.0, 0.8 / 0.3, 2.5])
    assert (found[0].highest, found[0].lowest) == pytest.approx((0.95, 0.90))
    assert (found[9].highest, found[9].lowest) == pytest.approx((0.05, 0.0))
    assert found[3].ks == pytest.approx(1.0 - 3 / 15)


def test_lift_does_not_depend_on_the_order_of_ties_and_counts_weights() -> None:
    y, score, weight = problem()
    score = score.round(1)
    order = np.random.default_rng(3).permutation(len(y))
    mine, shuffled = gains(y, score, None), gains(y[order], score[order], None)
    assert [row.positives for row in mine] == pytest.approx([row.positives for row in shuffled])
    assert sum(row.positives for row in mine) == pytest.approx(y.sum())
    weighted = gains(y, score, weight)
    assert sum(row.positives for row in weighted) == pytest.approx(y @ weight)
    doubled = gains(np.tile(y, 2), np.tile(score, 2), None)
    assert [row.rate for row in doubled] == pytest.approx([row.rate for row in gains(y, score, np.full(len(y), 2.0))])


def test_lift_ends_at_the_last_row_whatever_the_weights_add_up_to() -> None:
    for seed in range(100):
        y, score, weight = problem(7, seed)
        y[0] = 1.0
        last = gains(y, score, weight)[-1]
        assert last.lowest == score.min()
        assert last.gain == pytest.approx(1.0)


def test_calibration_groups_are_those_of_scikit_learn() -> None:
    y, score, weight = problem()
    label, mean = calibration_curve(y, score, n_bins=10, strategy="quantile")
    found = calibration(y, score, None)
    assert [group.label for group in found] == pytest.approx(label)
    assert [group.score for group in found] == pytest.approx(mean)
    assert sum(group.rows for group in found) == len(y)
    repeated = np.round(weight * 10).astype(int)
    weighted = calibration(y, score, repeated.astype(float))
    overall = sum(g.label * repeated[measures._group_of(score) == at].sum() for at, g in enumerate(weighted))
    assert overall == pytest.approx(y @ repeated)


def test_confusion_at_thresholds() -> None:
    high, low = binary_tables(Y, SCORE, None, [0.75, 0.1]).thresholds
    assert (high.true_positives, high.false_positives, high.false_negatives, high.true_negatives) == (1, 1, 1, 1)
    assert (high.precision, high.recall, high.f1) == (0.5, 0.5, 0.5)
    assert (low.true_positives, low.false_positives, low.recall) == (2, 2, 1.0)  # the threshold itself is positive
    nothing = binary_tables(Y, SCORE, None, [0.95]).thresholds[0]
    assert math.isnan(nothing.precision)
    assert nothing.recall == 0.0


def test_curves_begin_and_end_at_the_corners_and_are_short() -> None:
    y, score, _ = problem(5000)
    tables = binary_tables(y, np.random.default_rng(0).random(5000), None, [])
    assert tables.roc is not None
    assert tables.precision_recall is not None
    assert len(tables.roc.fpr) == 101
    assert (tables.roc.fpr[0], tables.roc.tpr[0], tables.roc.fpr[-1], tables.roc.tpr[-1]) == (0, 0, 1, 1)
    assert np.isfinite(tables.roc.threshold).all()
    assert (tables.precision_recall.recall[0], tables.precision_recall.recall[-1]) == (1, 0)
    for share in binary_tables(y, score, None, []).distribution.shares.values():
        assert sum(share) == pytest.approx(1.0)


# --- multiclass ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_multiclass_metrics_are_those_of_scikit_learn(weighted: bool) -> None:
    random = np.random.default_rng(2)
    y = random.integers(3, size=200).astype(float)
    score = random.dirichlet(np.ones(3), size=200)
    w = random.random(200) if weighted else None
    found, said = multiclass_metrics(y, score, w), score.argmax(axis=1)
    assert found["accuracy"] == pytest.approx(sk.accuracy_score(y, said, sample_weight=w))
    assert found["f1_macro"] == pytest.approx(sk.f1_score(y, said, average="macro", sample_weight=w))
    assert found["f1_micro"] == pytest.approx(found["accuracy"])
    assert found["mlogloss"] == pytest.approx(sk.log_loss(y, score, sample_weight=w))
    assert found["auc_ovr"] == pytest.approx(sk.roc_auc_score(y, score, multi_class="ovr", sample_weight=w))
    tables = multiclass_tables(y, score, w, ("a", "b", "c"))
    assert np.allclose(tables.confusion, sk.confusion_matrix(y, said, sample_weight=w))
    assert [row.rows for row in tables.by_class] == np.bincount(y.astype(int)).tolist()
    assert set(tables.roc) == set(tables.precision_recall) == {"a", "b", "c"}
    for at, row in enumerate(tables.by_class):
        assert row.aucpr == pytest.approx(sk.average_precision_score(y == at, score[:, at], sample_weight=w))
    shares = np.ones(200) if w is None else w
    squares = ((score - np.eye(3)[y.astype(int)]) ** 2).sum(axis=1)
    assert found["brier"] == pytest.approx(np.average(squares, weights=shares))


def test_the_probability_of_the_predicted_class_is_compared_with_right_predictions() -> None:
    score = np.repeat([[0.8, 0.1, 0.1], [0.1, 0.3, 0.6]], [8, 2], axis=0)
    y = np.array([0.0] * 6 + [1.0] * 2 + [2.0, 0.0])
    tables = multiclass_tables(y, score, None, ("a", "b", "c"))
    found = [(group.rows, group.score, group.label) for group in tables.calibration]
    assert found == [(2, pytest.approx(0.6), 0.5), (8, pytest.approx(0.8), 0.75)]
    shares = tables.distribution.shares
    assert (shares["right"][0], shares["right"][-1]) == (pytest.approx(1 / 7), pytest.approx(6 / 7))
    assert (shares["wrong"][0], shares["wrong"][-1]) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
    only_right = multiclass_tables(np.zeros(8), score[:8], None, ("a", "b", "c"))
    assert (only_right.precision_recall, set(only_right.distribution.shares)) == ({}, {"right"})


def test_a_class_without_rows_is_left_out_of_the_mean() -> None:
    y, score = np.array([0.0, 1.0, 0.0]), np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.8, 0.1]])
    assert multiclass_metrics(y, score, None)["auc_ovr"] == 0.5  # one of two pairs of both classes
    last = multiclass_tables(y, score, None, ("a", "b", "c")).by_class[2]
    assert (last.rows, math.isnan(last.auc), math.isnan(last.precision)) == (0, True, True)
    assert math.isnan(multiclass_metrics(np.zeros(3), score, None)["auc_ovr"])


# --- regression ---------------------------------------------------------------------------------------------------


def test_regression_metrics_by_hand() -> None:
    found = regression_metrics(np.array([1.0, 2.0, 4.0]), np.array([1.0, 3.0, 2.0]), None)
    assert found["rmse"] == pytest.approx(math.sqrt(5 / 3))
    assert found["mae"] == 1.0
    assert found["mape"] == pytest.approx((0 + 0.5 + 0.5) / 3)
    assert found["r2"] == pytest.approx(1 - 5 / (14 / 3))
    assert regression_metrics(np.array([1.0, 3.0]), np.zeros(2), np.array([3.0, 1.0]))["mae"] == 1.5


def test_undefined_regression_metrics() -> None:
    assert math.isnan(regression_metrics(np.array([0.0, 1.0]), np.ones(2), None)["mape"])
    assert math.isnan(regression_metrics(np.ones(3), np.ones(3), None)["r2"])
    assert math.isnan(regression_metrics(np.ones(1), np.ones(1), None)["r2"])


def test_residuals_by_tenths_of_the_prediction() -> None:
    random = np.random.default_rng(4)
    score = random.normal(size=500)
    y = score + random.normal(size=500)
    tables = regression_tables(y, score, None)
    expected = np.quantile(y - score, measures.RESIDUAL_QUANTILES, method="inverted_cdf")
    assert tables.residuals.quantiles == pytest.approx(expected)
    assert [each.rows for each in tables.residuals_by_group] == [50] * 10
    weight = random.integers(1, 4, size=500)
    repeated = np.quantile(np.repeat(y, weight), [0.1, 0.5], method="inverted_cdf")
    assert quantiles(y, weight.astype(float), [0.1, 0.5]) == pytest.approx(repeated)


# --- stability and intervals --------------------------------------------------------------------------------------


def test_stability_by_hand() -> None:
    reference = np.linspace(0.0, 1.0, 101)
    assert stability(reference, reference).psi == 0.0
    shifted = stability(reference, np.full(50, 0.95))
    # Every tenth but the last lost its share: 10 or 11 of 101 rows against the least share.
    shares = np.array([each.reference for each in shifted.bins])
    actual = np.maximum([each.new for each in shifted.bins], 1e-4)
    assert shifted.psi == pytest.approx(((actual - shares) * np.log(actual / shares)).sum())
    assert shifted.bins[-1].new == 1.0
    assert len(shifted.bins) == 10
    half = class_stability(("a", "b"), np.eye(2)[[0, 0, 1, 1]], np.eye(2)[[0, 1, 1, 1]])
    assert half.psi == pytest.approx((0.25 - 0.5) * math.log(0.5) + (0.75 - 0.5) * math.log(1.5))


def test_ties_in_the_reference_make_fewer_bins() -> None:
    found = stability(np.array([0.1] * 50 + [0.9] * 50), np.array([0.1] * 50 + [0.9] * 50))
    assert found.psi == 0.0
    assert sum(each.reference for each in found.bins) == pytest.approx(1.0)


def test_intervals_are_a_function_of_the_random_state() -> None:
    y, score, weight = problem(200)
    first = bootstrap(binary_metrics, y, score, weight, 50, 7)
    assert first == bootstrap(binary_metrics, y, score, weight, 50, 7)
    assert first != bootstrap(binary_metrics, y, score, weight, 50, 8)
    value = binary_metrics(y, score, weight)
    for name, (low, high) in first.items():
        assert low < high
        assert low - 0.1 < value[name] < high + 0.1
    # Samples of one class have no AUC, and the others still give an interval.
    low, high = bootstrap(binary_metrics, Y[:2], SCORE[:2], None, 50, 0)["auc"]
    assert low == high == 1.0


def test_every_metric_has_a_title() -> None:
    y, score, _ = problem(50)
    found = [
        binary_metrics(y, score, None),
        multiclass_metrics(y, np.stack((1 - score, score), axis=1), None),
        regression_metrics(y, score, None),
    ]
    assert {name for each in found for name in each} <= METRIC_INFO.keys()
