"""`veilboost reproduce`, as a person and a program read it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from veilboost.cli.main import app
from veilboost.errors import ImpossibleParameter, UnreadableFile, VeilBoostError

pytestmark = pytest.mark.fast


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["reproduce", *(str(word) for word in arguments)])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    table = pa.table({"id": np.arange(9), "x": np.arange(9.0), "label": np.arange(9) % 3 // 2})
    pq.write_table(table, tmp_path / "bank.parquet")
    return tmp_path


def test_list_names_papers_and_targets() -> None:
    shown = run("--list").stdout
    assert "maskedxgboost" in shown
    assert "smm-overhead" in shown
    listed = json.loads(run("maskedxgboost", "--list", "--json").stdout)["targets"]
    assert {each["paper"] for each in listed} == {"maskedxgboost"}
    assert "table-3" in {each["target"] for each in listed}


def test_a_table_is_measured_and_told(data: Path, tmp_path: Path) -> None:
    result = run("maskedxgboost", "--table", 2, "--data", data, "--out", tmp_path / "out", "--quick")
    assert result.exit_code == 0, result.exception
    assert "skipped adult: not in" in result.stderr
    assert "about 1.00 s" in result.stderr
    assert "Bank 9 for 45211" in result.stdout
    claim = json.loads((tmp_path / "out/maskedxgboost/table-2/claim.json").read_text())
    assert claim["rows"][0]["positive"] == pytest.approx(1 / 3)
    again = run("maskedxgboost", "--table", 2, "--data", data, "--out", tmp_path / "out", "--quick", "--json")
    assert json.loads(again.stdout)["results"][0]["seconds"] == claim["seconds"]
    assert "measured already" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((), ImpossibleParameter, "no paper is named"),
        (("other",), ImpossibleParameter, "choose one of maskedxgboost, fedxgboost"),
        (("fedxgboost", "--table", 9), ImpossibleParameter, "has no target 'table-9'"),
        (("fedxgboost", "--table", 1, "--figure", 4), ImpossibleParameter, "name one target"),
        (("fedxgboost", "--table", 1), ImpossibleParameter, "--data and --out are needed"),
        (("fedxgboost", "--data", "/nowhere", "--out", "o"), UnreadableFile, "there is no folder '/nowhere'"),
    ],
)
def test_refusals(arguments: tuple[object, ...], error: type[VeilBoostError], words: str) -> None:
    result = run(*arguments)
    assert isinstance(result.exception, error)
    assert words in str(result.exception)


def test_a_place_that_cannot_be_written_is_refused_before_any_work(data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run("maskedxgboost", "--table", 2, "--data", data, "--out", tmp_path / "file", "--quick")
    assert isinstance(result.exception, UnreadableFile)
    assert "cannot write" in str(result.exception)
