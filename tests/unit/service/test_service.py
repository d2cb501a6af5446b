"""The HTTP service around a predictor that is not one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from fake_deployment import FakeDeployment
from veilboost.errors import PeerRefused, PeerUnreachable, RowsDiffer
from veilboost.infer.scores import ModelInfo
from veilboost.model.share import ColumnInfo
from veilboost.service.app import ServiceLimits, make_app

pytestmark = pytest.mark.fast

COLUMNS = (ColumnInfo("income"), ColumnInfo("housing", ("own", "rent")), ColumnInfo("branch", ("1", "2")))
INFO = ModelInfo("credit", "bank", ("bank", "shop"), "plain", "binary", None, COLUMNS, "customer_id", 7)
CLASSES = ModelInfo("kind", "bank", ("bank",), "plain", "multiclass", ("a", "b", "c"), COLUMNS, "customer_id", 21)
ROW = {"id": "C1", "income": 12.5, "housing": "rent", "branch": 2}
DEEP = b"[" * 300 + b"]" * 300
TOKEN = b"0123456789abcdef"
PAGES = ("/v1/predict", "/v1/explain")


@contextmanager
def service(fake: FakeDeployment | None = None, log: list[str] | None = None, **options: Any) -> Iterator[TestClient]:
    lines = [] if log is None else log
    app = make_app(fake or FakeDeployment(INFO), log=lines.append, **options)
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def post(client: TestClient, content: Any, page: str = "/v1/predict", **headers: str) -> tuple[int, Any]:
    body = content if isinstance(content, (bytes, str)) else json.dumps(content)
    answer = client.post(page, content=body, headers={"Content-Type": "application/json", **headers})
    return answer.status_code, answer.json()


def resolved(spec: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """What a reference in an OpenAPI document stands for."""
    for key in schema["$ref"].removeprefix("#/").split("/"):
        spec = spec[key]
    return spec


def metrics(client: TestClient) -> dict[tuple[str, ...], float]:
    """Each metric by its name and the values of its labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(client.get("/metrics").text)
        for sample in family.samples
    }


# --- what works -------------------------------------------------------------------------------------------


def test_one_row_and_several() -> None:
    with service(fake := FakeDeployment(INFO)) as client:
        status, answer = post(client, {"row": ROW})
        prediction = {"id": "C1", "score": 12.5, "status": "known"}
        assert (status, answer) == (200, {"model": "credit", "version": 3, "prediction": prediction})
        rows = [{**ROW, "id": 7}, {**ROW, "id": 3, "income": None, "housing": None, "branch": 9}]
        status, answer = post(client, {"rows": rows})
    assert [(each["id"], each["score"]) for each in answer["predictions"]] == [(7, 12.5), (3, -1.0)]
    table = fake.asked[1]
    assert table.ids.tolist() == ["7", "3"]
    assert [column.values.tolist() for column in table.columns[1:]] == [[1, -1], [1, -1]]
    assert table.columns[1].categories == ("own", "rent")


def test_classes_by_name() -> None:
    with service(FakeDeployment(CLASSES)) as client:
        _, answer = post(client, {"rows": [ROW, {**ROW, "id": "u2"}], "unknown": "skip"})
    known, skipped = answer["predictions"]
    scores = {"a": 0.125, "b": 0.25, "c": 0.375}
    assert known == {"id": "C1", "scores": scores, "predicted": "c", "status": "known"}
    assert skipped == {"id": "u2", "scores": None, "predicted": None, "status": "unknown at shop"}


@pytest.mark.parametrize(("unknown", "score"), [("skip", None), ("default", 12.5)])
def test_rows_that_a_party_does_not_know(unknown: str, score: float | None) -> None:
    with service() as client:
        rows = [{**ROW, "id": "u1"}, ROW]
        assert post(client, {"rows": rows})[1]["code"] == "VB-1202"
        assert post(client, {"rows": rows, "unknown": "error"})[0] == 404
        status, answer = post(client, {"rows": rows, "unknown": unknown})
        counts = metrics(client)
    assert status == 200
    assert answer["predictions"] == [
        {"id": "u1", "score": score, "status": "unknown at shop"},
        {"id": "C1", "score": 12.5, "status": "known"},
    ]
    assert counts["veilboost_rows_total",] == (1 if unknown == "skip" else 2)
    assert counts["veilboost_unknown_rows_total",] == 1
    assert counts["veilboost_errors_total", "VB-1202"] == 2


