"""`veilboost predict` with real parties over mutual TLS, as people use it."""

from __future__ import annotations

import json
import signal
import stat
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from parties import CONFIG, PARTIES, Town, make_certificates
from pooled_rows import expected, known_to_all, new_rows, tables

MODEL = ("--model", "runs-bank/credit", "--config", "bank.toml")


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    """A trained model, and two parties that serve it."""
    certificates = make_certificates(tmp_path_factory.mktemp("authority") / "certs")
    made = Town(tmp_path_factory.mktemp("town"), certificates, rows=300)
    try:
        made.settle("bank", limits={"connect_seconds": 5.0})
        job = made.write_job(made.serve("shop", "telecom"), config=replace(CONFIG, n_estimators=4), validation=0.2)
        made.answer("train", job.name, "--config", "bank.toml")
        yield made
    finally:
        made.close()


def test_a_file_of_rows_becomes_a_file_of_scores(town: Town) -> None:
    ids = known_to_all(town)[::-1]
    pq.write_table(new_rows(town, ids), town.folder / "new.parquet")
    done = town.answer("predict", *MODEL, "--data", "new.parquet", "--out", "scores.parquet")
    assert (done["rows"], done["columns"], done["parties"]) == (len(ids), ["id", "score"], list(PARTIES))
    scores = pq.read_table(town.folder / "scores.parquet")
    assert scores["id"].to_pylist() == ids
    assert scores["score"].to_pylist() == expected(town, ids)
    assert stat.S_IMODE((town.folder / "scores.parquet").stat().st_mode) == 0o600

    csv.write_csv(new_rows(town, ids[:3]), town.folder / "new.csv")
    code, out, err = town.run("predict", *MODEL, "--data", "new.csv", "--out", "scores.csv")
    assert code == 0, err
    assert "3 rows" in out
    assert "predicting 3 rows with shop and telecom" in err
    assert csv.read_csv(town.folder / "scores.csv")["score"].to_pylist() == expected(town, ids[:3])


def test_what_predict_refuses(town: Town) -> None:
    ids = known_to_all(town)
    some = new_rows(town, ids[:3])
    stranger = some.set_column(0, "id", pa.array([ids[0], ids[1], "stranger"]))
    for name, table in (("some", some), ("strange", stranger), ("narrow", some.drop_columns(["n1"]))):
        pq.write_table(table, town.folder / f"{name}.parquet")

    def refused(data: str, out: str = "x.csv", model: tuple[str, ...] = MODEL) -> str:
        return town.refused("predict", *model, "--data", f"{data}.parquet", "--out", out)

    assert refused("strange").startswith("VB-1202: 1 of the 3 rows")
    assert refused("narrow").startswith("VB-1112")
    assert refused("absent").startswith("VB-1101")
    assert refused("some", "x.xlsx").startswith("VB-1102")
    assert refused("some", "nowhere/x.csv").startswith("VB-1101")
    assert refused("some", "some.parquet").startswith("VB-1002")
    assert refused("some", model=("--model", "runs-bank/none", "--config", "bank.toml")).startswith("VB-1706")
    assert refused("some", model=("--model", "runs-shop/credit", "--config", "shop.toml")).startswith("VB-1304")
    assert not (town.folder / "x.csv").exists()


def test_an_evaluation_of_a_run(town: Town) -> None:
    """Of the rows that the run held out, and of new rows with labels."""
    told = town.answer("evaluate", *MODEL, "--bootstrap", "5", "--report", "evaluation.html")
    last = json.loads((town.run_folder("bank").path / "metrics.jsonl").read_text().splitlines()[-1])
    assert told["metrics"]["auc"]["value"] == pytest.approx(last["validation"])
    assert 20 < told["rows"] < 80
    assert "ROC curve" in (town.folder / "evaluation.html").read_text()

    ids = known_to_all(town)[:50]
    rows = tables(town)["bank"]
    labelled = rows.filter(pa.compute.is_in(rows["id"], pa.array(ids)))
    pq.write_table(labelled, town.folder / "labelled.parquet")
    told = town.answer("evaluate", *MODEL, "--data", "labelled.parquet")
    assert told["rows"] == 50
    assert town.refused("evaluate", *MODEL, "--label", "label").startswith("VB-1004")
    assert town.refused("predict", *MODEL[:2], "--data", "labelled.parquet", "--out", "x.csv").startswith("VB-1304")


def test_a_party_that_is_away_is_named_and_the_others_spend_nothing(town: Town) -> None:
    pq.write_table(new_rows(town, known_to_all(town)[:2]), town.folder / "two.parquet")
    town.daemons["telecom"].send_signal(signal.SIGTERM)
    assert town.daemons["telecom"].wait(10) == 0
    counts = town.folder / "runs-shop" / "predictions.json"
    before = counts.read_text()
    line = town.refused("predict", *MODEL, "--data", "two.parquet", "--out", "x.csv")
    assert line.startswith("VB-1409: telecom cannot be reached")
    assert counts.read_text() == before
