"""The charts of an evaluation, from its plain values (`Evaluation.to_dict`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from veilboost.report.plots import Point, line_chart

WIDE, HIGH = 460, 330  # two fit side by side, and one is readable on a phone
_CHANCE, _IDEAL = "chance", "ideal"
_MOST_CLASSES = 8  # in one chart
_QUANTILES = ("5 %", "25 %", "median", "75 %", "95 %")


def evaluation_charts(found: Mapping[str, Any]) -> list[str]:
    tables: Mapping[str, Any] = found["tables"]
    drawn = {"binary": _binary, "multiclass": _multiclass, "regression": _regression}[found["kind"]](tables)
    if found["stability"] is not None:
        drawn.append(_stability(found["stability"]))
    return drawn


def _binary(tables: Mapping[str, Any]) -> list[str]:
    drawn: list[str] = []
    roc, recall = tables["roc"], tables["precision_recall"]
    if roc is not None:
        drawn.append(_roc({"model": roc}))
        ks = {
            "share of positives": _points(roc["threshold"], roc["tpr"]),
            "share of negatives": _points(roc["threshold"], roc["fpr"]),
        }
        drawn.append(_chart("KS: rows at or above a score", "score", "share of rows", ks))
    if recall is not None:
        curve = {"model": _points(recall["recall"], recall["precision"])}
        level = {"share of positives": tables["base_rate"]}
        drawn.append(_chart("Precision and recall", "recall", "precision", curve, across=level))
    if tables["gains"]:
        gain = [(0.0, 0.0), *((each["group"] / len(tables["gains"]), each["gain"]) for each in tables["gains"])]
        labels = ("share of rows, highest scores first", "share of positives")
        drawn.append(_chart("Gain: positives found", *labels, {"model": gain}, diagonal=(_CHANCE, 0.0, 1.0)))
    drawn.append(_calibration("Calibration", tables["calibration"], "mean score", "share of positives"))
    drawn.append(_distribution("Distribution of scores", "score", tables["distribution"]))
    return drawn


def _multiclass(tables: Mapping[str, Any]) -> list[str]:
    drawn: list[str] = []
    names = list(tables["roc"])[:_MOST_CLASSES]
    if names:
        drawn.append(_roc({name: tables["roc"][name] for name in names}, "ROC of each class against the rest"))
        curves = {name: tables["precision_recall"][name] for name in names}
        lines = {name: _points(each["recall"], each["precision"]) for name, each in curves.items()}
        drawn.append(_chart("Precision and recall of each class", "recall", "precision", lines))
    mean, label = "mean probability of the predicted class", "share of right predictions"
    drawn.append(_calibration("Calibration", tables["calibration"], mean, label))
    of = "probability of the predicted class"
    drawn.append(_distribution("Distribution of the predicted class's probability", of, tables["distribution"]))
    return drawn


def _regression(tables: Mapping[str, Any]) -> list[str]:
    groups: Sequence[Mapping[str, Any]] = tables["residuals_by_group"]
    lines = {
        name: [(each["score"], each["quantiles"][at]) for each in groups] for at, name in enumerate(_QUANTILES)
    }  # fmt: skip
    return [
        _calibration("Calibration by decile", tables["calibration"], "mean prediction", "mean label"),
        _chart(
            "Residuals by decile of the prediction", "mean prediction", "label minus prediction", lines,
            across={"no error": 0.0}, dashed=(_QUANTILES[0], _QUANTILES[-1]),
        ),
        _distribution("Distribution of labels and predictions", "value", tables["distribution"]),
    ]  # fmt: skip


def _roc(curves: Mapping[str, Mapping[str, Any]], title: str = "ROC curve") -> str:
    lines = {name: _points(each["fpr"], each["tpr"]) for name, each in curves.items()}
    labels = ("share of negatives (false positive rate)", "share of positives (true positive rate)")
    return _chart(title, *labels, lines, diagonal=(_CHANCE, 0.0, 1.0))


def _calibration(title: str, groups: Sequence[Mapping[str, Any]], x: str, y: str) -> str:
    points = [(each["score"], each["label"]) for each in groups]
    ends = [value for point in points for value in point]
    return _chart(title, x, y, {"model": points}, diagonal=(_IDEAL, min(ends), max(ends)))


def _distribution(title: str, x: str, found: Mapping[str, Any]) -> str:
    middles = [(low + high) / 2 for low, high in pairwise(found["edges"])]
    return _chart(title, x, "share of rows", {name: _points(middles, each) for name, each in found["shares"].items()})


def _stability(found: Mapping[str, Any]) -> str:
    bins: Sequence[Mapping[str, float]] = found["bins"]
    lines = {name: [(at + 1.0, each[name]) for at, each in enumerate(bins)] for name in ("reference", "new")}
    title = f"Population stability index {found['psi']:.4f}"
    return _chart(title, "bin of the reference scores", "share of rows", lines)


def _points(x: Sequence[float], y: Sequence[float]) -> list[Point]:
    return list(zip(x, y, strict=True))


def _chart(
    title: str,
    x: str,
    y: str,
    lines: Mapping[str, Sequence[Point]],
    *,
    diagonal: tuple[str, float, float] | None = None,
    across: Mapping[str, float] | None = None,
    dashed: Sequence[str] = (),
) -> str:
    series = dict(lines)
    if diagonal is not None:
        name, low, high = diagonal
        series[name], dashed = [(low, low), (high, high)], (*dashed, name)
    return line_chart(title, x, y, series, across=across, dashed=dashed, width=WIDE, height=HIGH)
