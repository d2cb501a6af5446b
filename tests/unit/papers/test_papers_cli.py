"""`python -m papers`, as a person and a program read it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from papers.__main__ import app
from veilboost.cli.main import app as veilboost
from veilboost.errors import InvalidParameter, UnknownRun, UnreadableFile, VeilBoostError

pytestmark = pytest.mark.fast

REPOSITORY = Path(__file__).resolve().parents[3]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in arguments])


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
    assert "Bank 9 rows for 45211" in result.stdout
    claim = json.loads((tmp_path / "out/maskedxgboost/table-2/claim.json").read_text())
    assert claim["rows"][0]["positive"] == pytest.approx(1 / 3)
    again = run("maskedxgboost", "--table", 2, "--data", data, "--out", tmp_path / "out", "--quick", "--json")
    assert json.loads(again.stdout)["results"][0]["seconds"] == claim["seconds"]
    assert "measured already" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((), InvalidParameter, "no paper is named"),
        (("other",), InvalidParameter, "choose one of maskedxgboost, fedxgboost"),
        (("fedxgboost", "--table", 9), InvalidParameter, "has no target 'table-9'"),
        (("fedxgboost", "--table", 1, "--figure", 4), InvalidParameter, "name one target"),
        (("--all", "--table", 1), InvalidParameter, "table-1 and --all are both asked for"),
        (("fedxgboost", "--table", 1), InvalidParameter, "--data and --out are needed"),
        (("--page", "p.html", "--out", "/nowhere"), UnknownRun, "holds no claims"),
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


def test_a_page_is_made_of_what_was_measured(data: Path, tmp_path: Path) -> None:
    out, page = tmp_path / "out", tmp_path / "page.html"
    run("maskedxgboost", "--table", 2, "--data", data, "--out", out, "--quick")
    told = json.loads(run("--out", out, "--page", page, "--json").stdout)
    assert told["format"] == "veilboost-reproduction"
    assert [each["target"] for each in told["targets"]] == ["table-2"]
    assert told["page"] == str(page)
    assert "Table 2: overview of the data sets" in page.read_text()


def test_a_check_of_stored_cells_fails_if_one_of_them_differs(data: Path, tmp_path: Path) -> None:
    given = ("maskedxgboost", "--table", 2, "--data", data, "--out", tmp_path, "--quick")
    run(*given)
    again = run(*given, "--check", 1.0)
    assert (again.exit_code, again.stdout.split(",")[1].strip()) == (0, "0 differ by more than allowed")
    stored = tmp_path / "maskedxgboost" / "table-2" / "cells.jsonl"
    first, *others = [json.loads(line) for line in stored.read_text().splitlines()]
    first["values"]["rows"] += 1
    stored.write_text("".join(json.dumps(entry) + "\n" for entry in (first, *others)))
    again = run(*given, "--check", 1.0)
    assert again.exit_code == 1
    assert f"rows was {first['values']['rows']}, now {first['values']['rows'] - 1}" in again.stdout


def test_it_runs_as_a_module_and_refuses_in_one_line() -> None:
    command = [sys.executable, "-m", "papers", "other"]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith("VB-1002: there is no paper 'other'")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [(), ("mal", "--table", "3"), ("--help",)])
def test_the_old_command_says_where_it_went(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(veilboost, ["reproduce", *words])
    assert isinstance(result.exception, InvalidParameter)
    assert "python -m papers" in str(result.exception)
