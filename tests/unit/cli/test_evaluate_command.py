"""`veilboost predict` with a saved model, and `veilboost evaluate` of its scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv, feather
from sklearn.metrics import roc_auc_score

from command_line import call
from outline import outline
from veilboost.errors import UnreadableFile
from veilboost.model.joined import join
from veilboost.model.store import load_model
from veilboost.report.runs import make_report
from veilboost.types import Column

pytestmark = pytest.mark.fast

ROWS = 240
BOTH = ("--data", "bank=bank.parquet", "--data", "shop=shop.csv")
QUICK = ("--n-estimators", "3", "--max-depth", "2", "--max-bin", "8", "--no-baselines", "--n-jobs", "1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of two parties one table of all columns, and two models."""
    folder = tmp_path_factory.mktemp("saved")
    random = np.random.default_rng(2)
    values = random.normal(size=(ROWS, 4)).astype(np.float32)
    label = (values.sum(axis=1) + random.normal(size=ROWS) > 0).astype(int)
    region = np.array(["north", "south"])[random.integers(2, size=ROWS)]
    ids = random.permutation(ROWS)
    bank = {"id": ids, "y": label, "age": values[:, 0], "n": values[:, 1], "region": region}
    shop = {"id": ids[::-1], "k": values[::-1, 2], "m": values[::-1, 3]}
    pq.write_table(pa.table(bank), folder / "bank.parquet")
    csv.write_csv(pa.table(shop), folder / "shop.csv")
    pq.write_table(pa.table({"id": ids, "y": label, "a": values[:, 0], "b": values[:, 3]}), folder / "all.parquet")
    for data, name in ((BOTH, "model"), (("--data", "all.parquet"), "one")):
        answer(folder, "simulate", *data, "--id", "id", "--label", "y", *QUICK, "--save", name, "--out", f"{name}-out")
    return folder


def answer(folder: Path, *arguments: object) -> dict[str, Any]:
    done = call(*arguments, "--json", folder=folder)
    assert done.returncode == 0, done.stderr
    found: Any = json.loads(done.stdout)
    return found


def refused(folder: Path, *arguments: object) -> str:
    done = call(*arguments, folder=folder)
    assert (done.returncode, done.stdout) == (2, ""), done.stdout
    return done.stderr.splitlines()[-1]


def read(file: Path) -> pa.Table:
    readers = {".parquet": pq.read_table, ".csv": csv.read_csv, ".arrow": feather.read_table}
    return readers[file.suffix](file)  # type: ignore[operator]


