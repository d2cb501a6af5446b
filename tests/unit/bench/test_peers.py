"""The peers' table: who is in it, what counts as a user's lines, and that a run can be added to."""

from __future__ import annotations

import csv
import json
import os
import select
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score

from veilboost.config import TrainingConfig
from veilboost.data import PartyTable
from veilboost.types import Column

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
        assert set(system.tasks) <= set(systems.TASKS)
    titles = [system.title for system in systems.SYSTEMS]
    assert len(set(titles)) == len(titles)
    protocols = {system.parameters["protocol"] for system in systems.SYSTEMS if system.environment is None}
    assert protocols >= {"plain", "lattice", "paillier", "sealed", "secagg"}


def test_every_kind_of_task_is_measured_and_categories_are_among_them(load: Any) -> None:
    systems, table = load("systems"), load("table")
    assert set(table.SETS.values()) == set(systems.TASKS)
    assert "adult" in table.SETS
    for task in systems.TASKS:
        able = [system.name for system in systems.SYSTEMS if task in system.tasks]
        assert {"XGBoost 3.2", "LightGBM 4", "scikit-learn 1", "XGBoost 3.2 federated", "FedTree 1.0.5"} <= set(able)
    assert "SecretFlow 1.14 SS-XGB" in {system.name for system in systems.SYSTEMS if "regression" in system.tasks}


def test_lines_of_a_user_are_those_between_the_marks(load: Any) -> None:
    table = load("table")
    counted = {system.title: table.lines_of(system) for system in table.SYSTEMS}
    for system in table.SYSTEMS:
        if system.script in {"heu_ou.py", "ours_tls.py"}:  # no user's program; counted where the files are written
            assert counted[system.title] is None
        else:
            assert 5 < counted[system.title] < 100, system.title
    for system in table.SYSTEMS:
        text, lines = (BENCH / "peers" / system.script).read_text(), 0
        for whose in system.writes:
            block = text.split(f"# What a user of {whose} writes: from here\n")[1].split("# to here")[0]
            lines += len([line for line in block.splitlines() if line.strip()])
        assert not system.writes or counted[system.title] == lines


@pytest.mark.parametrize("ties", [False, True])
def test_auc_is_the_area_under_the_curve(load: Any, ties: bool) -> None:
    rng = np.random.default_rng(0)
    label, score = rng.integers(0, 2, 500), rng.normal(size=500)
    score = np.round(score) if ties else score
    assert load("measure").auc(label, score) == pytest.approx(roc_auc_score(label, score))


def test_the_quality_of_each_task_is_the_known_metric(load: Any) -> None:
    quality, rng = load("measure").quality, np.random.default_rng(0)
    classes, scores = rng.integers(0, 3, 200), rng.normal(size=(200, 3))
    found = quality({"task": "multiclass", "classes": 3}, classes, scores)
    assert found == pytest.approx(accuracy_score(classes, scores.argmax(axis=1)))
    number, guess = rng.normal(size=200), rng.normal(size=200)
    assert quality({"task": "regression"}, number, guess) == pytest.approx(r2_score(number, guess))


def test_a_regression_is_standardised_and_categories_are_words_to_our_daemons(load: Any, tmp_path: Path) -> None:
    table, rng = load("table"), np.random.default_rng(0)
    codes = np.array([0, 1, -1, 1] * 10, dtype=np.int32)
    columns = (Column("colour", codes, ("red", "blue")), Column("x", rng.normal(size=40).astype(np.float32)))
    train = PartyTable(np.arange(40), columns, rng.normal(50.0, 9.0, size=40))
    parameters = {"task": "regression", "active_columns": 1, "max_depth": 2, "max_bin": 8}
    table.prepare(tmp_path, train, train.take(np.arange(5)), parameters)
    labels = np.load(tmp_path / "train.npz")["y"]
    assert (labels.mean(), labels.std()) == (pytest.approx(0.0, abs=1e-6), pytest.approx(1.0, abs=1e-6))
    assert np.load(tmp_path / "test.npz")["y"] == pytest.approx(labels[:5]), "scaled by other rows"
    written = pq.read_table(tmp_path / "training.parquet").to_pydict()
    assert written["colour"][:4] == ["red", "blue", None, "blue"]


