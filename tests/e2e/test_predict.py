"""`veilboost predict` and `veilboost serve` with real parties over mutual TLS, as people and programs use them."""

from __future__ import annotations

import json
import re
import signal
import stat
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from parties import CONFIG, PARTIES, Town, make_certificates
from veilboost.boost.objective import make_objective
from veilboost.data.load import load_table
from veilboost.model.joined import join

MODEL = ("--model", "runs-bank/credit", "--config", "bank.toml")
TOKEN = "a-token-for-tests-only"  # noqa: S105


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    """A trained model, and two parties that serve it."""
    certificates = make_certificates(tmp_path_factory.mktemp("authority") / "certs")
    made = Town(tmp_path_factory.mktemp("town"), certificates, rows=300)
    try:
        made.settle("bank", limits={"connect_seconds": 2.0})
        job = made.write_job(made.serve("shop", "telecom"), config=replace(CONFIG, n_estimators=4), validation=0.2)
        made.answer("train", job.name, "--config", "bank.toml")
        yield made
    finally:
        made.close()


def tables(town: Town) -> dict[str, pa.Table]:
    return {party: pq.read_table(town.folder / f"{party}.parquet") for party in PARTIES}


def known_to_all(town: Town) -> list[str]:
    return sorted(set.intersection(*(set(table["id"].to_pylist()) for table in tables(town).values())))


def new_rows(town: Town, ids: list[str]) -> pa.Table:
    """The bank's columns of these people, in this order, without labels."""
    bank = tables(town)["bank"].drop_columns(["label"])
    place = {id: at for at, id in enumerate(bank["id"].to_pylist())}
    return bank.take([place[id] for id in ids])


def expected(town: Town, ids: list[str]) -> list[float]:
    """What the whole model gives, if it and the tables were pooled."""
    columns = []
    for party in PARTIES:
        table = load_table(
            town.folder / f"{party}.parquet", id="id", **({"label": "label"} if party == "bank" else {})
        ).sorted_by_id()
        columns += table.take(np.searchsorted(table.ids, ids)).columns
    model = join({party: town.run_folder(party).load_share() for party in PARTIES})
    return make_objective("binary").predict(model.margins(columns)).tolist()


# --- predict ----------------------------------------------------------------------------------------------


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


# --- serve ------------------------------------------------------------------------------------------------


class Service:
    """A running `veilboost serve`, and requests to it."""

    def __init__(self, town: Town, *options: str) -> None:
        self.process = town.spawn("serve", *MODEL, "--listen", "127.0.0.1:0", *options)
        found = re.match(r"serving credit on (http://127\.0\.0\.1:\d+)\n", self.process.stderr.readline())
        assert found, self.process.communicate(timeout=10)
        self.url = found[1]
        self.token: str | None = None

    def ask(self, path: str, body: Any = None) -> tuple[int, Any]:
        request = urllib.request.Request(  # noqa: S310
            self.url + path,
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self.token}"} if self.token else {}),
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
                status, text = answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                status, text = error.code, error.read().decode()
        return status, text if path in {"/", "/metrics"} else json.loads(text)

    def stop(self) -> str:
        """What it wrote, when it has ended well."""
        self.process.send_signal(signal.SIGTERM)
        _, log = self.process.communicate(timeout=20)
        assert self.process.returncode == 0, log
        return log


def requests_of(town: Town, ids: list[str]) -> list[dict[str, Any]]:
    return new_rows(town, ids).to_pylist()


