"""Metrics and tables of labels and scores: pure functions over arrays, with scikit-learn's metrics.

`y` are labels: 0 and 1 (binary), class codes (multiclass) or values (regression). `score` are probabilities of class 1,
probabilities (n, K), or predicted values. `weight` is None or a weight for each row. A metric that is not defined, such
as the AUC of rows of one class, is NaN.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from veilboost.types import AnyArray, BoolArray, Float64Array, Int64Array

Metrics: TypeAlias = dict[str, float]
GROUPS = 10  # deciles
_POINTS = 101  # the most points of a curve
_BARS = 20  # of a distribution
_LEAST_SHARE = 1e-4  # stands for an empty bin of the population stability index, whose logarithm does not exist
RESIDUAL_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def _sklearn() -> Any:
    return importlib.import_module("sklearn.metrics")  # heavy, so it loads when it is used


def _weights(y: AnyArray, weight: Float64Array | None) -> Float64Array:
    return np.ones(len(y)) if weight is None else weight


# --- binary -------------------------------------------------------------------------------------------------------


def binary_metrics(y: Float64Array, score: Float64Array, weight: Float64Array | None) -> Metrics:
    sk, w = _sklearn(), _weights(y, weight)
    positives, negatives = float(w[y == 1].sum()), float(w[y == 0].sum())
    found: Metrics = dict.fromkeys(("auc", "gini", "ks", "aucpr"), math.nan)
    if positives > 0 and negatives > 0:
        fpr, tpr, _ = sk.roc_curve(y, score, sample_weight=weight, drop_intermediate=False)
        found["auc"] = float(sk.auc(fpr, tpr))
        found["gini"] = 2 * found["auc"] - 1
        found["ks"] = float(np.abs(tpr - fpr).max())
    if positives > 0:
        found["aucpr"] = float(sk.average_precision_score(y, score, sample_weight=weight))
    found["logloss"] = float(sk.log_loss(y, score, sample_weight=weight, labels=[0, 1]))
    found["brier"] = float(sk.brier_score_loss(y, score, sample_weight=weight, pos_label=1))
    return found


@dataclass(frozen=True)
class Roc:
    """Shares of negatives and of positives at or above each threshold."""

    threshold: list[float]
    fpr: list[float]
    tpr: list[float]


@dataclass(frozen=True)
class PrecisionRecall:
    recall: list[float]
    precision: list[float]


@dataclass(frozen=True)
class GainRow:
    """A tenth of the rows, the highest scores first. `gain` and `cumulative_lift` include the tenths before it."""

    group: int
    rows: float
    lowest: float
    highest: float
    positives: float
    rate: float
    lift: float
    gain: float
    cumulative_lift: float
    ks: float


@dataclass(frozen=True)
class Group:
    """Rows of similar scores: the mean of their scores and of their labels."""

    rows: int
    score: float
    label: float


@dataclass(frozen=True)
class AtThreshold:
    """The confusion matrix if scores of `threshold` or more count as positive."""

    threshold: float
    true_positives: float
    false_positives: float
    false_negatives: float
    true_negatives: float
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class Distribution:
    """Shares of rows between edges, by name."""

    edges: list[float]
    shares: Mapping[str, list[float]]


@dataclass(frozen=True)
class BinaryTables:
    base_rate: float
    ks_threshold: float
    roc: Roc | None
    precision_recall: PrecisionRecall | None
    gains: list[GainRow]
    calibration: list[Group]
    thresholds: list[AtThreshold]
    distribution: Distribution


def binary_tables(
    y: Float64Array, score: Float64Array, weight: Float64Array | None, thresholds: Sequence[float]
) -> BinaryTables:
    w = _weights(y, weight)
    rate = float(w @ y / w.sum())
    roc = curve = None
    ks_threshold = math.nan
    if 0 < rate < 1:
        limits, fpr, tpr = _roc(y, score, weight)
        ks_threshold = float(limits[np.abs(tpr - fpr).argmax()])
        roc = Roc(*map(_thinned, (limits, fpr, tpr)))
    if rate > 0:
        curve = _precision_recall(y, score, weight)
    return BinaryTables(
        base_rate=rate,
        ks_threshold=ks_threshold,
        roc=roc,
        precision_recall=curve,
        gains=gains(y, score, weight) if rate > 0 else [],
        calibration=calibration(y, score, weight),
        thresholds=[at_threshold(y, score, weight, each) for each in thresholds],
        distribution=_distribution(_parts({"negatives": y == 0, "positives": y == 1}, score, w)),
    )


def _roc(y: AnyArray, score: Float64Array, weight: Float64Array | None) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Thresholds and shares; scikit-learn's first threshold is infinite, and here it is 1."""
    fpr, tpr, limits = _sklearn().roc_curve(y, score, sample_weight=weight, drop_intermediate=False)
    return np.append(max(1.0, limits[1]), limits[1:]), fpr, tpr


