"""An evaluation as tables and charts, for pages and for the terminal, from its plain values (`Evaluation.to_dict`)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veilboost.boost.metrics import METRIC_INFO
from veilboost.errors import UnreadableFile
from veilboost.report.evaluation_plots import evaluation_charts

FILE = "evaluation.json"
FORMAT, VERSION = "veilboost-evaluation", 1
_MISSING = "undefined"


@dataclass(frozen=True)
class ShownTable:
    """A table of texts; the first column names the rows, and all others are numbers."""

    caption: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class ShownEvaluation:
    """`lines` say which rows were evaluated."""

    lines: Sequence[str]
    metrics: ShownTable
    tables: Sequence[ShownTable]
    charts: Sequence[str]


def shown(found: Mapping[str, Any]) -> ShownEvaluation:
    """The content of an evaluation."""
    kind: str = found["kind"]
    of_kind = {"binary": _binary, "multiclass": _multiclass, "regression": _regression}[kind]
    tables = of_kind(found["tables"])
    if found["segments"]:
        tables.append(_segments(found["segments"], found["segment_column"], kind))
    if found["stability"] is not None:
        tables.append(_stability(found["stability"]))
    weighted = ", weighted" if found["weighted"] else ""
    lines = [f"{kind}: {found['rows']} rows{weighted}"]
    lines += [f"{count} rows {reason} are left out" for reason, count in found["skipped"].items()]
    if kind == "binary" and found["tables"]["roc"] is not None:
        lines.append(f"the KS is that of the score {number(found['tables']['ks_threshold'])}")
    return ShownEvaluation(lines, _metrics(found["metrics"], found["bootstrap"]), tables, evaluation_charts(found))


def load_evaluation(file: Path) -> Mapping[str, Any]:
    """The output of `veilboost evaluate --json`; raises `UnreadableFile` for anything else."""
    try:
        found: Any = json.loads(file.read_text(encoding="utf-8"))
        if (found["format"], found["version"]) != (FORMAT, VERSION):
            raise ValueError
        shown(found)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        raise UnreadableFile(f"{file} holds no evaluation", "write it with veilboost evaluate --json") from None
    return found


def number(value: float | None, digits: int = 4) -> str:
    return _MISSING if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def _count(value: float) -> str:
    return f"{value:.0f}" if value == round(value) else f"{value:.1f}"


def _metrics(found: Mapping[str, Mapping[str, Any]], repeats: int) -> ShownTable:
    interval = ("95 % interval",) if repeats else ()
    caption = f"Metrics, with intervals of {repeats} bootstrap samples" if repeats else "Metrics"
    rows: list[Sequence[str]] = []
    for name, each in found.items():
        info = METRIC_INFO[name]
        ends = (f"{number(each['low'])} to {number(each['high'])}" if each["low"] is not None else _MISSING,)
        rows.append((info.title, number(each["value"]), *(ends if repeats else ()), info.direction))
    return ShownTable(caption, ("metric", "value", *interval, "direction"), rows)


def _binary(tables: Mapping[str, Any]) -> list[ShownTable]:
    headers = ("tenth", "rows", "lowest score", "positives", "rate", "lift", "gain", "total lift", "KS")
    gains = [
        (
            str(each["group"]), _count(each["rows"]), number(each["lowest"]),
            _count(each["positives"]), number(each["rate"]), number(each["lift"], 2), number(each["gain"]),
            number(each["cumulative_lift"], 2), number(each["ks"]),
        )
        for each in tables["gains"]
    ]  # fmt: skip
    counts = ("true_positives", "false_positives", "false_negatives", "true_negatives")
    at = [
        (
            f"{each['threshold']:g}", *(_count(each[name]) for name in counts),
            *(number(each[name]) for name in ("precision", "recall", "f1")),
        )
        for each in tables["thresholds"]
    ]  # fmt: skip
    names = ("threshold", "TP", "FP", "FN", "TN", "precision", "recall", "F1")
    found = [
        ShownTable(
            "Confusion matrix: true and false positives (TP, FP) score the threshold or more",
            names,
            at,
        ),
        ShownTable("Lift and gain, by tenths of the rows, highest scores first", headers, gains),
        _calibration(tables["calibration"], "share of positives"),
    ]
    return [each for each in found if each.rows]


def _multiclass(tables: Mapping[str, Any]) -> list[ShownTable]:
    by_class: Sequence[Mapping[str, Any]] = tables["by_class"]
    names = [str(each["name"]) for each in by_class]
    kinds = ("precision", "recall", "f1", "auc", "aucpr")
    return [
        ShownTable(
            "Each class",
            ("class", "rows", "precision", "recall", "F1", "AUC against the rest", "average precision"),
            [(str(each["name"]), str(each["rows"]), *(number(each[kind]) for kind in kinds)) for each in by_class],
        ),
        ShownTable(
            "Confusion matrix: rows are the true classes, columns the predicted ones",
            ("true class", *names),
            [(name, *map(_count, counts)) for name, counts in zip(names, tables["confusion"], strict=True)],
        ),
        _calibration(tables["calibration"], "share of right predictions", "the probability of the predicted class"),
    ]


def _regression(tables: Mapping[str, Any]) -> list[ShownTable]:
    headers = ("rows", "count", "mean prediction", "5 %", "25 %", "median", "75 %", "95 %")
    groups = [("all", tables["residuals"]), *enumerate(tables["residuals_by_group"], start=1)]
    residuals = [
        (str(name), str(each["rows"]), number(each["score"]), *map(number, each["quantiles"])) for name, each in groups
    ]
    return [
        ShownTable("Quantiles of label minus prediction, by deciles of the prediction", headers, residuals),
        _calibration(tables["calibration"], "mean label"),
    ]


def _calibration(groups: Sequence[Mapping[str, Any]], label: str, score: str = "the score") -> ShownTable:
    rows = [
        (str(at), str(each["rows"]), number(each["score"]), number(each["label"])) for at, each in enumerate(groups, 1)
    ]
    return ShownTable(f"Calibration, by deciles of {score}", ("group", "rows", "mean score", label), rows)


def _segments(segments: Sequence[Mapping[str, Any]], column: str | None, kind: str) -> ShownTable:
    metrics = list(segments[0]["metrics"])
    label = () if kind == "multiclass" else ("mean label",)
    rows = [
        (
            str(each["name"]), str(each["rows"]), *(number(each["label"]) for _ in label),
            *(number(each["metrics"][name]) for name in metrics),
        )
        for each in segments
    ]  # fmt: skip
    titles = [METRIC_INFO[name].title for name in metrics]
    return ShownTable(f"Segments by {column or 'segment'}", ("segment", "rows", *label, *titles), rows)


def _stability(found: Mapping[str, Any]) -> ShownTable:
    rows = [(str(each["name"]), number(each["reference"]), number(each["new"])) for each in found["bins"]]
    caption = f"Population stability index {number(found['psi'])} against {found['reference_rows']} reference rows"
    return ShownTable(caption, ("scores", "share of reference rows", "share of new rows"), rows)
