"""`veilboost explain`: files of contributions and reason codes, with other parties and with a saved model."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from command_line import call
from support import make_columns, make_labels, split_among, train
from two_parties import job_with, make_two, running, settings_of, trained
from veilboost.config import TrainingConfig
from veilboost.data.columns import table_of
from veilboost.model.joined import join
from veilboost.model.store import save_model


@pytest.fixture(scope="module", params=["binary", "multiclass"])
def saved(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    columns = make_columns(3, 120, numeric=4)
    label = make_labels(3, columns, request.param)
    run = train(split_among(columns, label, 2), TrainingConfig(objective=request.param, n_estimators=3, max_depth=2))
    save_model(run.shares, folder / "model")
    pq.write_table(table_of({column.name: column.values for column in columns}), folder / "rows.parquet")
    return folder, join(run.shares).explain(columns)


def test_a_saved_model_is_explained(saved):
    folder, found = saved
    args = ("--model", folder / "model", "--data", folder / "rows.parquet", "--out", folder / "why.parquet")
    done = call("explain", *args, "--top", 2, "--report", folder / "why.html", "--json")
    assert done.returncode == 0, done.stderr
    told, table = json.loads(done.stdout), pq.read_table(folder / "why.parquet")
    assert told["rows"] == table.num_rows == 120
    assert told["columns"] == table.column_names
    several = found.values.ndim == 3
    for at, feature in enumerate(found.feature_names):
        for output, name in enumerate(found.output_names or ("",)):
            mine = table[f"contribution_{feature}{f'_{name}' if several else ''}"].to_numpy()
            np.testing.assert_array_equal(mine, found.output(output).values[:, at])
    reasons = [[row[f"reason_{at}"] for at in (1, 2) if row[f"reason_{at}"]] for row in table.to_pylist()]
    assert reasons == found.reasons(2)
    assert "reason_3" not in table.column_names
    assert (folder / "why.html").read_text().count("<svg xmlns") == 3 + len(found.output_names or (0,))
    importance = {each["feature"]: each["mean_absolute_contribution"] for each in told["features"]}
    assert list(importance.values()) == pytest.approx(found.importance.tolist())


def test_rows_are_explained_with_the_other_party(tmp_path):
    folder = make_two(tmp_path)
    bank, shop = settings_of(folder, "bank"), settings_of(folder, "shop")
    shop = replace(shop, policy=replace(shop.policy, explanations="party"))
    with running(shop) as daemon:
        trained(bank, job_with(daemon))
        args = ("--model", "runs-bank/first", "--config", "bank.toml", "--data", "new.parquet", "--out", "why.csv")
        done = call("explain", *args, folder=folder)
        assert call("predict", *args[:-1], "scores.csv", folder=folder).returncode == 0
    assert done.returncode == 0, done.stderr
    why, scores = (csv.read_csv(folder / name) for name in ("why.csv", "scores.csv"))
    assert why.column_names[:2] == ["id", "score"]
    assert why.column_names[-2:] == ["contribution_x_bank", "contribution_shop"]
    assert why["id"].equals(scores["id"])
    margin = sum(why[name].to_numpy() for name in why.column_names if name.startswith(("expected", "contribution")))
    np.testing.assert_allclose(1 / (1 + np.exp(-margin)), scores["score"].to_numpy(), atol=1e-9)


def test_nonsense_is_refused_before_anything_is_computed(tmp_path):
    args = ("explain", "--model", tmp_path, "--data", tmp_path / "x.csv", "--out")
    assert "VB-" in call(*args, tmp_path / "why.csv", "--top", -1).stderr
    assert "suffix" in call(*args, tmp_path / "why.txt").stderr
