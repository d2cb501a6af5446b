"""`veilboost deploy`, `deployments` and `predict --unknown` with real parties over mutual TLS, as people use them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parties import CONFIG, Town, make_certificates
from pooled_rows import expected, known_to_all, new_rows

BANK, SHOP = ("--config", "bank.toml"), ("--config", "shop.toml")
PREDICT = ("predict", "--model", "runs-bank/credit", *BANK, "--data", "new.parquet", "--out", "scores.parquet")


@pytest.fixture
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    certificates = make_certificates(tmp_path_factory.mktemp("authority") / "certs")
    made = Town(tmp_path_factory.mktemp("town"), certificates, rows=200)
    try:
        for party in ("shop", "telecom"):
            made.settle(party, {"deploy_to": ("bank",), "explanations": "party"})
        job = made.write_job(made.serve("shop", "telecom"), config=replace(CONFIG, n_estimators=3))
        made.answer("train", job.name, *BANK)
        yield made
    finally:
        made.close()


def test_the_life_of_a_deployment(town: Town) -> None:
    ids = known_to_all(town)[:3]
    rows = new_rows(town, ids)
    stranger = rows.slice(0, 1).set_column(0, "id", pa.array(["stranger"]))
    pq.write_table(pa.concat_tables([rows, stranger]), town.folder / "new.parquet")
    assert "veilboost deploy" in town.refused(*PREDICT, "--unknown", "skip")

    made = town.answer("deploy", "runs-bank/credit", *BANK, "--days", "30")
    assert (made["name"], made["version"], made["state"]) == ("credit", 1, "live")
    (listed,) = town.answer("deployments", "list", *SHOP)["deployments"]
    assert (listed["id"], listed["active"], listed["state"]) == (made["id"], "bank", "live")

    def predicted() -> list[float | None]:
        told = town.answer(*PREDICT, "--unknown", "skip")
        scores = pq.read_table(town.folder / "scores.parquet")
        assert (told["unknown"], scores["status"].to_pylist()[:3]) == (1, ["known"] * 3)
        assert scores["status"][3].as_py() == "unknown at shop, telecom"
        return scores["score"].to_pylist()[:3]

    assert predicted() == expected(town, ids)
    explain = ("explain", *PREDICT[1:-1], "why.parquet", "--report", "why.html", "--unknown", "skip")
    assert town.answer(*explain)["unknown"] == 1
    why = pq.read_table(town.folder / "why.parquet").to_pylist()
    assert [row["score"] for row in why[:3]] == pytest.approx(expected(town, ids), abs=1e-9)
    assert [row["status"] for row in why] == ["known"] * 3 + ["unknown at shop, telecom"]
    margins = [sum(row[name] for name in row if name.startswith(("expected", "contribution"))) for row in why[:3]]
    assert [1 / (1 + math.exp(-margin)) for margin in margins] == pytest.approx(expected(town, ids), abs=1e-9)
    assert [why[3][name] for name in ("score", "expected", "contribution_shop")] == [None] * 3
    assert why[3]["reason_1"] == ""
    assert "nan" not in (town.folder / "why.html").read_text().lower()

    trail = town.answer("deployments", "trail", "credit", *SHOP, "--id", ids[1])["trail"]
    assert [(each["peer"], each["what"], each["rows"]) for each in trail] == [
        ("bank", "scored", 3),
        ("bank", "explained", 3),
    ]
    assert all((each["ids"], len(each["slots"])) == ([ids[1]], 1) for each in trail)  # nothing about other people
    assert town.refused("deployments", "trail", "credit", *SHOP, "--id", "stranger").startswith("VB-1002")
    asked = town.answer("deployments", "show", "credit", *SHOP)["asked"]
    assert {each["what"]: each["rows"] for each in asked}["explained"] == 3

    labels = pa.concat_tables([rows, stranger]).append_column("label", [[0.0, 1.0, 0.0, 1.0]])
    pq.write_table(labels, town.folder / "labelled.parquet")
    evaluate = ("evaluate", *PREDICT[1:5], "--data", "labelled.parquet")
    assert town.refused(*evaluate).startswith("VB-1202")
    for unknown, answered in (("skip", 3), ("default", 4)):
        found = town.answer(*evaluate, "--unknown", unknown)
        assert (found["rows"], found["skipped"].get("without a score", 0)) == (answered, 4 - answered)

    town.answer("deployments", "rekey", "credit", *BANK)
    assert predicted() == expected(town, ids)
    assert town.answer("deploy", "runs-bank/credit", *BANK)["version"] == 2
    assert town.answer("undeploy", "credit", *BANK, "--version", "2")["state"] == "withdrawn"
    assert predicted() == expected(town, ids)

    assert town.answer("deployments", "withdraw", "credit", *SHOP, "--version", "1")["state"] == "withdrawn"
    assert town.refused(*PREDICT, "--unknown", "skip").startswith("VB-1414")