def test_contributions_and_reason_codes() -> None:
    with service() as client:
        status, answer = post(client, {"row": ROW}, "/v1/explain")
        assert (status, answer["model"], answer["version"]) == (200, "credit", 3)
        assert answer["features"] == [{"name": "income", "party": "bank"}, {"name": "shop", "party": "shop"}]
        explained = {"expected": 0.5, "contributions": {"income": 11.0, "shop": 1.0}, "reasons": ["income", "shop"]}
        assert answer["explanation"] == {"id": "C1", "score": 12.5, "status": "known", **explained}
        rows = [{**ROW, "id": "u1"}, {**ROW, "income": 1}]
        _, answer = post(client, {"rows": rows, "unknown": "skip", "reasons": 1}, "/v1/explain")
        assert post(client, {"rows": rows}, "/v1/explain")[0] == 404
        counts = metrics(client)
    skipped, known = answer["explanations"]
    nothing = {"score": None, "expected": None, "contributions": None, "reasons": None}
    assert skipped == {"id": "u1", "status": "unknown at shop", **nothing}
    assert (known["contributions"], known["reasons"]) == ({"income": -0.5, "shop": 1.0}, ["shop"])
    assert (counts["veilboost_rows_total",], counts["veilboost_explained_rows_total",]) == (2, 2)
    assert counts["veilboost_requests_total", "POST", "/v1/explain", "200"] == 2
    assert counts["veilboost_unknown_rows_total",] == 1


def test_contributions_of_classes() -> None:
    with service(FakeDeployment(CLASSES)) as client:
        _, answer = post(client, {"rows": [ROW, {**ROW, "id": "u2"}], "unknown": "skip"}, "/v1/explain")
    known, skipped = answer["explanations"]
    assert known["expected"] == {"a": 0.5, "b": 0.5, "c": 0.5}
    assert known["contributions"]["c"] == {"income": 0.375 - 1.5, "shop": 1.0}
    assert (known["scores"]["c"], known["reasons"]) == (0.375, ["shop"])
    assert [skipped[key] for key in ("scores", "expected", "contributions", "reasons")] == [None] * 4


def test_scores_with_reason_codes() -> None:
    with service() as client:
        _, answer = post(client, {"rows": [ROW, {**ROW, "id": "u1"}], "unknown": "skip", "reasons": 1})
        assert [each["reasons"] for each in answer["predictions"]] == [["income"], None]
        assert set(answer["predictions"][0]) == {"id", "score", "status", "reasons"}
        assert "reasons" not in post(client, {"row": ROW, "reasons": 0})[1]["prediction"]
        counts = metrics(client)
    assert (counts["veilboost_rows_total",], counts["veilboost_explained_rows_total",]) == (2, 1)