@pytest.mark.parametrize("ending", ["parquet", "csv", "arrow"])
def test_a_saved_model_predicts_the_files_of_its_parties(folder: Path, tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"scores.{ending}"
    told = answer(folder, "predict", "--model", "model", "--id", "id", *BOTH, "--out", out)
    assert (told["rows"], told["columns"], told["parties"]) == (ROWS, ["id", "score"], ["bank", "shop"])
    bank, shop = pq.read_table(folder / "bank.parquet"), csv.read_csv(folder / "shop.csv")
    # What the joined shares compute on the pooled rows, without anything of the command.
    model, order = join(load_model(folder / "model")), np.argsort(shop["id"].to_numpy())
    place = order[np.searchsorted(shop["id"].to_numpy()[order], bank["id"].to_numpy())]
    regions = np.array([["north", "south"].index(each) for each in bank["region"].to_pylist()], dtype=np.int32)
    own = [Column(name, bank[name].to_numpy().astype(np.float32)) for name in ("age", "n")]
    theirs = [Column(name, shop[name].to_numpy()[place].astype(np.float32)) for name in ("k", "m")]
    margins = model.margins([*own, *theirs, Column("region", regions, ("north", "south"))])
    scores = read(out)
    assert scores["id"].to_pylist() == bank["id"].to_pylist()
    assert scores["score"].to_numpy() == pytest.approx(model.skeleton.loss.predict(margins), rel=1e-15)


def test_a_saved_model_predicts_one_file_of_all_columns(folder: Path, tmp_path: Path) -> None:
    answer(folder, "predict", "--model", "one", "--data", "all.parquet", "--out", tmp_path / "numbered.csv")
    assert read(tmp_path / "numbered.csv")["row"].to_pylist() == list(range(ROWS))
    told = answer(
        folder, "evaluate", "--scores", tmp_path / "numbered.csv", "--data", "all.parquet", "--label", "y"
    )  # without an id, rows are matched by their number
    again = answer(folder, "evaluate", "--model", "one", "--data", "all.parquet", "--label", "y", "--id", "id")
    assert told["metrics"] == again["metrics"]


def test_rows_that_are_not_in_every_file_have_no_score(folder: Path, tmp_path: Path) -> None:
    shop = csv.read_csv(folder / "shop.csv")
    csv.write_csv(shop.slice(0, ROWS - 7), tmp_path / "shop.csv")
    data = ("--data", "bank=bank.parquet", "--data", f"shop={tmp_path / 'shop.csv'}")
    done = call("predict", "--model", "model", "--id", "id", *data, "--out", tmp_path / "s.parquet", folder=folder)
    assert f"7 of {ROWS} rows are not in every file" in done.stderr
    scores = read(tmp_path / "s.parquet")
    missing = set(shop["id"].to_pylist()[ROWS - 7 :])
    empty = np.isnan(scores["score"].to_numpy())
    assert {id for id, gone in zip(scores["id"].to_pylist(), empty, strict=True) if gone} == missing
    told = answer(
        folder, "evaluate", "--scores", tmp_path / "s.parquet", "--data", "bank.parquet", "--label", "y", "--id", "id"
    )
    assert (told["rows"], told["skipped"]) == (ROWS - 7, {"without a score": 7})


def test_an_evaluation_of_a_score_file(folder: Path, tmp_path: Path) -> None:
    scores = tmp_path / "scores.parquet"
    answer(folder, "predict", "--model", "model", "--id", "id", *BOTH, "--out", scores)
    labels = ("--data", "bank.parquet", "--label", "y", "--id", "id")
    more = ("--segment", "region", "--thresholds", "0.1,0.3", "--bootstrap", "10", "--reference", scores)
    told = answer(folder, "evaluate", "--scores", scores, *labels, *more, "--report", tmp_path / "page.html")
    y, score = pq.read_table(folder / "bank.parquet")["y"].to_numpy(), read(scores)["score"].to_numpy()
    auc = told["metrics"]["auc"]
    assert auc["value"] == pytest.approx(roc_auc_score(y, score))
    assert auc["low"] <= auc["value"] <= auc["high"]
    assert [each["threshold"] for each in told["tables"]["thresholds"]] == [0.1, 0.3]
    assert {each["name"] for each in told["segments"]} == {"north", "south"}
    assert told["stability"]["psi"] == 0.0
    assert told == answer(folder, "evaluate", "--scores", scores, *labels, *more, "--report", tmp_path / "page.html")
    page = outline((tmp_path / "page.html").read_text()).text
    for part in ("ROC curve", "Precision and recall", "KS", "Lift and gain", "Brier score", "north", "Population"):
        assert part in page, part
    text = call("evaluate", "--scores", scores, *labels, *more, folder=folder).stdout
    for part in ("AUC", "Segments by region", "Population stability index 0.0000", "Confusion matrix"):
        assert part in text, part
    saved = answer(folder, "evaluate", "--model", "model", *BOTH, *labels[2:])
    assert saved["metrics"]["auc"]["value"] == pytest.approx(auc["value"])


def test_a_report_shows_the_evaluation_of_a_simulation_and_of_a_file(folder: Path, tmp_path: Path) -> None:
    simulated = make_report([folder / "model-out"])
    evaluation = simulated.data["evaluation"]
    assert evaluation["metrics"]["auc"]["value"] == pytest.approx(
        simulated.data["quality"]["together, 2 parties"], abs=1e-12
    )
    assert evaluation["stability"] is not None
    assert "Evaluation" in outline(simulated.html).text
    told = answer(folder, "evaluate", "--model", "one", "--data", "all.parquet", "--label", "y")
    file = tmp_path / "evaluation.json"
    file.write_text(json.dumps(told))
    given = make_report([folder / "model-out"], evaluation=file)
    assert given.data["evaluation"]["rows"] == ROWS
    for wrong in ("[]", "{}", json.dumps({**told, "version": 99}), json.dumps({**told, "tables": {}})):
        file.write_text(wrong)
        with pytest.raises(UnreadableFile):
            make_report([folder / "model-out"], evaluation=file)


def test_classes_and_values_are_evaluated_too(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    values = random.normal(size=(150, 2))
    kinds = np.array(["a", "b", "c"])[np.digitize(values[:, 0], [-0.5, 0.5])]
    amount = values[:, 0] * 3 + 10
    pq.write_table(pa.table({"x": values[:, 0], "z": values[:, 1], "kind": kinds}), tmp_path / "kinds.parquet")
    pq.write_table(pa.table({"x": values[:, 0], "z": values[:, 1], "amount": amount}), tmp_path / "amounts.parquet")
    for name, label, found in (("kinds", "kind", "accuracy"), ("amounts", "amount", "r2")):
        data = ("--data", f"{name}.parquet", "--label", label)
        answer(tmp_path, "simulate", *data, *QUICK, "--save", name)
        answer(tmp_path, "predict", "--model", name, *data[:2], "--out", f"{name}.csv")
        told = answer(tmp_path, "evaluate", "--scores", f"{name}.csv", *data, "--report", f"{name}.html")
        assert told["metrics"][found]["value"] > 0.4
        again = answer(tmp_path, "evaluate", "--model", name, *data)
        assert again["metrics"][found]["value"] == pytest.approx(told["metrics"][found]["value"])
    assert "true class" in outline((tmp_path / "kinds.html").read_text()).text
    assert "Residuals" in outline((tmp_path / "amounts.html").read_text()).text


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("predict", "--model", "model", "--data", "bank=bank.parquet", "--data", "shop=shop.csv", "--out", "x.csv"),
         "VB-1112"),  # no id
        (("predict", "--model", "model", "--id", "id", "--data", "bank=bank.parquet", "--out", "x.csv"), "VB-1004"),
        (("predict", "--model", "model", "--id", "id", "--data", "bank.parquet", "--out", "x.csv"), "VB-1112"),
        (("predict", "--model", "model/bank", "--id", "id", "--data", "bank.parquet", "--out", "x.csv"), "VB-1301"),
        (("predict", "--model", "one", "--data", "all.parquet", "--out", "all.parquet"), "VB-1002"),
        (("predict", "--model", "one", "--data", "x=all.parquet", "--out", "all.parquet"), "VB-1002"),
        (("predict", "--model", "one", "--data", "all.parquet", "--out", "x.xlsx"), "VB-1102"),
        (("evaluate",), "VB-1004"),
        (("evaluate", "--scores", "s.csv", "--model", "one"), "VB-1004"),
        (("evaluate", "--scores", "all.parquet", "--config", "c.toml", "--data", "all.parquet"), "VB-1004"),
        (("evaluate", "--scores", "all.parquet", "--data", "all.parquet", "--label", "y"), "VB-1112"),
        (("evaluate", "--scores", "all.parquet"), "VB-1002"),
        (("evaluate", "--model", "one", "--data", "all.parquet"), "VB-1104"),
        (("evaluate", "--model", "one", "--data", "all.parquet", "--label", "y", "--thresholds", "high"), "VB-1002"),
        (("evaluate", "--model", "one", "--data", "all.parquet", "--label", "y", "--bootstrap", "-1"), "VB-1002"),
        (("evaluate", "--model", "one", "--data", "all.parquet", "--label", "y", "--segment", "a"), "VB-1002"),
        (("evaluate", "--scores", "s.csv", "--objective", "odd"), "VB-1002"),
    ],
)  # fmt: skip
def test_what_is_refused(folder: Path, arguments: tuple[str, ...], code: str) -> None:
    assert refused(folder, *arguments).startswith(code)
