"""A file of scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from veilboost.errors import UnknownFormat
from veilboost.infer.scores import ModelInfo, check_ending, explanation_columns, score_columns, write_scores
from veilboost.model.explanation import Explanation
from veilboost.model.share import ColumnInfo

pytestmark = pytest.mark.fast


def test_columns_of_a_file_keep_their_names_apart(tmp_path: Path) -> None:
    ids, scores = np.array([5, 6]), np.array([[0.2, 0.8], [0.9, 0.1]])
    info = ModelInfo("m", "bank", ("bank",), "plain", "multiclass", ("id", "b"), (ColumnInfo("x"),), "id", 1)
    columns = score_columns(info, ids, scores)
    assert list(columns) == ["id", "class id", "b", "predicted"]
    assert columns["predicted"].tolist() == ["b", "id"]
    write_scores(tmp_path / "s.csv", columns)
    assert (tmp_path / "s.csv").read_text().splitlines()[1] == '5,0.2,0.8,"b"'
    assert [file.name for file in tmp_path.iterdir()] == ["s.csv"]
    with pytest.raises(UnknownFormat):
        check_ending(tmp_path / "s.xlsx")


def test_a_row_without_a_score_has_an_empty_field(tmp_path: Path) -> None:
    write_scores(tmp_path / "s.csv", {"id": np.array(["a", "b"]), "score": np.array([0.5, np.nan])})
    assert (tmp_path / "s.csv").read_text().splitlines()[1:] == ['"a",0.5', '"b",']


def test_no_contribution_is_lost_because_of_its_name() -> None:
    """A feature and a class can give the same name as another pair; an id can be named as a column of the file."""
    classes, names = ("high", "very_high"), ("x", "x_very")
    info = ModelInfo("m", "bank", ("bank",), "plain", "multiclass", classes, (), "expected_high", 1)
    values = np.arange(4.0).reshape(1, 2, 2)
    found = Explanation(values, np.zeros((1, 2)), np.zeros((1, 2)), names, ("bank", "shop"), classes)
    columns = explanation_columns(info, np.array(["a"]), np.array([[0.5, 0.5]]), found, 1)
    assert columns["expected_high"].tolist() == ["a"]
    assert columns["expected_high_"].tolist() == [0.0]
    contributions = [each[0] for name, each in columns.items() if name.startswith("contribution")]
    assert sorted(contributions) == [0.0, 1.0, 2.0, 3.0]
