"""One check for every way into a job: `sealed` takes declared classes and a bounded loss, and its hints work."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from support import make_columns, split_among
from veilboost import VerticalClassifier, VerticalRegressor
from veilboost.cli.main import app
from veilboost.config import TrainingConfig
from veilboost.errors import InvalidParameter, LabelOutOfRange, UnsupportedCombination
from veilboost.party.simulation import Simulation, simulate_training
from veilboost.protocols.registry import protocol_named
from veilboost.protocols.validation import ResolvedJob, resolve, validate, with_classes

pytestmark = pytest.mark.fast

ROWS = 120
X = np.random.default_rng(1).normal(size=(ROWS, 4))
SCORE = X.sum(axis=1) + np.random.default_rng(2).normal(size=ROWS)
AMOUNT = 1e4 * SCORE
FLAG = (SCORE > 0).astype(np.int64)
KIND = np.array(["low", "middle", "high"])[np.digitize(SCORE, [-1.0, 1.0])]
SMALL = {"n_estimators": 2, "max_depth": 2, "max_bin": 8, "categories": "ordinal"}


def own_loss(y: np.ndarray, margin: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return 100.0 * (margin - y), np.ones_like(y)


def simulated(y: np.ndarray, protocol: str = "sealed", classes: object = None, loss: object = None, **changes: object):
    columns = make_columns(3, ROWS, numeric=4)
    text = y.dtype.kind == "U"
    names = tuple(sorted(set(y.tolist()))) if text else None
    label = np.array([names.index(each) for each in y.tolist()], dtype=np.float64) if text else y.astype(np.float64)
    tables = split_among(columns, label, 2)
    tables["p0"] = replace(tables["p0"], label_classes=names)
    config = TrainingConfig.from_dict(SMALL | changes)
    return simulate_training(tables, "p0", protocol, config, classes=classes, custom_loss=loss)  # type: ignore[arg-type]


def estimator(y: np.ndarray, protocol: str = "sealed", kind: type = VerticalClassifier, **changes: object):
    return kind(protocol=protocol, **SMALL | changes).fit(X, y)


def spoken(y: np.ndarray, folder: Path, *options: str) -> dict:
    """`veilboost simulate` on a file with this label; an error comes out as it was raised."""
    with (folder / "table.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*"abcd", "y"])
        writer.writerows([*row, label] for row, label in zip(X.tolist(), y.tolist(), strict=True))
    size = ["--trees", "2", "--depth", "2", "--categories", "ordinal", "--no-baselines", "--json"]
    command = ["simulate", "--data", str(folder / "table.csv"), "--label", "y", *size, *options]
    result = CliRunner().invoke(app, command)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return json.loads(result.stdout)


def refusal(error: pytest.ExceptionInfo[UnsupportedCombination]) -> tuple[str, str]:
    assert error.value.code == "VB-1004"
    return error.value.what, error.value.remedy


# --- labels without a bound -------------------------------------------------------------------------------------------


def test_a_regression_is_refused_by_every_way_and_lattice_takes_it(tmp_path: Path) -> None:
    ways = (
        lambda protocol: simulated(AMOUNT, protocol),
        lambda protocol: estimator(AMOUNT, protocol, VerticalRegressor),
        lambda protocol: spoken(AMOUNT, tmp_path, "--protocol", protocol),
    )
    for way in ways:
        with pytest.raises(UnsupportedCombination, match="regression") as caught:
            way("sealed")
        assert "lattice" in refusal(caught)[1]
        way("lattice")
    for objective in ("regression", "poisson"):
        with pytest.raises(UnsupportedCombination, match="no bound"):
            simulated(np.abs(AMOUNT), objective=objective)


def test_a_custom_loss_is_refused_by_every_way_and_lattice_takes_it() -> None:
    ways = (
        lambda protocol: simulated(FLAG, protocol, loss=own_loss, objective="binary"),
        lambda protocol: estimator(FLAG, protocol, objective=own_loss),
        lambda protocol: estimator(AMOUNT, protocol, VerticalRegressor, objective=own_loss),
    )
    for way in ways:
        with pytest.raises(UnsupportedCombination, match="custom") as caught:
            way("sealed")
        assert "lattice" in refusal(caught)[1]
        way("lattice")


def test_the_role_itself_wants_a_bounded_loss_and_no_two_trees_for_two_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    from veilboost.protocols import validation

    monkeypatch.setattr(validation, "_check_claims", lambda job: None)
    monkeypatch.setattr(validation, "_check_custom_loss", lambda job: None)
    for wrong in (lambda: simulated(AMOUNT), lambda: simulated(FLAG, loss=own_loss, objective="binary")):
        with pytest.raises(UnsupportedCombination, match="at most 1"):
            wrong()
    with pytest.raises(UnsupportedCombination, match="at most 1"):
        simulated(FLAG, objective="multiclass")


# --- classes that the labels choose -----------------------------------------------------------------------------------


def test_two_classes_named_by_numbers_are_declared_by_the_objective(tmp_path: Path) -> None:
    ways = (
        lambda objective: simulated(FLAG, objective=objective),
        lambda objective: estimator(FLAG, objective=objective),
        lambda objective: estimator(FLAG.astype(float), objective=objective),
        lambda objective: spoken(FLAG, tmp_path, "--protocol", "sealed", "--objective", objective),
    )
    for way in ways:
        with pytest.raises(UnsupportedCombination, match="declared classes") as caught:
            way("auto")
        hint = refusal(caught)[1]
        assert 'objective = "binary"' in hint
        assert "--objective binary" in hint
        way("binary")


@pytest.mark.parametrize("y", [KIND, np.where(FLAG == 1, "yes", "no"), np.digitize(SCORE, [-1.0, 1.0])])
def test_other_classes_are_declared_as_the_hint_says(y: np.ndarray, tmp_path: Path) -> None:
    for objective in ("auto", "multiclass" if len(np.unique(y)) > 2 else "binary"):
        with pytest.raises(UnsupportedCombination, match="declared classes") as caught:
            simulated(y, objective=objective)
        line = re.search(r"classes = (\[.*\])", refusal(caught)[1])
        assert line is not None
        run = simulated(y, objective=objective, classes=json.loads(line[1]))
        assert trees_of(run) == (1 if len(np.unique(y)) == 2 else 3)
        with pytest.raises(UnsupportedCombination, match="declared classes") as caught:
            estimator(y, objective=objective)
        line = re.search(r"classes = (\[.*\])", refusal(caught)[1])
        assert line is not None
        model = estimator(y, objective=objective, classes=json.loads(line[1]))
        assert set(model.predict(X).tolist()) <= set(y.tolist())
        with pytest.raises(UnsupportedCombination, match="declared classes") as caught:
            spoken(y, tmp_path, "--protocol", "sealed", "--objective", objective)
        option = re.search(r"--classes (\S+)\)", refusal(caught)[1])
        assert option is not None
        command = ("--protocol", "sealed", "--objective", objective, "--classes", option[1])
        assert spoken(y, tmp_path, *command)["trees"] == 2


def trees_of(run: Simulation) -> int:
    skeleton = run.shares["p0"].skeleton
    assert skeleton is not None
    return skeleton.trees_per_round


def test_a_class_that_no_label_has_gets_its_tree_and_is_paid_for() -> None:
    run = simulated(FLAG, classes=["0", "1", "2", "3"])
    assert trees_of(run) == 4
    assert {event.count for event in run.accounts["p0"].events} == {2}, "a label is in two trees of every round"
    model = estimator(FLAG, classes=[0, 1, 2])
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.predict_proba(X).shape == (ROWS, 3)


def test_one_label_of_another_class_changes_no_number_of_trees() -> None:
    """B16: with classes from the labels one person of class 2 changes one tree a round to three."""
    other = FLAG.copy()
    other[0] = 2
    assert [trees_of(simulated(y, classes=["0", "1", "2"])) for y in (FLAG, other)] == [3, 3]


def test_labels_outside_the_declared_classes_are_refused() -> None:
    for way in (simulated, estimator):
        with pytest.raises(LabelOutOfRange, match="declared") as caught:
            way(KIND, classes=["low", "high"])
        assert "middle" not in str(caught.value)
    with pytest.raises(LabelOutOfRange, match="numbers"):
        simulated(FLAG, classes=["no", "yes"])
    with pytest.raises(InvalidParameter, match="twice"):
        simulated(KIND, classes=["low", "low", "high"])
    with pytest.raises(InvalidParameter, match="VerticalClassifier"):
        estimator(AMOUNT, "plain", VerticalRegressor, classes=["a", "b"])
    with pytest.raises(UnsupportedCombination, match="3 classes are declared"):
        simulated(KIND, objective="binary", classes=["low", "middle", "high"])


def test_labels_become_codes_in_the_declared_order() -> None:
    columns = make_columns(3, 3, numeric=2)
    table = replace(split_among(columns, np.array([0.0, 2.0, 1.0]), 2)["p0"], label_classes=("a", "b", "c"))
    assert with_classes(table, ["c", "d", "b", "a"]).label.tolist() == [3.0, 0.0, 2.0]
    numbers = replace(table, label=np.array([7.0, -1.0, 7.0]), label_classes=None)
    assert with_classes(numbers, ["-1", "0", "7"]).label.tolist() == [2.0, 0.0, 2.0]


# --- what a party without labels sees ---------------------------------------------------------------------------------


def test_a_proposal_without_a_resolved_objective_is_refused_where_claims_depend_on_it() -> None:
    sealed = protocol_named("sealed")
    with pytest.raises(UnsupportedCombination, match="auto") as caught:
        validate(ResolvedJob(sealed, TrainingConfig()))
    assert 'objective to "binary"' in refusal(caught)[1]
    validate(ResolvedJob(sealed, TrainingConfig(objective="binary", categories="ordinal")))
    with pytest.raises(UnsupportedCombination, match="no bound"):
        validate(ResolvedJob(sealed, TrainingConfig(objective="regression")))
    validate(ResolvedJob(protocol_named("lattice"), TrainingConfig()))


def test_a_resolved_job_is_never_auto() -> None:
    columns = make_columns(3, ROWS, numeric=4)
    for y, objective in ((FLAG, "binary"), (AMOUNT, "regression"), (np.arange(ROWS) % 3, "multiclass")):
        table = split_among(columns, y.astype(np.float64), 2)["p0"]
        assert resolve(protocol_named("plain"), TrainingConfig(), table).config.objective == objective
