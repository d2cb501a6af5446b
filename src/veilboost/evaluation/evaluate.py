"""Evaluate the scores of a model against known labels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from veilboost.data.table import PartyTable
from veilboost.errors import EmptyTable, InvalidParameter, LabelOutOfRange, MissingLabel, RowsDiffer
from veilboost.evaluation import measures
from veilboost.evaluation.measures import BinaryTables, Metrics, MulticlassTables, RegressionTables, Stability
from veilboost.infer.scores import Scores
from veilboost.report.evaluation import FORMAT, VERSION
from veilboost.types import AnyArray, BoolArray, Float64Array

KINDS = ("binary", "multiclass", "regression")
DEFAULT_THRESHOLDS = (0.5,)
_MOST_SEGMENTS = 50
_METRICS = {
    "binary": measures.binary_metrics,
    "multiclass": measures.multiclass_metrics,
    "regression": measures.regression_metrics,
}


def kind_of(objective: str) -> str:
    """The kind of evaluation of a model's objective: values for all but classes."""
    return objective if objective in KINDS else "regression"


@dataclass(frozen=True)
class Scored:
    """Labels and scores of the same rows.

    `y` are 0 and 1, codes of `classes`, or values; `segment` is a name for each row. `skipped` counts the rows that
    are left out, by the reason.
    """

    kind: str
    y: Float64Array
    score: Float64Array
    weight: Float64Array | None = None
    classes: tuple[str, ...] | None = None
    segment: AnyArray | None = None
    skipped: Mapping[str, int] | None = None

    def __post_init__(self) -> None:
        if not len(self.y):
            raise EmptyTable("no row has both a label and a score", "check the id columns of both files")
        if self.kind == "binary" and not np.isin(self.y, (0.0, 1.0)).all():
            raise LabelOutOfRange("a label is neither 0 nor 1", "evaluate values with --objective regression")
        if self.kind != "regression" and not (self.score.min() >= 0 and self.score.max() <= 1):
            raise InvalidParameter(
                "a score is not a probability in [0, 1]", "evaluate values with --objective regression"
            )
        if self.weight is not None and not self.weight.sum() > 0:
            raise InvalidParameter("the weights of all rows are 0", "give at least one row a weight above 0")

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of a multiclass model's classes, which are numbers if it has none."""
        return self.classes or tuple(str(code) for code in range(self.score.shape[1]))

    def take(self, rows: BoolArray) -> Scored:
        weight, segment = (None if each is None else each[rows] for each in (self.weight, self.segment))
        return replace(self, y=self.y[rows], score=self.score[rows], weight=weight, segment=segment)

    def metrics(self) -> Metrics:
        return _METRICS[self.kind](self.y, self.score, self.weight)


@dataclass(frozen=True)
class Estimate:
    """A metric and its 95 % bootstrap interval, if one was computed."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Segment:
    """The metrics of the rows of one segment; `label` is the mean label (binary and regression)."""

    name: str
    rows: int
    label: float | None
    metrics: Metrics


@dataclass(frozen=True)
class Evaluation:
    """The evaluation of a model's scores, as plain values."""

    kind: str
    rows: int
    weighted: bool
    classes: tuple[str, ...] | None
    skipped: Mapping[str, int]
    metrics: Mapping[str, Estimate]
    tables: BinaryTables | MulticlassTables | RegressionTables
    segments: Sequence[Segment] = ()
    segment_column: str | None = None
    stability: Stability | None = None
    bootstrap: int = 0

    def to_dict(self) -> dict[str, Any]:
        return {"format": FORMAT, "version": VERSION, **asdict(self)}


def scored_rows(scores: Scores, table: PartyTable, objective: str | None = None, segment: str | None = None) -> Scored:
    """Match scores with the labels of a table by id.

    Rows without a score (the record was unknown to a party) and rows without a label are left out and counted.

    Parameters
    ----------
    table
        Ids, labels and optionally weights; also the column `segment`, if it is given.
    objective
        The objective of the model. None: multiclass if there are several scores for each row; binary if labels are two
        classes and scores are probabilities; otherwise regression.
    """
    if table.label is None:
        raise MissingLabel("the labels are missing", "name the label column with --label")
    order = np.argsort(known := table.ids.astype(np.str_))
    ids = scores.ids.astype(np.str_)
    place = np.minimum(np.searchsorted(known, ids, sorter=order), len(known) - 1)
    rows = order[place]
    labelled = known[rows] == ids
    has_score = ~np.isnan(scores.scores.reshape(len(ids), -1)).any(axis=1)
    kept = labelled & has_score
    skipped = {"without a score": int((~has_score).sum()), "without a label": int((has_score & ~labelled).sum())}
    score, label, table = scores.scores[kept], table.label[rows[kept]], table.take(rows[kept])
    kind = _inferred(score, label, table.label_classes) if objective is None else kind_of(objective)
    if (score.ndim == 2) != (kind == "multiclass"):
        raise RowsDiffer(
            f"there are {1 if score.ndim == 1 else score.shape[1]} scores for each row, which does not fit {kind}",
            "set --objective to the objective of the model",
        )
    classes = scores.classes if kind != "regression" else None
    return Scored(
        kind,
        _coded(label, table.label_classes, kind, classes),
        score,
        table.weight,
        classes,
        None if segment is None else _segments(table, segment),
        {reason: count for reason, count in skipped.items() if count},
    )