def test_a_system_without_categories_is_given_numbers_and_a_line_few_trees(
    load: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table, asked = load("table"), []

    def answer(command: list[str], _: Any) -> tuple[str, str]:
        asked.append(json.loads(Path(command[-1]).read_text()))
        return 'RESULT {"seconds_per_tree": 2.0}', ""

    monkeypatch.setattr(table, "output_of", answer)
    monkeypatch.setattr(table, "interpreter", lambda *_: "python")
    task = table.Task(tmp_path, {"categorical": [1], "trees": 60, "few_trees": 3, "repeats": 3}, (), tmp_path, 1.0)
    peer = next(system for system in table.SYSTEMS if system.apart and not system.categories)
    assert table.over_lines(peer, task, ["wan"])["over"] == {"wan": 2.0}
    assert [(each["categorical"], each["line"], each["trees"]) for each in asked] == [([], "none", 3), ([], "wan", 2)]
    asked.clear()
    ours = next(system for system in table.SYSTEMS if not system.apart and system.environment is None)
    assert table.over_lines(ours, task, ["wan"])["over"] == {}
    assert [(each["categorical"], each["line"]) for each in asked] == [([1], "none")]


def test_what_a_system_started_ends_when_its_time_is_over(load: Any, tmp_path: Path) -> None:
    table, path = load("table"), tmp_path / "fifo"
    os.mkfifo(path)
    read = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    task = table.Task(tmp_path, {}, (), tmp_path, 2.0)
    with pytest.raises(table.NotInstalled, match="not done in 2 s"):
        table.output_of(["sh", "-c", f"(echo begun > {path}; exec sleep 60 > {path}) & wait"], task)
    assert os.read(read, 100) == b"begun\n"
    assert select.select([read], [], [], 10.0)[0] == [read], "it holds its end of the pipe"
    assert os.read(read, 1) == b""
    os.close(read)


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
    found = {"seconds_per_tree": 2.0, "bytes_per_tree": 3e6, "quality": 0.7, "quality_few": 0.6}
    row = table.row(slow, found, counted=False)
    assert (row["quality, few trees"], row["quality, all trees"], row["MB per tree"]) == (0.7, None, 3.0)
    apart = next(system for system in table.SYSTEMS if system.runs_as != "one process")
    assert table.row(apart, found, counted=False)["MB per tree"] is None, "counted on a network that others use too"


def test_what_is_added_keeps_the_order_of_the_systems_and_the_other_data_sets(
    load: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table = load("table")
    values = np.random.default_rng(0).normal(size=(60, 2))
    columns = {"x": values[:, 0], "z": values[:, 1], "label": values.sum(axis=1)}
    pq.write_table(pa.table({"id": np.arange(60), **columns}), tmp_path / "california_housing.parquet")
    monkeypatch.setattr(table, "own_network", tuple)
    monkeypatch.setattr(table, "over_lines", lambda *_: {"seconds_per_tree": 1.0})
    (tmp_path / "peers.json").write_text(json.dumps({"sets": {"another": {"rows": []}}}))
    for word in ("`plain`", "LightGBM"):
        arguments = ["--data", str(tmp_path), "--sets", "california_housing", "--out", str(tmp_path)]
        monkeypatch.setattr(sys, "argv", ["table.py", *arguments, "--only", word, "--add"])
        table.main()
    stored = json.loads((tmp_path / "peers.json").read_text())["sets"]
    assert set(stored) == {"another", "california_housing"}
    found = stored["california_housing"]
    assert [row["system"] for row in found["rows"]] == ["LightGBM 4", *["VeilBoost `plain`"] * 2]
    assert (found["runs"], found["settings"]["metric"]) == (2, "R2")
    with (tmp_path / "peers-california_housing.csv").open() as file:
        assert [row["system"] for row in csv.DictReader(file)] == [row["system"] for row in found["rows"]]

    measured: list[str] = []

    def over_lines(system: Any, *_: Any) -> dict[str, float]:
        measured.append(system.name)
        return {"seconds_per_tree": 2.0}

    monkeypatch.setattr(table, "over_lines", over_lines)
    monkeypatch.setattr(sys, "argv", ["table.py", *arguments, "--only", "`plain`", "scikit-learn", "--resume"])
    table.main()
    assert measured == ["scikit-learn 1"], "what OUT holds is not measured again"
    monkeypatch.setattr(sys, "argv", ["table.py", *arguments, "--only", "no such system", "--resume"])
    table.main()
    assert json.loads((tmp_path / "peers.json").read_text())["sets"]["california_housing"]["runs"] == 3


def test_the_recorded_exchange_has_the_rows_of_every_level(load: Any) -> None:
    """What `heu_ou.py` is given: gradients, bins, and the nodes that a tree sums."""
    rng = np.random.default_rng(2)
    ids, values = [f"c{row}" for row in range(300)], rng.normal(size=(4, 300))
    columns = [Column(f"x{k}", each) for k, each in enumerate(values)]
    label = (values[0] + values[3] > 0).astype(np.float64)
    tables = {"active": PartyTable(ids, columns[:2], label), "passive": PartyTable(ids, columns[2:])}
    config = TrainingConfig(objective="binary", max_depth=3, max_bin=8)
    found = load("exchange").recorded_exchange(tables, "active", config)
    assert (found.pairs.shape, found.bins.shape) == ((300, 2), (300, 2))
    assert found.pairs.any()
    assert [len(rows) for rows in found.levels[0]] == [300]
    assert len(found.levels) == 3
    for level in found.levels[1:]:  # of two siblings the smaller one
        rows = np.concatenate(level)
        assert len(np.unique(rows)) == len(rows) <= 150
