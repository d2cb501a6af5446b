"""`simulate` with horizontally partitioned data, and the network model."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import roc_auc_score
from typer.testing import CliRunner

from veilboost.cli.main import app
from veilboost.config import TrainingConfig
from veilboost.data import load_table
from veilboost.data.table import drawn_rows
from veilboost.errors import InvalidParameter, MissingShare, UnknownProtocol, UnsupportedCombination, VeilBoostError
from veilboost.party.job import load_job
from veilboost.party.runs import RunFolder
from veilboost.party.simulation import SERVER, simulate_training
from veilboost.protocols.registry import protocol_named
from veilboost.wire.transcript import Entry, Network

pytestmark = pytest.mark.fast


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(400, 4))
    label = (values.sum(axis=1) + rng.normal(size=400) > 0).astype(int)
    path = tmp_path / "all.parquet"
    columns = {f"x{k}": values[:, k] for k in range(4)}
    pq.write_table(pa.table({"id": np.arange(400), "label": label} | columns), path)
    return path


def simulate(table, *options):
    arguments = ["simulate", "--data", str(table), "--id", "id", "--label", "label", *options]
    done = CliRunner().invoke(app, arguments)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def test_mal_with_the_options_of_its_own(table):
    out = simulate(
        table, "--setting", "horizontal", "--protocol", "mal", "--participants", "3", "--buckets", "8", "--eps", "4",
        "--trees", "10", "--network", "20mbit,100ms", "--n-jobs", "1", "--json",
    )  # fmt: skip
    told = json.loads(out)
    assert (told["participants"], told["depth"], told["max_bin"], told["trees"]) == (3, 1, 8, 10)
    assert told["options"]["epsilon"] == 4.0
    assert told["rounds"] == 2
    assert told["auc"] > 0.6
    assert told["network_seconds"] > 0.6
    assert told["privacy"]["participant0"]
    assert told["labels_broken"] is False
    assert set(told["learned"]) == {"server", "participant0", "participant1", "participant2", "comparer", "authority"}


def test_noise_off_and_masks_not_needed(table):
    out = simulate(
        table, "--protocol", "mal", "--participants", "20", "--eps", "inf", "--allow-unmasked", "--buckets", "16",
        "--trees", "5", "--no-baselines", "--json",
    )  # fmt: skip
    told = json.loads(out)
    assert told["options"] == {"epsilon": 0.0, "guard": "allow"}
    assert told["labels_broken"] is True
    assert told["exposed_rows"] > 100


def test_secagg_and_a_report_for_people(table, tmp_path):
    out = simulate(
        table, "--protocol", "secagg", "--participants", "2", "--trees", "5", "--depth", "2", "--save",
        str(tmp_path / "model"),
    )  # fmt: skip
    assert "alone, one participant" in out
    assert "sound" in out
    assert (tmp_path / "model").is_dir()


def test_secagg_keeps_rows_to_validate_on(table):
    out = simulate(
        table, "--protocol", "secagg", "--participants", "3", "--trees", "40", "--depth", "3", "--validation-size",
        "0.3", "--early-stopping-rounds", "2", "--learning-rate", "0.9", "--json",
    )  # fmt: skip
    told = json.loads(out)
    assert told["trees"] == len(told["validation"]) - 2 < 38
    assert min(told["validation"]) == told["validation"][told["trees"] - 1]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--protocol", "mal", "--parties", "2"], UnsupportedCombination),
        (["--protocol", "mal", "--setting", "vertical"], UnsupportedCombination),
        (["--protocol", "plain", "--setting", "horizontal"], UnsupportedCombination),
        (["--protocol", "plain", "--participants", "3"], UnsupportedCombination),
        (["--protocol", "secagg", "--eps", "1"], UnsupportedCombination),
        (["--protocol", "mal", "--eps", "0"], InvalidParameter),
        (["--protocol", "mal", "--setting", "diagonal"], InvalidParameter),
        (["--protocol", "mal", "--participants", "0"], InvalidParameter),
        (["--protocol", "mal", "--participants", "1000"], VeilBoostError),
        (["--protocol", "mal", "--validation-size", "0.2", "--eval-metric", "auc"], UnsupportedCombination),
        (["--protocol", "mal", "--trees", "2", "--network", "fast"], InvalidParameter),
    ],
)
def test_what_does_not_go_together_is_refused(table, options, error):
    with pytest.raises(error):
        simulate(table, *options, "--no-baselines")


def run(*arguments):
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return json.loads(done.output[done.output.index("{") :])


@pytest.fixture
def finished(tmp_path, table):
    """A participant's run folder as a horizontal job leaves it, its settings, and the model."""
    whole = load_table(table, id="id", label="label")
    parts = {"north": whole.take(np.arange(200)), "south": whole.take(np.arange(200, 400))}
    config = TrainingConfig(objective="binary", n_estimators=4, max_depth=2, max_bin=8)
    done = simulate_training(parts, SERVER, "secagg", config)
    folder = RunFolder.create(tmp_path / "runs", "credit")
    job = tmp_path / "credit.toml"
    assert run("init", "job", "credit", "--protocol", "secagg", "--out", job, "--json") == {"file": str(job)}
    folder.save_job(job.read_text())
    folder.save_share(done.shares["north"])
    folder.note(state="finished", party="north", role="participant")
    settings = tmp_path / "north.toml"
    run("init", "party", "north", "--data", table, "--id", "id", "--label", "label", "--out", settings, "--json")
    return folder, settings, done.model