def test_what_the_service_says_of_itself() -> None:
    with service() as client:
        model = client.get("/v1/model").json()
        assert (model["objective"], model["parties"], model["id"]) == ("binary", ["bank", "shop"], "id")
        assert model["version"] == 3
        assert [(column["name"], column["kind"]) for column in model["columns"]] == [
            ("income", "number"),
            ("housing", "category"),
            ("branch", "category"),
        ]
        health = client.get("/healthz").json()
        assert (health["status"], health["peers"]) == ("ok", {"shop": True, "telecom": None})
        spec = client.get("/openapi.json").json()
        body = spec["paths"]["/v1/predict"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        one, many = (resolved(spec, each)["properties"] for each in body["anyOf"])
        assert list(resolved(spec, one["row"])["properties"]) == ["id", "income", "housing", "branch"]
        assert resolved(spec, one["row"])["additionalProperties"] is False
        assert (many["rows"]["items"], many["rows"]["maxItems"]) == (one["row"], 1000)
        assert one["unknown"]["enum"] == many["unknown"]["enum"] == ["error", "skip", "default"]
        score = resolved(spec, {"$ref": "#/components/schemas/Score"})
        assert score["required"] == ["id", "score", "status"]
        assert one["reasons"]["default"] == 0
        body = spec["paths"]["/v1/explain"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert [resolved(spec, each)["properties"]["reasons"]["default"] for each in body["anyOf"]] == [4, 4]
        explained = resolved(spec, {"$ref": "#/components/schemas/Explained"})
        assert explained["required"] == ["id", "score", "status", "expected", "contributions", "reasons"]
        refs = re.findall(r'"\$ref": "([^"]+)"', json.dumps(spec))
        assert all(resolved(spec, {"$ref": each}) for each in refs)
        assert set(spec["paths"]) == {"/v1/predict", "/v1/explain", "/v1/model", "/healthz", "/metrics"}
        front = client.get("/")
        assert "income" in front.text
        assert "<script" not in front.text


def test_health_is_degraded_and_still_healthy_when_a_party_is_away() -> None:
    with service(FakeDeployment(INFO, peers={"shop": False})) as client:
        answer = client.get("/healthz")
    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")


def test_metrics_count_requests_errors_rows_and_seconds() -> None:
    with service() as client:
        post(client, {"rows": [ROW, {**ROW, "id": "C2"}]})
        post(client, {"rows": []})
        client.get("/nowhere/C1")
        answer, found = client.get("/metrics"), metrics(client)
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert found["veilboost_requests_total", "POST", "/v1/predict", "200"] == 1
    assert found["veilboost_requests_total", "GET", "other", "404"] == 1
    assert found["veilboost_errors_total", "VB-1113"] == 1
    assert (found["veilboost_rows_total",], found["veilboost_unknown_rows_total",]) == (2, 0)
    assert found["veilboost_waiting_requests",] == 0
    assert found["veilboost_request_seconds_bucket", "+Inf", "/v1/predict"] == 2
    assert found["veilboost_request_seconds_count", "/v1/predict"] == 2
    assert found["veilboost_request_seconds_sum", "/v1/predict"] > 0
    assert not any("created" in name for name, *_ in found)
    assert "C1" not in answer.text


def test_every_service_counts_for_itself() -> None:
    with service() as first, service() as second:
        post(first, {"row": ROW})
        assert "veilboost_rows_total 1.0" in first.get("/metrics").text
        assert "veilboost_rows_total 0.0" in second.get("/metrics").text


# --- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "VB-1401"),
        (b"\xff", 400, "VB-1401"),
        (b"[" * 100_000, 400, "VB-1401"),
        (b'{"row": {"id": 1' + b"0" * 5000 + b"}}", 400, "VB-1401"),
        ('{"row": {"id": "C1", "income": NaN, "housing": null, "branch": null}}', 400, "VB-1401"),
        ('{"row": {"id": "C1", "id": "C2"}}', 400, "VB-1115"),
        ([ROW], 400, "VB-1401"),
        ({"row": ROW, "rows": []}, 400, "VB-1401"),
        ({"unknown": "skip"}, 400, "VB-1401"),
        ({"row": ROW, "unknown": "ignore"}, 400, "VB-1002"),
        ({"row": ROW, "unknown": ["skip"]}, 400, "VB-1002"),
        ({"row": ROW, "unknown": None}, 400, "VB-1002"),
        ({"row": ROW, "reasons": -1}, 400, "VB-1002"),
        ({"row": ROW, "reasons": 101}, 400, "VB-1002"),
        ({"row": ROW, "reasons": 10**400}, 400, "VB-1002"),
        ({"row": ROW, "reasons": True}, 400, "VB-1002"),
        ({"row": ROW, "reasons": 2.0}, 400, "VB-1002"),
        ({"row": ROW, "reasons": "4"}, 400, "VB-1002"),
        ({"row": ROW, "reasons": None}, 400, "VB-1002"),
        ('{"row": {}, "reasons": NaN}', 400, "VB-1401"),
        ({"row": ROW, "timeout": 3}, 400, "VB-1401"),
        (b'{"row": ' * 100_000, 400, "VB-1401"),
        (b'{"row": {"id": "C1", "income": %b, "housing": null, "branch": null}}' % DEEP, 400, "VB-1109"),
        (b'{"rows": [%b]}' % b",".join([b"{}"] * 500_000), 413, "VB-1406"),
        ({"row": [ROW]}, 400, "VB-1401"),
        ({"rows": [ROW, 3]}, 400, "VB-1401"),
        ({"rows": []}, 400, "VB-1113"),
        ({"rows": [{**ROW, "id": number} for number in range(6)]}, 413, "VB-1406"),
        ({"row": {**ROW, "id": None}}, 400, "VB-1114"),
        ({"row": {**ROW, "id": " "}}, 400, "VB-1114"),
        ({"row": {**ROW, "id": 1.0}}, 400, "VB-1109"),
        ({"row": {**ROW, "id": True}}, 400, "VB-1109"),
        ({"row": {**ROW, "id": 2**63}}, 400, "VB-1109"),
        ({"row": {**ROW, "id": "C1\0"}}, 400, "VB-1109"),
        ({"row": {**ROW, "id": "\ud800"}}, 400, "VB-1109"),
        ({"rows": [ROW, {**ROW, "id": 1}]}, 400, "VB-1109"),
        ({"rows": [ROW, {**ROW, "id": " C1"}]}, 400, "VB-1103"),
        ({"row": {"id": "C1", "income": 1}}, 400, "VB-1112"),
        ({"row": {**ROW, "secret": 1}}, 400, "VB-1112"),
        ({"row": {**ROW, "income": "12.5"}}, 400, "VB-1109"),
        ({"row": {**ROW, "income": [1]}}, 400, "VB-1109"),
        ({"row": {**ROW, "housing": {}}}, 400, "VB-1109"),
        ({"row": {**ROW, "income": 1e39}}, 400, "VB-1110"),
        ({"row": {**ROW, "income": 10**400}}, 400, "VB-1110"),
    ],
)
def test_what_is_not_a_row_of_the_model_is_refused(body: Any, status: int, code: str) -> None:
    with service(fake := FakeDeployment(INFO), limits=ServiceLimits(rows=5)) as client:
        found = [post(client, body, page) for page in PAGES]
        assert not fake.asked
        assert post(client, {"row": ROW}, PAGES[1])[0] == 200  # it lives on
    for got, answer in found:
        assert (got, answer["code"]) == (status, code)
        assert set(answer) == {"code", "what", "fix"}
        assert "12.5" not in json.dumps(answer)
        assert "C1" not in json.dumps(answer)


