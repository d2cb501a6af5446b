"""Requests that come at the same time; tokens and addresses."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from fake_deployment import FakeDeployment
from parties import until
from veilboost.errors import ExposedKey, InvalidParameter, UnreadableFile
from veilboost.infer.scores import ModelInfo
from veilboost.model.share import ColumnInfo
from veilboost.service.app import ServiceLimits, make_app
from veilboost.service.guard import read_token
from veilboost.service.rows import Schema
from veilboost.service.server import is_loopback, parse_address

pytestmark = pytest.mark.fast
INFO = ModelInfo("m", "bank", ("bank", "shop"), "plain", "binary", None, (ColumnInfo("x"),), "id", 1)


def test_requests_wait_at_the_same_time_and_too_many_are_refused() -> None:
    """All reach the deployment, which scores them together; each gets its own score."""
    slow = FakeDeployment(INFO)
    slow.go.clear()
    app = make_app(slow, limits=ServiceLimits(waiting=3))

    def ask(number: int) -> tuple[int, float | str]:
        answer = client.post("/v1/predict", json={"row": {"id": number, "x": number}})
        found = answer.json()
        return answer.status_code, found["prediction"]["score"] if answer.status_code == 200 else found["code"]

    with TestClient(app) as client, ThreadPoolExecutor(3) as pool:
        found = [pool.submit(ask, number) for number in range(3)]
        until(lambda: len(slow.asked) == 3, "all requests wait")
        assert client.get("/healthz").json()["waiting"] == 3
        assert "veilboost_waiting_requests 3.0" in client.get("/metrics").text
        assert ask(3) == (503, "VB-1701")
        slow.go.set()
        assert [future.result(10) for future in found] == [(200, 0), (200, 1), (200, 2)]
        assert ask(4) == (200, 4)
        assert "veilboost_waiting_requests 0.0" in client.get("/metrics").text
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("score")], (
        "they ended with the app"
    )


# --- files and addresses ----------------------------------------------------------------------------------


def test_a_token_is_private_and_long(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("0123456789abcdef\n")
    file.chmod(0o644)
    with pytest.raises(ExposedKey, match="new token"):
        read_token(file)
    file.chmod(0o600)
    assert read_token(file) == b"0123456789abcdef"
    for text in ("short", "with space in the middle", "ümlaut-0123456789"):
        file.write_text(text)
        with pytest.raises(InvalidParameter):
            read_token(file)
    with pytest.raises(UnreadableFile):
        read_token(tmp_path / "absent")


def test_addresses() -> None:
    assert parse_address("127.0.0.1:0") == ("127.0.0.1", 0)
    assert parse_address("[::1]:8080") == ("::1", 8080)
    with pytest.raises(InvalidParameter):
        parse_address("8080")
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "bank.example")] == [  # noqa: S104
        True,
        True,
        True,
        False,
        False,
    ]


def test_an_id_has_a_key_of_its_own() -> None:
    def key(*columns: str) -> str:
        infos = tuple(ColumnInfo(name) for name in columns)
        return Schema(ModelInfo("m", "bank", ("bank",), "plain", "binary", None, infos, "customer", 1), 1, 1).id_key

    assert (key("x"), key("id")) == ("id", "customer")
