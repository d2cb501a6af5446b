"""`veilboost serve` with a deployment at real parties over mutual TLS, as programs use it."""

from __future__ import annotations

import http.client
import json
import math
import re
import signal
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parties import CONFIG, Town, make_certificates, until
from pooled_rows import expected, known_to_all, new_rows, tables

RUN = ("runs-bank/credit", "--config", "bank.toml")
TOKEN = "a-token-for-tests-only"  # noqa: S105


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("authority") / "certs")


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory, certificates: Path) -> Iterator[Town]:
    """A model that is deployed at two parties."""
    made = Town(tmp_path_factory.mktemp("town"), certificates, rows=300)
    try:
        for party in ("shop", "telecom"):
            made.settle(party, {"deploy_to": ("bank",), "explanations": "columns" if party == "shop" else "party"})
        job = made.write_job(made.serve("shop", "telecom"), config=replace(CONFIG, n_estimators=4))
        made.answer("train", job.name, "--config", "bank.toml")
        assert made.refused("serve", *RUN).endswith("run veilboost deploy runs-bank/credit --config FILE")
        made.answer("deploy", *RUN)
        yield made
    finally:
        made.close()


class Service:
    """A running `veilboost serve`, and connections to it."""

    def __init__(self, town: Town, *options: str, client: Callable[[], ssl.SSLContext] | None = None) -> None:
        self.process = town.spawn("serve", *RUN, "--listen", "127.0.0.1:0", *options)
        found = re.match(r"serving credit on https?://(127\.0\.0\.1:\d+)\n", self.process.stderr.readline())
        assert found, self.process.communicate(timeout=10)
        self.address, self._client = found[1], client
        self.headers = {"Content-Type": "application/json"}

    def connect(self) -> http.client.HTTPConnection:
        if self._client is None:
            return http.client.HTTPConnection(self.address, timeout=60)
        return http.client.HTTPSConnection(self.address, context=self._client(), timeout=60)

    def ask(self, path: str, body: Any = None, connection: http.client.HTTPConnection | None = None) -> tuple[int, Any]:
        """Over this connection, which stays open, or over one of its own."""
        used = connection or self.connect()
        try:
            method, content = ("GET", None) if body is None else ("POST", json.dumps(body))
            used.request(method, path, content, self.headers)
            answer = used.getresponse()
            text = answer.read().decode()
        finally:
            if connection is None:
                used.close()
        return answer.status, text if path in {"/", "/metrics"} else json.loads(text)

    def stop(self) -> str:
        """What it wrote, when it has ended well."""
        self.process.send_signal(signal.SIGTERM)
        _, log = self.process.communicate(timeout=20)
        assert self.process.returncode == 0, log
        assert "Traceback" not in log
        return log


def requests_of(town: Town, ids: list[str]) -> list[dict[str, Any]]:
    return new_rows(town, ids).to_pylist()


def test_the_service_answers_one_row_many_rows_and_many_at_once(town: Town) -> None:
    service = Service(town)
    ids = known_to_all(town)[:20]
    rows, scores = requests_of(town, ids), expected(town, ids)
    assert service.ask("/v1/predict", {"row": rows[0]}) == (
        200,
        {"model": "credit", "version": 1, "prediction": {"id": ids[0], "score": scores[0], "status": "known"}},
    )
    status, answer = service.ask("/v1/predict", {"rows": rows[::-1]})
    assert (status, [each["score"] for each in answer["predictions"]]) == (200, scores[::-1])

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda row: service.ask("/v1/predict", {"row": row}), rows))
    assert [answer["prediction"]["score"] for _, answer in answers] == scores
    text = service.ask("/metrics")[1]
    assert 'veilboost_requests_total{method="POST",route="/v1/predict",status="200"} 22' in text
    assert "veilboost_rows_total 41" in text

    with ThreadPoolExecutor(4) as pool:  # explanations and scores at once
        explained = pool.map(lambda row: service.ask("/v1/explain", {"row": row, "reasons": 2}), rows[:4])
        scored = pool.map(lambda row: service.ask("/v1/predict", {"row": row, "reasons": 2}), rows[:4])
        for (_, why), (_, with_reasons), score in zip(explained, scored, scores[:4], strict=True):
            one = why["explanation"]
            margin = one["expected"] + sum(one["contributions"].values())
            assert [one["score"], 1 / (1 + math.exp(-margin))] == pytest.approx([score, score], abs=1e-9)
            assert list(one["contributions"]) == [each["name"] for each in why["features"]]
            assert {each["name"] for each in why["features"] if each["party"] == "telecom"} == {"telecom"}
            assert with_reasons["prediction"]["reasons"] == one["reasons"]
    assert "veilboost_explained_rows_total 8" in service.ask("/metrics")[1]

    status, answer = service.ask("/v1/predict", {"row": {"id": ids[0]}})
    assert (status, answer["code"]) == (400, "VB-1112")
    assert service.ask("/healthz")[1]["peers"] == {"shop": True, "telecom": True}
    assert [column["name"] for column in service.ask("/v1/model")[1]["columns"]] == ["n0", "n1"]
    assert "/v1/predict" in service.ask("/openapi.json")[1]["paths"]
    assert "credit" in service.ask("/")[1]
    log = service.stop()
    assert "POST /v1/predict 400 VB-1112" in log
    assert not any(id in log for id in ids)