@pytest.mark.parametrize("page", PAGES)
def test_bodies_are_refused_by_kind_and_by_size_declared_or_not(page: str) -> None:
    with service(limits=ServiceLimits(body_bytes=100)) as client:
        answer = client.post(page, content=json.dumps({"row": ROW}), headers={"Content-Type": "text/plain"})
        assert (answer.status_code, answer.json()["code"]) == (400, "VB-1401")
        assert post(client, {"row": {**ROW, "housing": "x" * 100}}, page)[0] == 413
        streamed = (b" " * 60 for _ in range(3))
        answer = client.post(page, content=streamed, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["code"]) == (413, "VB-1406")


def test_unknown_pages_and_methods_are_coded() -> None:
    with service() as client:
        wrong_methods = [client.get(page) for page in PAGES] + [client.put("/")]
        for answer, status in ((client.get("/docs"), 404), *((each, 405) for each in wrong_methods)):
            assert (answer.status_code, answer.json()["code"]) == (status, "VB-1402")
        assert [answer.headers["allow"] for answer in wrong_methods] == ["POST", "POST", "GET"]


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (PeerUnreachable("shop cannot be reached"), 503, "VB-1409"),
        (PeerRefused("shop refused (VB-1612: no)"), 503, "VB-1410"),
        (RowsDiffer("1 of 1 rows are unknown at shop"), 404, "VB-1202"),
        (RuntimeError("C1 earns 12.5"), 500, "VB-1707"),
    ],
)
@pytest.mark.parametrize("page", PAGES)
def test_what_goes_wrong_while_predicting(error: Exception, status: int, code: str, page: str) -> None:
    log: list[str] = []
    with service(FakeDeployment(INFO, error), log=log) as client:
        got, answer = post(client, {"row": ROW}, page)
        assert (got, answer["code"]) == (status, code)
        assert post(client, {"row": ROW, "reasons": 2}, page)[0] == status  # it lives on
        assert metrics(client)["veilboost_waiting_requests",] == 0
    assert "12.5" not in json.dumps(answer) + "".join(log)
    assert "Traceback" not in json.dumps(answer)


def test_nothing_that_was_sent_is_logged() -> None:
    log: list[str] = []
    with service(log=log) as client:
        post(client, {"row": ROW})
        client.get("/C1?id=C1")
        client.request("C1", "/")
    assert log[0].startswith("POST /v1/predict 200 rows=1 ")
    assert "C1" not in "".join(log)


def test_a_token_is_asked_for_everywhere_but_at_the_health_page() -> None:
    with service(fake := FakeDeployment(INFO), token=TOKEN) as client:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN.decode()}):
            status, answer = post(client, {"row": ROW}, **headers)
            assert (status, answer["code"]) == (401, "VB-1607")
        assert client.get("/nowhere").status_code == 401
        assert not fake.asked
        assert post(client, {"row": ROW}, Authorization=f"Bearer {TOKEN.decode()}")[0] == 200
        assert client.get("/metrics").headers["www-authenticate"] == "Bearer"
        assert client.get("/healthz").status_code == 200


def test_a_client_that_asks_too_often_is_told_to_wait() -> None:
    with service(fake := FakeDeployment(INFO), token=TOKEN, limits=ServiceLimits(per_minute=3)) as client:
        for _ in range(3):
            assert post(client, {"row": ROW})[0] == 401  # guesses of a token count
        answer = client.post("/v1/predict", headers={"Authorization": f"Bearer {TOKEN.decode()}"})
        assert (answer.status_code, answer.json()["code"]) == (429, "VB-1412")
        assert answer.headers["retry-after"]
        assert client.get("/healthz").status_code == 200
    assert not fake.asked
    with service(fake, limits=ServiceLimits(per_minute=3)) as client:
        assert post(client, {"row": ROW})[0] == 200
