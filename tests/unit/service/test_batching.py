"""Requests that come at the same time."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from fake_deployment import FakeDeployment
from veilboost.data.table import PartyTable
from veilboost.errors import (
    ExposedKey,
    InvalidParameter,
    PeerUnreachable,
    RowsDiffer,
    TableBusy,
    UnreadableFile,
)
from veilboost.infer.scores import ModelInfo
from veilboost.model.share import ColumnInfo
from veilboost.party.deployments import Unknown
from veilboost.service.app import is_loopback, parse_address
from veilboost.service.batching import Batcher
from veilboost.service.guard import read_token
from veilboost.service.rows import Schema
from veilboost.types import Column

pytestmark = pytest.mark.fast
INFO = ModelInfo(
    "m", "bank", ("bank", "shop"), "plain", "binary", None, (ColumnInfo("x"), ColumnInfo("k", ("a",))), "id", 1
)


def table(*ids: str) -> PartyTable:
    values = np.array([float(each[1:]) for each in ids], dtype=np.float32)
    return PartyTable(np.array(ids), (Column("x", values), Column("k", np.zeros(len(ids), np.int32), ("a",))))


@pytest.fixture
def slow() -> FakeDeployment:
    """Answers as soon as `go` is set."""
    deployment = FakeDeployment(INFO)
    deployment.go.clear()
    return deployment


def test_those_that_wait_share_a_prediction_and_get_their_own_rows(slow: FakeDeployment) -> None:
    batcher = Batcher(slow.score, most_rows=4, most_waiting=10)
    first = batcher.submit(table("a1"))
    assert slow.busy.wait(10)
    rest = [batcher.submit(table(*ids)) for ids in (("a2", "a3"), ("a4",), ("a2",), ("a5", "a6", "a7", "a8"))]
    slow.go.set()
    assert first.result(10).scores.tolist() == [1]
    assert [future.result(10).scores.tolist() for future in rest] == [[2, 3], [4], [2], [5, 6, 7, 8]]
    # a2 comes twice and so waits for the next one; the last would be too many rows with it.
    assert [each.ids.tolist() for each in slow.asked] == [["a1"], ["a2", "a3", "a4"], ["a2"], ["a5", "a6", "a7", "a8"]]
    batcher.close()


def test_one_that_is_unknown_spoils_nobody_elses(slow: FakeDeployment) -> None:
    batcher = Batcher(slow.score, most_rows=10, most_waiting=10)
    batcher.submit(table("a1"))
    assert slow.busy.wait(10)
    futures = [batcher.submit(table(each)) for each in ("a2", "u0", "a3")]
    slow.go.set()
    assert futures[0].result(10).scores.tolist() == [2]
    assert isinstance(futures[1].exception(10), RowsDiffer)
    assert futures[2].result(10).scores.tolist() == [3]
    batcher.close()


def test_only_requests_with_the_same_option_share_a_prediction(slow: FakeDeployment) -> None:
    batcher = Batcher(slow.score, most_rows=10, most_waiting=10)
    batcher.submit(table("a1"))
    assert slow.busy.wait(10)
    requests: list[tuple[tuple[str, ...], Unknown]] = [
        (("u2", "a2"), "skip"), (("a3", "u3"), "skip"), (("a4", "u4"), "default"), (("a5", "u5"), "error"),
    ]  # fmt: skip
    futures = [batcher.submit(table(*ids), unknown) for ids, unknown in requests]
    slow.go.set()
    found = [future.result(10) for future in futures[:3]]
    assert isinstance(futures[3].exception(10), RowsDiffer)
    assert [np.nan_to_num(each.scores, nan=-1).tolist() for each in found] == [[-1, 2], [3, -1], [4, 4]]
    assert [each.status.index("known") for each in found] == [1, 0, 0]
    assert [each.status.count("unknown at shop") for each in found] == [1, 1, 1]
    assert [each.rows for each in slow.asked] == [1, 4, 2, 2]
    batcher.close()


def test_a_party_that_is_away_is_away_for_all(slow: FakeDeployment) -> None:
    batcher = Batcher(slow.score, most_rows=10, most_waiting=10)
    batcher.submit(table("a1"))
    assert slow.busy.wait(10)
    futures = [batcher.submit(table(each)) for each in ("a2", "a3")]
    slow.error = PeerUnreachable("shop cannot be reached")
    slow.go.set()
    assert all(isinstance(future.exception(10), PeerUnreachable) for future in futures)
    assert len(slow.asked) == 2
    batcher.close()


def test_too_many_that_wait_and_those_left_at_the_end_are_refused(slow: FakeDeployment) -> None:
    batcher = Batcher(slow.score, most_rows=10, most_waiting=2)
    running = batcher.submit(table("a1"))
    assert slow.busy.wait(10)
    waiting = [batcher.submit(table(each)) for each in ("a2", "a3")]
    assert batcher.waiting == 2
    with pytest.raises(TableBusy):
        batcher.submit(table("a4"))
    assert waiting[0].cancel()  # somebody hung up
    closing = threading.Thread(target=batcher.close)
    closing.start()
    while not waiting[1].done():
        time.sleep(0.01)
    slow.go.set()
    closing.join(10)
    assert running.result(10).scores.tolist() == [1]
    assert isinstance(waiting[1].exception(10), TableBusy)
    with pytest.raises(TableBusy):
        batcher.submit(table("a5"))


def test_many_threads_get_their_own_scores() -> None:
    batcher = Batcher(FakeDeployment(INFO).score, most_rows=8, most_waiting=1000)
    wrong: list[int] = []

    def ask(start: int) -> None:
        for number in range(start, start + 50):
            if batcher.submit(table(f"a{number}")).result(10).scores.tolist() != [number]:
                wrong.append(number)

    threads = [threading.Thread(target=ask, args=(50 * k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    batcher.close()
    assert not wrong


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
