"""The name of a metric in a report is the metric that was computed, for every protocol and objective."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from outline import outline
from support import QUICK_OPTIONS, declared
from veilboost.boost.booster import RoundResult, best_round
from veilboost.boost.metrics import METRIC_INFO, metric_named
from veilboost.config import METRICS, TrainingConfig
from veilboost.errors import UnsupportedCombination
from veilboost.experiment.problem import Problem
from veilboost.experiment.run import VALIDATION_ROWS, RunOptions, run
from veilboost.experiment.summary import RunSummary
from veilboost.party.runs import RunFolder
from veilboost.protocols.registry import all_protocols
from veilboost.protocols.spec import ProtocolSpec
from veilboost.report.pages import run_page
from veilboost.report.runs import make_report
from veilboost.testing.tables import make_columns, make_labels, split_among

pytestmark = pytest.mark.fast

ROWS = 60
HELD_OUT = np.arange(ROWS) >= 40
OBJECTIVES = ("binary", "multiclass", "regression", "poisson")


def trained(spec: ProtocolSpec, objective: str) -> tuple[RunSummary, Problem]:
    """A small run with validation rows, which are also its test rows."""
    options = dict(QUICK_OPTIONS.get(spec.name, {}))
    config = TrainingConfig(objective=objective, n_estimators=2, max_depth=2, max_bin=4, options=options)
    columns = make_columns(3, ROWS, numeric=4, categorical=0)
    tables = split_among(columns, make_labels(3, columns, objective), 2 if spec.setting == "vertical" else 1)
    active = next(iter(tables))
    test = {name: table.take(HELD_OUT) for name, table in tables.items()}
    problem = Problem(active, tables, test, HELD_OUT)
    how = RunOptions(participants=3, classes=declared(tables[active], config, spec.name), baselines=False, curves=True)
    return run(problem, spec, config, how), problem


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("name", sorted(all_protocols()))
def test_the_plotted_metric_is_the_computed_one(name: str, objective: str) -> None:
    spec = all_protocols()[name]
    try:
        done, problem = trained(spec, objective)
    except UnsupportedCombination as error:
        pytest.skip(str(error))
    facts = done.facts()
    metric = metric_named(facts.curve_metrics[VALIDATION_ROWS])
    label = problem.test[problem.active].label
    assert label is not None
    margins = done.model.margins([column for table in problem.test.values() for column in table.columns])
    value = metric.function(label, done.model.skeleton.loss.predict(margins))
    assert facts.curves[VALIDATION_ROWS][-1][1] == pytest.approx(value, rel=1e-6)
    text = outline(run_page(facts)).text
    shown = METRIC_INFO[metric.name]
    assert f"Learning curve: {shown.title} on" in text
    assert f"{shown.title} ({shown.direction})" in text


def test_a_run_folder_names_the_metric_of_its_rounds(tmp_path: Path) -> None:
    parties = '[parties.hub]\nrole = "server"\n' + "".join(
        f'[parties.{name}]\naddress = "{name}.example:7400"\n' for name in ("north", "south")
    )
    run = RunFolder.create(tmp_path, "credit")
    training = '[training]\nobjective = "binary"\n'
    run.begin(f'name = "credit"\nvalidation = 0.2\n{parties}{training}', None, party="hub", role="server", session="s")
    for number, value in enumerate((0.69, 0.42)):
        run.add_metric(RoundResult.measured(number, 0.1, value, metric_named("logloss")))
    report = make_report([run.path])
    assert (report.data["metric"], report.data["higher_is_better"]) == ("logloss", False)
    text = outline(report.html).text
    assert "Learning curve: log loss on validation rows" in text
    assert "lower is better" in text
    assert "AUC" not in text


@pytest.mark.parametrize(("metric", "best"), [("auc", 1), ("logloss", 2)])
def test_the_best_round_follows_the_direction_of_the_metric(metric: str, best: int) -> None:
    values = (0.7, 0.8, 0.3, math.nan)
    history = [RoundResult.measured(at, 0.1, value, metric_named(metric)) for at, value in enumerate(values)]
    assert best_round(history, metric_named(metric)) == best


def test_every_metric_has_a_title_and_a_direction() -> None:
    assert set(METRICS) - {"auto"} <= METRIC_INFO.keys()
    assert len({info.title for info in METRIC_INFO.values()}) == len(METRIC_INFO)