def test_a_participant_predicts_its_own_rows_by_itself(finished, table, tmp_path):
    folder, settings, model = finished
    out = tmp_path / "scores.parquet"
    told = run("predict", "--model", folder.path, "--config", settings, "--data", table, "--out", out, "--json")
    assert told["parties"] == ["north"]
    scores = pq.read_table(out)
    rows = load_table(table, id="id", label="label")
    assert scores["id"].to_pylist() == rows.ids.tolist()
    expected = 1.0 / (1.0 + np.exp(-model.margins(rows.columns)[0]))
    assert np.allclose(scores["score"].to_numpy(), expected, rtol=0, atol=1e-12)
    told = run("predict", "--model", folder.path, "--id", "id", "--data", table, "--out", tmp_path / "s.csv", "--json")
    assert (told["rows"], told["columns"]) == (400, ["id", "score"])  # the share is the full model
    folder.note(state="failed")
    with pytest.raises(MissingShare, match="not finished"):
        run("predict", "--model", folder.path, "--config", settings, "--data", table, "--out", out)


def test_a_participant_evaluates_the_rows_that_it_held_out(finished, table):
    folder, settings, model = finished
    with pytest.raises(UnsupportedCombination, match="held out no rows"):
        run("evaluate", "--model", folder.path, "--config", settings)
    folder.save_job("validation = 0.25\n" + folder.job_text.replace("\nvalidation = ", "\n# validation = "))
    told = run("evaluate", "--model", folder.path, "--config", settings, "--json")
    rows = load_table(table, id="id", label="label")
    held_out = drawn_rows(rows.ids, 0.25, 0)
    assert told["rows"] == held_out.sum()
    margins = model.margins(rows.take(held_out).columns)[0]
    assert told["metrics"]["auc"]["value"] == pytest.approx(roc_auc_score(rows.label[held_out], margins))


def test_a_run_over_rows_is_exported(finished, tmp_path):
    folder, _, model = finished
    told = run("export", folder.path, "--to", tmp_path / "xgboost.json", "--json")
    assert told["model_sha256"] == model.sha256()
    assert json.loads((tmp_path / "xgboost.json").read_text())["learner"]


@pytest.mark.parametrize("protocol", ["mal", "secagg"])
def test_a_file_for_a_job_over_rows_is_written(tmp_path, protocol):
    file = tmp_path / "job.toml"
    run("init", "job", "credit", "--protocol", protocol, "--out", file, "--json")
    job = load_job(file)
    assert (job.driver, job.owners) == ("hub", ("north", "south", "east"))
    assert set(job.helpers) == set(protocol_named(protocol, "horizontal").helpers)
    with pytest.raises(InvalidParameter, match="role"):
        run("init", "job", "credit", "--protocol", protocol, "--out", file, "--party", "hub", "--party", "a:judge=b:1")


def test_a_horizontal_name_where_columns_are_divided():
    with pytest.raises(UnknownProtocol, match="horizontal"):
        protocol_named("mal", "vertical")


def test_networks():
    line = Network.parse("20mbit,100ms")
    assert line == Network(2e7, 0.1)
    assert line.seconds(2, 2_500_000) == pytest.approx(1.4)
    entries = [
        Entry(0.0, "sent", "a", "M", 1000),
        Entry(0.0, "sent", "b", "M", 1000),
        Entry(0.0, "received", "a", "M", 500),
        Entry(0.0, "received", "b", "M", 500),
        Entry(0.0, "sent", "a", "M", 0),
    ]
    assert line.replay(entries) == pytest.approx(3 * 0.1 + 8 * 3000 / 2e7)
    for text in ("", "20mbit", "0mbit,1ms", "20mb,1ms", "-1mbit,1ms"):
        with pytest.raises(InvalidParameter):
            Network.parse(text)
