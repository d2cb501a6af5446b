"""The learning curve of a model ends where the model is."""

from __future__ import annotations

import numpy as np
import pytest

from support import make_columns, make_labels, split_among, train
from veilboost.boost.metrics import metric_named
from veilboost.config import TrainingConfig
from veilboost.experiment.summary import learning_curve
from veilboost.model.joined import join

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(("objective", "metric"), [("binary", "auc"), ("multiclass", "mlogloss")])
def test_margins_round_by_round(objective: str, metric: str) -> None:
    columns = make_columns(1, 300, categorical=1, missing=0.1)
    tables = split_among(columns, make_labels(1, columns, objective), 2)
    run = train(tables, TrainingConfig(objective=objective, n_estimators=4, max_depth=3))
    joined = join(run.shares)
    by_party = {name: table.columns for name, table in tables.items()}
    stages = list(joined.staged_margins(by_party))
    assert len(stages) == 4
    assert np.array_equal(stages[-1], joined.margins(columns))
    assert not np.array_equal(stages[0], stages[1])
    label = tables["p0"].label
    assert label is not None
    curve = learning_curve(joined, by_party, label, None, metric_named(metric))
    assert [at for at, _ in curve] == [1, 2, 3, 4]
    assert curve[-1][1] == metric_named(metric).function(label, joined.skeleton.loss.predict(stages[-1]), None)


def test_a_long_curve_has_few_points_and_the_last_round() -> None:
    columns = make_columns(2, 60, numeric=2)
    tables = split_among(columns, make_labels(2, columns), 2)
    run = train(tables, TrainingConfig(objective="binary", n_estimators=131, max_depth=1))
    label = tables["p0"].label
    assert label is not None
    columns_of = {name: table.columns for name, table in tables.items()}
    curve = learning_curve(join(run.shares), columns_of, label, None, metric_named("auc"))
    assert len(curve) <= 61
    assert (curve[0][0], curve[-1][0]) == (1, 131)
