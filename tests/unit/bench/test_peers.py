"""The peers' table: who is in it, what counts as a user's lines, and that a run can be added to."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

pytestmark = pytest.mark.fast

BENCH = Path(__file__).resolve().parents[3] / "bench"
OURS = {"systems", "environments", "columns", "measure", "table", "blocks", "common", "exchange"}


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Modules of `bench/peers` as its scripts find them."""
    for folder in (BENCH, BENCH / "peers"):
        monkeypatch.syspath_prepend(str(folder))
    for name in [name for name in sys.modules if name in OURS]:
        monkeypatch.delitem(sys.modules, name)

    def module(name: str) -> ModuleType:
        return __import__(name)

    return module


def test_every_system_has_its_script_and_its_environment(load: Any) -> None:
    systems, environments = load("systems"), load("environments")
    for system in systems.SYSTEMS:
        assert (BENCH / "peers" / system.script).exists()
        assert system.environment is None or system.environment in environments.ENVIRONMENTS
    titles = [system.title for system in systems.SYSTEMS]
    assert len(set(titles)) == len(titles)
    protocols = {system.parameters["protocol"] for system in systems.SYSTEMS if system.environment is None}
    assert protocols >= {"plain", "lattice", "paillier", "sealed", "secagg"}


def test_lines_of_a_user_are_those_between_the_marks(load: Any) -> None:
    table = load("table")
    counted = {system.title: table.lines_of(system) for system in table.SYSTEMS}
    for system in table.SYSTEMS:
        if system.script in {"heu_ou.py", "ours_tls.py"}:  # no user's program; counted where the files are written
            assert counted[system.title] is None
        else:
            assert 5 < counted[system.title] < 100, system.title
    central = next(system for system in table.SYSTEMS if system.writes == "xgboost")
    text = (BENCH / "peers" / "central_fit.py").read_text()
    block = text.split("# What a user of xgboost writes: from here\n")[1].split("# to here")[0]
    assert counted[central.title] == len([line for line in block.splitlines() if line.strip()])


@pytest.mark.parametrize("ties", [False, True])
def test_auc_is_the_area_under_the_curve(load: Any, ties: bool) -> None:
    rng = np.random.default_rng(0)
    label, score = rng.integers(0, 2, 500), rng.normal(size=500)
    score = np.round(score) if ties else score
    assert load("measure").auc(label, score) == pytest.approx(roc_auc_score(label, score))


def test_what_two_fits_share_is_not_counted(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    measure = load("measure")
    now = [0.0]
    monkeypatch.setattr(measure.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(measure.time, "process_time", lambda: now[0] / 2)

    def fit(trees: int) -> int:
        now[0] += 100 + 3 * trees
        return trees

    cost, few, many = measure.by_difference(fit, {"few_trees": 2, "trees": 12, "repeats": 2})
    assert (few, many) == (2, 12)
    assert cost["seconds_per_tree"] == pytest.approx(3)
    assert cost["cpu_seconds_per_tree"] == pytest.approx(1.5)


def test_a_python_that_is_not_there_is_a_reason(load: Any) -> None:
    environments = load("environments")
    with pytest.raises(environments.NotInstalled, match=r"no Python 2\.0 here"):
        environments._base("2.0")
    assert environments._base(None) == sys.executable


def test_a_slow_system_has_its_auc_where_few_trees_are_compared(load: Any) -> None:
    table = load("table")
    slow = next(system for system in table.SYSTEMS if system.slow and system.environment is None)
    found = {"seconds_per_tree": 2.0, "bytes_per_tree": 3e6, "auc": 0.7, "auc_few": 0.6}
    row = table.row(slow, found, counted=False)
    assert (row["AUC, few trees"], row["AUC, all trees"], row["MB per tree"]) == (0.7, None, 3.0)
    apart = next(system for system in table.SYSTEMS if system.runs_as != "one process")
    assert table.row(apart, found, counted=False)["MB per tree"] is None, "counted on a network that others use too"


def test_what_is_written_keeps_the_order_of_the_systems(load: Any, tmp_path: Path) -> None:
    table = load("table")
    last, first = table.SYSTEMS[-1], table.SYSTEMS[0]
    found = {"seconds_per_tree": 1.0}
    record = {
        "rows": {system.title: table.row(system, found, True) for system in (last, first)},
        "details": {system.title: found for system in (last, first)},
        "skipped": {},
    }
    table.write(record, tmp_path)
    stored = json.loads((tmp_path / "peers.json").read_text())
    assert [row["system"] for row in stored["rows"]] == [first.name, last.name]
    assert list(stored["details"]) == [first.title, last.title]
    with (tmp_path / "peers.csv").open() as file:
        assert [row["system"] for row in csv.DictReader(file)] == [first.name, last.name]