def _precision_recall(y: AnyArray, score: Float64Array, weight: Float64Array | None) -> PrecisionRecall:
    precision, recall, _ = _sklearn().precision_recall_curve(y, score, sample_weight=weight)
    return PrecisionRecall(_thinned(recall), _thinned(precision))


def gains(y: Float64Array, score: Float64Array, weight: Float64Array | None) -> list[GainRow]:
    """The lift and gain table. Rows of equal score share their positives evenly, so their order does not matter."""
    w = _weights(y, weight)
    ranked, place = np.unique(-score, return_inverse=True)
    rows: Float64Array = np.append(0.0, np.bincount(place, w).cumsum())
    hits: Float64Array = np.append(0.0, np.bincount(place, w * y).cumsum())
    every, total = float(rows[-1]), float(hits[-1])
    found: list[GainRow] = []
    for at in range(GROUPS):
        start, end = every * at / GROUPS, every * (at + 1) / GROUPS
        before, after = np.interp([start, end], rows, hits).tolist()
        # The end of the last tenth may exceed the sum of weights by rounding.
        starts = rows[:-1]
        first, last = int(np.searchsorted(starts, start, "right")) - 1, int(np.searchsorted(starts, end, "left")) - 1
        rate, gain = (after - before) / (end - start), after / total
        found.append(
            GainRow(
                group=at + 1,
                rows=end - start,
                lowest=float(-ranked[max(first, last)]),
                highest=float(-ranked[first]),
                positives=after - before,
                rate=rate,
                lift=rate * every / total,
                gain=gain,
                cumulative_lift=gain * every / end,
                ks=gain - (end - after) / (every - total) if every > total else math.nan,
            )
        )
    return found


def calibration(y: Float64Array, score: Float64Array, weight: Float64Array | None) -> list[Group]:
    """Mean score and mean label of groups of about equal size, as `sklearn.calibration.calibration_curve` forms them.

    Rows of equal score are in one group, so there may be fewer groups.
    """
    w, group = _weights(y, weight), _group_of(score)
    sums = [np.bincount(group, values, GROUPS) for values in (w, w * score, w * y)]
    rows = np.bincount(group, minlength=GROUPS)
    return [
        Group(int(count), float(s / total), float(label / total))
        for count, total, s, label in zip(rows, *sums, strict=True)
        if total > 0
    ]


def at_threshold(y: Float64Array, score: Float64Array, weight: Float64Array | None, threshold: float) -> AtThreshold:
    sk, said = _sklearn(), (score >= threshold).astype(np.float64)
    (tn, fp), (fn, tp) = sk.confusion_matrix(y, said, labels=[0, 1], sample_weight=weight).tolist()
    precision, recall, f1, _ = sk.precision_recall_fscore_support(
        y, said, labels=[0, 1], pos_label=1, average="binary", sample_weight=weight, zero_division=np.nan
    )
    return AtThreshold(threshold, tp, fp, fn, tn, float(precision), float(recall), float(f1))


# --- multiclass ---------------------------------------------------------------------------------------------------


def multiclass_metrics(y: Float64Array, score: Float64Array, weight: Float64Array | None) -> Metrics:
    """The one-vs-rest AUC is the mean over the classes that occur, and not all rows have.

    The Brier score is the sum of those of the classes, from 0 to 2.
    """
    sk, said, classes = _sklearn(), score.argmax(axis=1), range(score.shape[1])
    brier = [sk.brier_score_loss(y == at, score[:, at], sample_weight=weight, pos_label=1) for at in classes]
    areas = [area for area in _areas(y, score, weight) if not math.isnan(area)]
    shared: Any = {"sample_weight": weight, "zero_division": 0}
    return {
        "accuracy": float(sk.accuracy_score(y, said, sample_weight=weight)),
        "f1_macro": float(sk.f1_score(y, said, average="macro", **shared)),
        "f1_micro": float(sk.f1_score(y, said, average="micro", **shared)),
        "mlogloss": float(sk.log_loss(y, score, sample_weight=weight, labels=list(classes))),
        "brier": float(sum(brier)),
        "auc_ovr": float(np.mean(areas)) if areas else math.nan,
    }


