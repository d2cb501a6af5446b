"""Scores are matched with labels by id, and what cannot be evaluated is refused or counted."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from veilboost.data.table import PartyTable
from veilboost.errors import EmptyTable, InvalidParameter, LabelOutOfRange, MissingColumn, MixedTypes, RowsDiffer
from veilboost.evaluation.evaluate import Scored, evaluate, kind_of, scored_rows
from veilboost.infer.scores import ModelInfo, Scores, add_column, read_scores, score_columns, write_scores
from veilboost.report.values import plain
from veilboost.types import Column

pytestmark = pytest.mark.fast

IDS = np.array([4, 3, 2, 1])
SCORES = Scores(IDS, np.array([0.9, 0.8, 0.7, 0.1]))


def table(label: list[float], classes: tuple[str, ...] | None = None, **changes: object) -> PartyTable:
    """Labels of the ids 1, 2, ..."""
    columns = (Column("region", np.array([0, 1, 0, -1], dtype=np.int32)[: len(label)], ("north", "south")),)
    return PartyTable(np.arange(1, len(label) + 1), columns, np.array(label), classes, **changes)  # type: ignore[arg-type]


def test_labels_are_found_by_id() -> None:
    found = scored_rows(SCORES, table([0, 1, 0, 1]), segment="region")
    assert found.kind == "binary"
    assert found.y.tolist() == [1, 0, 1, 0]
    assert found.segment is not None
    assert found.segment.tolist() == ["missing", "north", "south", "north"]
    texts = scored_rows(Scores(IDS.astype(str), SCORES.scores), table([0, 1, 0, 1]))
    assert texts.y.tolist() == found.y.tolist()


def test_rows_without_a_score_or_a_label_are_counted() -> None:
    scores = Scores(np.array([4, 3, 2, 1, 99]), np.array([0.9, math.nan, 0.7, 0.1, 0.5]))
    found = scored_rows(scores, table([0, 1, 0, 1]))
    assert found.y.tolist() == [1, 1, 0]
    assert found.skipped == {"without a score": 1, "without a label": 1}
    assert evaluate(found).rows == 3
    with pytest.raises(EmptyTable):
        scored_rows(Scores(IDS + 100, SCORES.scores), table([0, 1, 0, 1]))
    with pytest.raises(EmptyTable):
        scored_rows(Scores(IDS, np.full(4, math.nan)), table([0, 1, 0, 1]))


def test_the_kind_follows_scores_and_labels() -> None:
    assert scored_rows(SCORES, table([0.0, 1.0, 2.0, 1.0])).kind == "regression"
    assert scored_rows(SCORES, table([0, 1, 1, 0], ("no", "yes"))).kind == "binary"
    assert scored_rows(Scores(IDS, SCORES.scores * 9), table([0, 1, 0, 1])).kind == "regression"
    assert scored_rows(SCORES, table([0, 1, 0, 1]), "poisson").kind == "regression"
    assert [kind_of(name) for name in ("binary", "multiclass", "custom")] == ["binary", "multiclass", "regression"]


def test_classes_are_matched_by_name() -> None:
    scores = Scores(IDS, np.eye(3)[[0, 1, 2, 0]], ("a", "b", "c"))
    found = scored_rows(scores, table([0, 0, 1, 1], ("a", "c")))  # of the ids 1 to 4; no row is a b
    assert found.y.tolist() == [2, 2, 0, 0]
    assert scored_rows(Scores(IDS, scores.scores, ("0", "1", "2")), table([2, 1, 0, 0])).y.tolist() == [0, 0, 1, 2]
    two = scored_rows(Scores(IDS, SCORES.scores, ("no", "yes")), table([0, 0, 0, 0], ("yes",)), "binary")
    assert two.y.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("scores", "labels", "objective", "refusal"),
    [
        (SCORES, table([0, 1, 2, 1]), "binary", LabelOutOfRange),
        (SCORES, table([0, 0, 0, 0], ("yes",)), None, LabelOutOfRange),
        (SCORES, table([0, 1, 0, 1], ("no", "yes")), "regression", LabelOutOfRange),
        (SCORES, table([0, 1, 0, 1]), "multiclass", RowsDiffer),
        (Scores(IDS, np.eye(3)[[0, 1, 2, 0]], ("a", "b", "c")), table([0, 1, 0, 1], ("a", "z")), None, LabelOutOfRange),
        (Scores(IDS, np.eye(3)[[0, 1, 2, 0]], ("a", "b", "c")), table([0, 1, 3, 1]), None, LabelOutOfRange),
        (Scores(IDS, SCORES.scores * 9), table([0, 1, 0, 1]), "binary", InvalidParameter),
        (SCORES, table([0, 1, 0, 1], weight=np.zeros(4)), None, InvalidParameter),
    ],
)
def test_what_does_not_fit_is_refused(
    scores: Scores, labels: PartyTable, objective: str | None, refusal: type[Exception]
) -> None:
    with pytest.raises(refusal):
        scored_rows(scores, labels, objective)


def test_segments_have_their_own_metrics() -> None:
    random = np.random.default_rng(5)
    y, score = random.integers(2, size=200).astype(float), random.random(200)
    segment = np.where(random.random(200) < 0.5, "north", "south")
    found = evaluate(Scored("binary", y, score, segment=segment), segment_column="region")
    own = {each.name: each for each in found.segments}
    assert own["north"].rows + own["south"].rows == 200
    north = segment == "north"
    alone = evaluate(Scored("binary", y[north], score[north]))
    assert own["north"].metrics == {name: each.value for name, each in alone.metrics.items()}
    assert own["north"].label == pytest.approx(y[north].mean())
    many = np.arange(60)
    ages = PartyTable(many, (Column("age", np.array([30, math.nan] * 30, dtype=np.float32)),), many % 2.0)
    decades = scored_rows(Scores(many, many / 60), ages, segment="age").segment
    assert decades is not None
    assert decades[:2].tolist() == ["30", "missing"]
    numbers = PartyTable(many, (Column("income", many.astype(np.float32)),), many % 2.0)
    with pytest.raises(InvalidParameter, match="income"):
        scored_rows(Scores(many, many / 60), numbers, segment="income")


def test_a_reference_must_be_of_the_same_kind() -> None:
    scored = scored_rows(SCORES, table([0, 1, 0, 1]))
    for reference in (np.full(20, 0.5), np.array([0.1, 0.2]), np.full((20, 3), 1 / 3)):
        with pytest.raises(InvalidParameter, match="reference"):
            evaluate(scored, reference=reference)
    reference = np.append(np.linspace(0, 1, 50), math.nan)
    found = evaluate(scored, reference=reference).stability
    assert found is not None
    assert found.reference_rows == 50


@pytest.mark.parametrize("kind", ["binary", "multiclass", "regression"])
def test_an_evaluation_is_plain_and_the_same_every_time(kind: str) -> None:
    random = np.random.default_rng(6)
    score = random.dirichlet(np.ones(3), 80) if kind == "multiclass" else random.random(80)
    classes = ("a", "b", "c") if kind == "multiclass" else None
    y = random.integers(3 if classes else 2, size=80).astype(float)
    scored = Scored(kind, y, score, random.random(80))
    first, second = (evaluate(scored, bootstrap=20, random_state=3, reference=score) for _ in range(2))
    told = json.dumps(plain(first.to_dict()), allow_nan=False)
    assert told == json.dumps(plain(second.to_dict()), allow_nan=False)
    assert first.stability is not None
    assert first.stability.psi == 0.0
    for name, each in first.metrics.items():
        if not math.isnan(each.value):
            assert each.low is not None, name
            assert each.high is not None
            assert each.low <= each.high


# --- score files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["parquet", "csv", "arrow", "feather"])
@pytest.mark.parametrize("id_name", ["id", "score", "predicted"])
def test_a_score_file_reads_back_as_it_was_written(tmp_path: Path, ending: str, id_name: str) -> None:
    several = np.array([[0.25, 0.75], [math.nan, math.nan]])
    for classes, scores in ((None, np.array([0.25, math.nan])), (("id", "score"), several)):
        objective = "binary" if classes is None else "multiclass"
        info = ModelInfo("m", "bank", ("bank",), "plain", objective, classes, (), id_name, 1)
        file = tmp_path / f"{objective}.{ending}"
        columns = score_columns(info, np.array(["007", "8"]), scores)
        add_column(columns, "status", np.array(["known", "unknown at shop"]))
        write_scores(file, columns)
        assert file.stat().st_mode & 0o077 == 0
        found = read_scores(file)
        assert found.ids.tolist() == ["007", "8"]
        assert np.array_equal(found.scores, scores, equal_nan=True)
        assert found.classes == classes


def test_a_file_without_scores_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "s.csv"
    file.write_text("id,income\n1,2\n2,3\n")
    with pytest.raises(MissingColumn, match="score"):
        read_scores(file)
    with pytest.raises(MissingColumn, match="customer"):
        read_scores(file, "customer")
    file.write_text("id,score\n1,high\n2,low\n")
    with pytest.raises(MixedTypes):
        read_scores(file)