def _inferred(score: Float64Array, label: Float64Array, names: tuple[str, ...] | None) -> str:
    if score.ndim == 2:
        return "multiclass"
    two = names is not None or np.isin(label, (0.0, 1.0)).all()
    return "binary" if two and len(score) and score.min() >= 0 and score.max() <= 1 else "regression"


def _coded(
    label: Float64Array, names: tuple[str, ...] | None, kind: str, classes: tuple[str, ...] | None
) -> Float64Array:
    """Labels as the model encodes them: codes of its `classes`, or numbers. `names` are the classes of text labels."""
    if kind == "regression":
        if names is not None:
            raise LabelOutOfRange("the labels are text, but the scores are values", "give labels as numbers")
        return label
    if classes is None:  # a score file of a binary model does not name its classes: of two, the second has the scores
        if names is not None and len(names) != 2:
            raise LabelOutOfRange(f"the labels have {len(names)} classes, not 2", "give labels as 0 and 1")
        return label
    if names is not None:
        codes = {name: code for code, name in enumerate(classes)}
        unknown = [name for name in names if name not in codes]
        if unknown:
            raise LabelOutOfRange(f"the labels have {len(unknown)} classes that the scores do not have")
        return np.array([codes[name] for name in names], dtype=np.float64)[label.astype(np.intp)]
    if not np.isin(label, np.arange(len(classes))).all():
        raise LabelOutOfRange(f"a label is not one of the classes 0 to {len(classes) - 1}")
    return label


def _segments(table: PartyTable, name: str) -> AnyArray:
    column = table.select([name]).columns[0]
    found, codes = np.unique(column.values, return_inverse=True)
    values: list[float] = found.tolist()
    used = len(values)
    if used > _MOST_SEGMENTS:
        raise InvalidParameter(
            f"the column {name!r} has {used} different values",
            f"choose one with at most {_MOST_SEGMENTS} for --segment",
        )
    if column.categories is None:
        names = ["missing" if math.isnan(value) else f"{value:g}" for value in values]
    else:
        names = ["missing" if code < 0 else column.categories[int(code)] for code in values]
    return np.array(names)[codes]


def evaluate(
    scored: Scored,
    *,
    thresholds: Sequence[float] = DEFAULT_THRESHOLDS,
    reference: Float64Array | None = None,
    segment_column: str | None = None,
    bootstrap: int = 0,
    random_state: int = 0,
) -> Evaluation:
    """Compute metrics, curves and tables.

    Parameters
    ----------
    thresholds
        For confusion matrices (binary): a score of the threshold or more counts as positive.
    reference
        The scores of other rows, such as those of training, for the population stability index.
    bootstrap
        Number of samples for the intervals of the metrics; 0: no intervals. The samples are a function of
        `random_state` and the order of the rows.
    """
    y, score, weight = scored.y, scored.score, scored.weight
    intervals: Mapping[str, tuple[float, float]] = {}
    if bootstrap:
        intervals = measures.bootstrap(_METRICS[scored.kind], y, score, weight, bootstrap, random_state)
    return Evaluation(
        kind=scored.kind,
        rows=len(y),
        weighted=weight is not None,
        classes=scored.classes,
        skipped=dict(scored.skipped or {}),
        metrics={name: Estimate(value, *intervals.get(name, ())) for name, value in scored.metrics().items()},
        tables=_tables(scored, thresholds),
        segments=[] if scored.segment is None else _by_segment(scored, scored.segment),
        segment_column=segment_column,
        stability=None if reference is None else _stability(scored, reference),
        bootstrap=bootstrap,
    )


def _by_segment(scored: Scored, segment: AnyArray) -> list[Segment]:
    """Segments whose rows all have weight 0 are left out."""
    found: list[Segment] = []
    weight = np.ones(len(scored.y)) if scored.weight is None else scored.weight
    for name in sorted(set(segment.tolist())):
        rows = segment == name
        if weight[rows].sum() > 0:
            own = scored.take(rows)
            mean = None if scored.kind == "multiclass" else float(np.average(own.y, weights=weight[rows]))
            found.append(Segment(str(name), len(own.y), mean, own.metrics()))
    return found


def _tables(scored: Scored, thresholds: Sequence[float]) -> BinaryTables | MulticlassTables | RegressionTables:
    y, score, weight = scored.y, scored.score, scored.weight
    if scored.kind == "binary":
        return measures.binary_tables(y, score, weight, thresholds)
    if scored.kind == "multiclass":
        return measures.multiclass_tables(y, score, weight, scored.class_names)
    return measures.regression_tables(y, score, weight)


def can_compare(reference: Float64Array) -> bool:
    """Whether deciles of these scores, of one number for each row, exist."""
    return len(reference) >= measures.GROUPS and bool(reference.min() < reference.max())


def _stability(scored: Scored, reference: Float64Array) -> Stability:
    reference = reference[~np.isnan(reference.reshape(len(reference), -1)).any(axis=1)]
    if reference.ndim != scored.score.ndim or reference.shape[1:] != scored.score.shape[1:]:
        raise InvalidParameter(
            "the reference scores are of another kind of model", "give --reference scores of the same model"
        )
    if scored.kind == "multiclass":
        return measures.class_stability(scored.class_names, reference, scored.score)
    if not can_compare(reference):
        raise InvalidParameter(
            "the reference scores are fewer than 10 or all equal", "give --reference the scores of the training rows"
        )
    return measures.stability(reference, scored.score)