def _areas(y: Float64Array, score: Float64Array, weight: Float64Array | None) -> list[float]:
    """The AUC of each class against the rest; NaN for a class that no row or every row has."""
    sk, w = _sklearn(), _weights(y, weight)
    found: list[float] = []
    for at in range(score.shape[1]):
        own = y == at
        both = w[own].sum() > 0 and w[~own].sum() > 0
        found.append(float(sk.roc_auc_score(own, score[:, at], sample_weight=weight)) if both else math.nan)
    return found


@dataclass(frozen=True)
class ClassRow:
    name: str
    rows: int
    precision: float
    recall: float
    f1: float
    auc: float
    aucpr: float


@dataclass(frozen=True)
class MulticlassTables:
    """`confusion` has a row for each true class and a column for each predicted class.

    `calibration` compares the probability of the predicted class with the share of right predictions. `distribution` is
    that of this probability, for right and wrong predictions.
    """

    by_class: list[ClassRow]
    confusion: list[list[float]]
    roc: Mapping[str, Roc]
    precision_recall: Mapping[str, PrecisionRecall]
    calibration: list[Group]
    distribution: Distribution


def multiclass_tables(
    y: Float64Array, score: Float64Array, weight: Float64Array | None, classes: Sequence[str]
) -> MulticlassTables:
    sk, said, codes = _sklearn(), score.argmax(axis=1), list(range(len(classes)))
    precision, recall, f1, _ = sk.precision_recall_fscore_support(
        y, said, labels=codes, sample_weight=weight, zero_division=np.nan
    )
    areas, roc, curves = _areas(y, score, weight), dict[str, Roc](), dict[str, PrecisionRecall]()
    average = dict.fromkeys(codes, math.nan)
    for at, name in enumerate(classes):
        if not math.isnan(areas[at]):
            own = y == at
            roc[name] = Roc(*map(_thinned, _roc(own, score[:, at], weight)))
            curves[name] = _precision_recall(own, score[:, at], weight)
            average[at] = float(sk.average_precision_score(own, score[:, at], sample_weight=weight))
    best, right, w = score.max(axis=1), said == y, _weights(y, weight)
    return MulticlassTables(
        by_class=[
            ClassRow(name, int((y == at).sum()), *(float(each[at]) for each in (precision, recall, f1, areas, average)))
            for at, name in enumerate(classes)
        ],
        confusion=sk.confusion_matrix(y, said, labels=codes, sample_weight=weight).astype(float).tolist(),
        roc=roc,
        precision_recall=curves,
        calibration=calibration(right.astype(np.float64), best, weight),
        distribution=_distribution(_parts({"right": right, "wrong": ~right}, best, w)),
    )


# --- regression ---------------------------------------------------------------------------------------------------


def regression_metrics(y: Float64Array, score: Float64Array, weight: Float64Array | None) -> Metrics:
    """R2 needs labels that differ, and MAPE labels that are not 0."""
    sk = _sklearn()
    given: Any = {"sample_weight": weight}
    return {
        "rmse": float(sk.root_mean_squared_error(y, score, **given)),
        "mae": float(sk.mean_absolute_error(y, score, **given)),
        "r2": float(sk.r2_score(y, score, **given)) if y.min() < y.max() else math.nan,
        "mape": float(sk.mean_absolute_percentage_error(y, score, **given)) if (y != 0).all() else math.nan,
    }


@dataclass(frozen=True)
class Residuals:
    """Quantiles (`RESIDUAL_QUANTILES`) of label minus prediction, of all rows or of a tenth of them."""

    rows: int
    score: float
    quantiles: list[float]


@dataclass(frozen=True)
class RegressionTables:
    calibration: list[Group]
    residuals: Residuals
    residuals_by_group: list[Residuals]
    distribution: Distribution


def regression_tables(y: Float64Array, score: Float64Array, weight: Float64Array | None) -> RegressionTables:
    w, group = _weights(y, weight), _group_of(score)

    def residuals(rows: AnyArray) -> Residuals:
        mean = float(w[rows] @ score[rows] / w[rows].sum())
        return Residuals(int(rows.sum()), mean, quantiles((y - score)[rows], w[rows], RESIDUAL_QUANTILES))

    each = [group == at for at in range(GROUPS)]
    return RegressionTables(
        calibration=calibration(y, score, weight),
        residuals=residuals(np.ones(len(y), dtype=np.bool_)),
        residuals_by_group=[residuals(rows) for rows in each if w[rows].sum() > 0],
        distribution=_distribution({"labels": (y, w), "predictions": (score, w)}),
    )