def test_rows_that_a_party_does_not_know_have_a_status(town: Town) -> None:
    service = Service(town)
    own = {party: set(table["id"].to_pylist()) for party, table in tables(town).items()}
    known = known_to_all(town)[0]
    strange = min((own["bank"] & own["telecom"]) - own["shop"])
    rows = [*requests_of(town, [strange, known]), {"id": "nobody", "n0": 0.5, "n1": None}]
    status, answer = service.ask("/v1/predict", {"rows": rows})
    assert (status, answer["code"]) == (404, "VB-1202")
    assert answer["what"].startswith("2 of ")

    for unknown in ("skip", "default"):
        status, answer = service.ask("/v1/predict", {"rows": rows, "unknown": unknown})
        assert status == 200
        assert [(each["id"], each["status"]) for each in answer["predictions"]] == [
            (strange, "unknown at shop"),
            (known, "known"),
            ("nobody", "unknown at shop, telecom"),
        ]
        scores = [each["score"] for each in answer["predictions"]]
        assert scores[1] == expected(town, [known])[0]
        assert [score is None for score in scores] == [unknown == "skip", False, unknown == "skip"]
    text = service.ask("/metrics")[1]
    assert "veilboost_rows_total 4.0" in text
    assert "veilboost_unknown_rows_total 4.0" in text
    assert 'veilboost_errors_total{code="VB-1202"} 1.0' in text
    service.stop()


def test_the_service_has_tls_client_certificates_and_a_token_if_told(town: Town, certificates: Path) -> None:
    file = town.folder / "token"
    file.write_text(TOKEN)
    file.chmod(0o644)
    assert town.refused("serve", *RUN, "--token-file", "token").startswith("VB-1605")
    file.chmod(0o600)
    cert, key, authority = (str(certificates / name) for name in ("bank.crt", "bank.key", "ca.crt"))

    def client() -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=authority)
        context.load_cert_chain(certificates / "shop.crt", certificates / "shop.key")
        return context

    options = ("--tls-cert", cert, "--tls-key", key, "--client-ca", authority, "--token-file", "token")
    service = Service(town, *options, client=client)
    row = requests_of(town, known_to_all(town)[:1])[0]
    assert (service.ask("/v1/predict", {"row": row})[0], service.ask("/healthz")[0]) == (401, 200)
    service.headers["Authorization"] = f"Bearer {TOKEN}"
    assert service.ask("/v1/predict", {"row": row})[0] == 200
    taken = town.refused("serve", *RUN, "--listen", service.address)
    assert taken.startswith("VB-1409: cannot listen on 127.0.0.1:")
    assert TOKEN not in service.stop()


class Load:
    """Clients that send one row after the other, and what they were answered."""

    def __init__(self, service: Service, town: Town, clients: int) -> None:
        ids = known_to_all(town)
        self.rows, self.scores = requests_of(town, ids), expected(town, ids)
        self.answers: list[tuple[int, int, Any]] = []  # the number of the row, the status, the answer
        self.stopping = threading.Event()
        self._service = service
        self._threads = [threading.Thread(target=self._run, args=(start,)) for start in range(clients)]

    def _run(self, start: int) -> None:
        connection = self._service.connect()
        at = start
        while not self.stopping.is_set():
            at = (at + 7) % len(self.rows)
            self.answers.append((at, *self._service.ask("/v1/predict", {"row": self.rows[at]}, connection)))
        connection.close()

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        for thread in self._threads:
            thread.join()

    def wait_for(self, status: int, count: int) -> None:
        """Until so many more requests got this status."""
        before = len(self.answers)
        until(lambda: Counter(found for _, found, _ in self.answers[before:])[status] >= count, f"status {status}", 60)


def test_a_party_that_is_killed_under_load_comes_back_and_no_score_is_wrong(town: Town) -> None:
    clients = 4
    service = Service(town, "--max-per-minute", "1000000")
    with Load(service, town, clients) as load:
        load.wait_for(200, 20)
        town.kill(town.daemons["telecom"])
        load.wait_for(503, clients)
        town.serve("telecom")
        listening = len(load.answers)
        load.wait_for(200, 20)
    service.stop()
    errors = [answer for _, status, answer in load.answers if status != 200]
    assert {error["code"] for error in errors} == {"VB-1409"}
    assert any("telecom" in error["what"] for error in errors)
    # All clients fail together, once for each time that the service waits for the party.
    assert sum(status == 503 for _, status, _ in load.answers[listening:]) <= 5 * clients
    for at, status, answer in load.answers:
        assert status == 503 or answer["prediction"]["score"] == load.scores[at]
