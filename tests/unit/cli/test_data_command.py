"""`veilboost data check`: one report, an exit code, no value of the table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import call
from two_parties import make_two, settings_of

pytestmark = pytest.mark.fast

PERSON = "zaphod@example.org"
MESS = f"id,email,age,since,none,y\n1,{PERSON},31,2020-01-02,,0\n2,b@x,unknown,2021-02-03,,1\n2,c@x,3,2022-03-04,,1\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mess.csv").write_text(MESS)
    return tmp_path


def test_all_problems_and_exit_code_1(folder: Path) -> None:
    result = call("data", "check", "mess.csv", "--id", "id", "--label", "y", folder=folder)
    assert result.returncode == 1
    lines = result.stdout.splitlines()
    assert [line.split(":")[0] for line in lines[:3]] == [f"error    VB-{code}" for code in (1103, 1109, 1108)]
    assert lines[3].startswith("note     column 'since' holds dates")
    assert lines[4:] == ["training refuses this table"]
    assert PERSON not in result.stdout + result.stderr


def test_a_usable_table_as_json_and_exit_code_0(folder: Path) -> None:
    options = ("--label", "y", "--missing-value", "unknown", "--constant", "drop", "--json")
    result = call("data", "check", "mess.csv", *options, folder=folder)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["usable"], report["rows"], report["features"], report["objective"]) == (True, 3, 4, "binary")
    assert report["errors"] == []
    assert "'none'" in report["warnings"][0]["what"]
    assert PERSON not in result.stdout


def test_a_misspelt_column_has_a_suggestion(folder: Path) -> None:
    result = call("data", "check", "mess.csv", "--feature", "agee", "--label", "yy", folder=folder)
    assert result.returncode == 1
    assert "did you mean 'age'?" in result.stdout
    assert "there is no label column 'yy'" in result.stdout


def test_the_table_of_a_party(tmp_path: Path) -> None:
    folder = make_two(tmp_path)
    settings_of(folder, "bank")
    result = call("data", "check", "--config", folder / "bank.toml")
    assert (result.returncode, result.stdout) == (
        0,
        "200 rows, 1 feature, labels for binary: training accepts this table\n",
    )
    both = call("data", "check", "--config", folder / "bank.toml", "--id", "id")
    assert both.returncode == 2
    assert "VB-1004" in both.stderr
    assert call("data", "check").returncode == 2
