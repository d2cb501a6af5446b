"""A file of scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from veilboost.errors import UnknownFormat
from veilboost.infer.scores import ModelInfo, check_ending, score_columns, write_scores
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