def test_the_service_answers_one_row_many_rows_and_many_at_once(town: Town) -> None:
    service = Service(town)
    ids = known_to_all(town)[:20]
    rows, scores = requests_of(town, ids), expected(town, ids)
    assert service.ask("/v1/predict", {"row": rows[0]}) == (
        200,
        {"model": "credit", "prediction": {"id": ids[0], "score": scores[0]}},
    )
    status, answer = service.ask("/v1/predict", {"rows": rows[::-1]})
    assert (status, [each["score"] for each in answer["predictions"]]) == (200, scores[::-1])

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda row: service.ask("/v1/predict", {"row": row}), rows))
    assert [answer["prediction"]["score"] for _, answer in answers] == scores
    text = service.ask("/metrics")[1]
    assert 'veilboost_requests_total{method="POST",route="/v1/predict",status="200"} 22' in text
    assert "veilboost_rows_total 41" in text
    predictions = float(re.findall(r"^veilboost_predictions_total (\d+\.0)$", text, re.MULTILINE)[0])
    assert predictions < 22, "those that came at once share predictions"

    status, answer = service.ask("/v1/predict", {"row": {**rows[0], "id": "stranger"}})
    assert (status, answer["code"]) == (404, "VB-1202")
    status, answer = service.ask("/v1/predict", {"row": {"id": ids[0]}})
    assert (status, answer["code"]) == (400, "VB-1112")
    assert service.ask("/healthz")[1]["peers"] == {"shop": True, "telecom": True}
    assert [column["name"] for column in service.ask("/v1/model")[1]["columns"]] == ["n0", "n1"]
    assert "/v1/predict" in service.ask("/openapi.json")[1]["paths"]
    assert "credit" in service.ask("/")[1]
    log = service.stop()
    assert "POST /v1/predict 404 VB-1202" in log
    assert "Traceback" not in log
    assert not any(id in log for id in ids)


def test_the_service_has_a_token_if_told_and_refuses_a_taken_port(town: Town) -> None:
    file = town.folder / "token"
    file.write_text(TOKEN)
    file.chmod(0o644)
    assert town.refused("serve", *MODEL, "--token-file", "token").startswith("VB-1605")
    file.chmod(0o600)
    service = Service(town, "--token-file", "token")
    assert (service.ask("/v1/model")[0], service.ask("/healthz")[0]) == (401, 200)
    service.token = TOKEN
    assert service.ask("/v1/model")[0] == 200
    taken = town.refused("serve", *MODEL, "--listen", service.url.removeprefix("http://"))
    assert taken.startswith("VB-1409: cannot listen on 127.0.0.1:")
    assert TOKEN not in service.stop()


def test_a_party_that_is_away_is_named_and_the_service_lives_on(town: Town) -> None:
    service = Service(town)
    ids = known_to_all(town)[:2]
    row = requests_of(town, ids)[0]
    town.daemons["telecom"].send_signal(signal.SIGTERM)
    assert town.daemons["telecom"].wait(10) == 0
    spent = json.loads((town.folder / "runs-shop" / "predictions.json").read_text())["rows"]
    status, answer = service.ask("/v1/predict", {"row": row})
    assert (status, answer["code"]) == (503, "VB-1409")
    assert "telecom" in answer["what"]
    assert "shop" not in answer["what"]
    health = service.ask("/healthz")[1]
    assert (health["status"], health["peers"]) == ("degraded", {"shop": True, "telecom": False})
    pq.write_table(new_rows(town, ids), town.folder / "two.parquet")
    line = town.refused("predict", *MODEL, "--data", "two.parquet", "--out", "x.csv")
    assert line.startswith("VB-1409: telecom cannot be reached")
    after = json.loads((town.folder / "runs-shop" / "predictions.json").read_text())["rows"]
    assert after == spent, "the shop was asked for nothing while the telecom was away"

    town.serve("telecom")
    status, answer = service.ask("/v1/predict", {"row": row})
    assert (status, answer["prediction"]) == (200, {"id": ids[0], "score": expected(town, ids)[0]})
    service.stop()


def test_serve_refuses_a_model_whose_rows_have_no_ids_to_find_them_by(town: Town, tmp_path: Path) -> None:
    run = tmp_path / "other"
    run.mkdir()
    for file in (town.folder / "runs-bank" / "credit").rglob("*"):
        if file.is_file():
            target = run / file.relative_to(town.folder / "runs-bank" / "credit")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
    job = run / "job.toml"
    job.write_text(job.read_text().replace('alignment = "ecdh"', 'alignment = "prealigned"'))
    assert town.refused("serve", "--model", run, "--config", "bank.toml").startswith("VB-1004")