def quantiles(values: Float64Array, weight: Float64Array, at: Sequence[float]) -> list[float]:
    """The least values that these shares of the weight do not exceed."""
    order = np.argsort(values, kind="stable")
    below = weight[order].cumsum()
    wanted = [float(each * below[-1] * (1 - 1e-12)) for each in at]
    return [float(values[order[min(int(np.searchsorted(below, each)), len(values) - 1)]]) for each in wanted]


# --- stability ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StabilityBin:
    name: str
    reference: float
    new: float


@dataclass(frozen=True)
class Stability:
    """The population stability index of new scores, and the shares of rows that it compares."""

    psi: float
    reference_rows: int
    bins: list[StabilityBin]


def stability(reference: Float64Array, new: Float64Array) -> Stability:
    """The population stability index over the deciles of the reference scores."""
    edges = np.unique(np.quantile(reference, np.arange(1, GROUPS) / GROUPS))
    ends = ["", *(f"{edge:.4g}" for edge in edges), ""]
    names = [
        f"up to {high}" if not low else f"above {low}" if not high else f"{low} to {high}"
        for low, high in pairwise(ends)
    ]
    return _stability(names, np.searchsorted(edges, reference), np.searchsorted(edges, new))


def class_stability(classes: Sequence[str], reference: Float64Array, new: Float64Array) -> Stability:
    """The population stability index over the predicted classes."""
    return _stability(classes, reference.argmax(axis=1), new.argmax(axis=1))


def _stability(names: Sequence[str], reference: Int64Array, new: Int64Array) -> Stability:
    shares = [np.bincount(each, minlength=len(names)) / len(each) for each in (reference, new)]
    expected, actual = (np.maximum(share, _LEAST_SHARE) for share in shares)
    index = float(((actual - expected) * np.log(actual / expected)).sum())
    bins = [StabilityBin(name, *map(float, pair)) for name, *pair in zip(names, *shares, strict=True)]
    return Stability(index, len(reference), bins)


# --- bootstrap ----------------------------------------------------------------------------------------------------


def bootstrap(
    measure: Callable[[Float64Array, Float64Array, Float64Array | None], Metrics],
    y: Float64Array,
    score: Float64Array,
    weight: Float64Array | None,
    repeats: int,
    random_state: int,
) -> dict[str, tuple[float, float]]:
    """95 % percentile intervals of metrics over rows drawn with replacement. Samples without a value are left out."""
    random, values = np.random.default_rng(random_state), dict[str, list[float]]()
    for _ in range(repeats):
        rows = random.integers(len(y), size=len(y))
        own = None if weight is None else weight[rows]
        if own is not None and not own.sum() > 0:
            continue
        for name, value in measure(y[rows], score[rows], own).items():
            if not math.isnan(value):
                values.setdefault(name, []).append(value)
    return {name: (float(np.quantile(of, 0.025)), float(np.quantile(of, 0.975))) for name, of in values.items()}


# --- shared -------------------------------------------------------------------------------------------------------


def _group_of(score: Float64Array) -> Int64Array:
    return np.searchsorted(np.quantile(score, np.arange(1, GROUPS) / GROUPS), score)


def _thinned(values: AnyArray) -> list[float]:
    """At most so many of the values, the first and the last among them."""
    if len(values) > _POINTS:
        values = values[np.linspace(0, len(values) - 1, _POINTS).round().astype(np.int64)]
    return values.astype(np.float64).tolist()


def _parts(
    of: Mapping[str, BoolArray], values: Float64Array, weight: Float64Array
) -> dict[str, tuple[Float64Array, Float64Array]]:
    """The values and the weights of the rows of each part that has rows."""
    return {name: (values[rows], weight[rows]) for name, rows in of.items() if rows.any()}


def _distribution(of: Mapping[str, tuple[Float64Array, Float64Array]]) -> Distribution:
    every = np.concatenate([values for values, _ in of.values()])
    edges = np.histogram_bin_edges(every, _BARS)
    counts = {name: np.histogram(values, edges, weights=weight)[0] for name, (values, weight) in of.items()}
    return Distribution(
        edges.tolist(), {name: (count / max(count.sum(), 1e-300)).tolist() for name, count in counts.items()}
    )
