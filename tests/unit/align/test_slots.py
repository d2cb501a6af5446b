"""The active party's directory of slots: which ids it keeps, and which indexes it refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from veilboost.align import slots
from veilboost.align.slots import IndexPart, IndexRequest, LookUp, SlotDirectory, SlotOwner, SlotTable
from veilboost.errors import MalformedMessage
from veilboost.wire.channel import Channel, Peers

pytestmark = pytest.mark.fast


class Shop(Channel):
    """A passive party with these ids; counts the ids that are looked up."""

    def __init__(self, ids: list[str]) -> None:
        self._owner, self.looked_up = SlotOwner(b"s" * 32), 0
        self._table, self.rows = self._owner.updated(SlotTable.of(None), np.array(ids))

    def send(self, message: Any) -> Any:
        if isinstance(message, IndexRequest):
            answer = self._table.part(message)
        else:
            assert isinstance(message, LookUp)
            self.looked_up += len(message.points)
            answer = self._owner.looked_up(message)
        return lambda: answer


def found(directory: SlotDirectory, shop: Shop, ids: list[str]) -> list[int]:
    """The rows of ids in the shop's table; -1 if it does not have them."""
    texts = [id.encode() for id in ids]
    keys = directory.keys(texts)
    directory.look_up(dict(zip(keys, texts, strict=True)), Peers({"shop": shop}))
    return [shop.rows[slot] if slot >= 0 else -1 for slot in directory.slots(keys)["shop"]]


def test_ids_that_are_not_used_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "_MOST_KNOWN", 16)
    shop = Shop([f"c{at}" for at in range(8)])
    directory = SlotDirectory(b"b" * 32, ["shop"], 100)
    directory.refresh(Peers({"shop": shop}), "shop")
    assert found(directory, shop, ["c0", "c1"]) == [0, 1]
    for at in range(100):  # guesses
        assert found(directory, shop, [f"x{at}", "c0"]) == [-1, 0]
        assert directory.looked_up <= 16
    assert shop.looked_up == 102, "an id that is used is kept"
    assert found(directory, shop, ["c1", "x3", "c0"]) == [1, -1, 0]
    assert shop.looked_up == 104, "the others are looked up again"
    again = SlotDirectory(b"b" * 32, ["shop"], 100)
    again.restore(directory.state())
    assert found(again, shop, ["c1", "c0"]) == [1, 0]
    assert shop.looked_up == 104


def test_a_request_may_have_more_ids_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "_MOST_KNOWN", 16)
    ids = [f"c{at}" for at in range(50)]
    shop = Shop(ids[:40])
    directory = SlotDirectory(b"b" * 32, ["shop"], 100)
    directory.refresh(Peers({"shop": shop}), "shop")
    assert found(directory, shop, ids) == [*range(40), *[-1] * 10]
    assert found(directory, shop, ["c3"]) == [3]
    assert directory.looked_up <= 40, "as many as the largest index has"


class Cheating(Channel):
    """A passive party that changes its answer about its index."""

    def __init__(self, change: Callable[[IndexPart], IndexPart]) -> None:
        self._owner, self._change, self.asked = SlotOwner(b"s" * 32), change, 0
        self._table, _ = self._owner.updated(SlotTable.of(None), np.array([f"c{at}" for at in range(20)]))

    def send(self, message: Any) -> Any:
        self.asked += 1
        answer = self._change(self._table.part(message))
        return lambda: answer


@pytest.mark.parametrize("at_once", [8, 20, 64])
def test_an_index_is_sent_in_parts(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(slots, "AT_ONCE", at_once)
    directory, shop = SlotDirectory(b"b" * 32, ["shop"], 20), Cheating(lambda part: part)
    directory.refresh(Peers({"shop": shop}), "shop")
    assert (directory.rows("shop"), shop.asked) == (20, -(-20 // at_once))


@pytest.mark.parametrize(
    "change",
    [
        lambda part: replace(part, points=part.points[:1]),  # many parts of one point would keep a service busy
        lambda part: replace(part, points=part.points[:0]),
        lambda part: replace(part, total=part.total - 1),
        lambda part: replace(part, total=part.total + 1),
        lambda part: replace(part, total=21),  # more rows than the policy allows
        lambda part: replace(part, total=-1),
        lambda part: replace(part, points=np.zeros_like(part.points)),
        lambda part: replace(part, removed=np.array([20], dtype=np.int32)),
        lambda part: replace(part, removed=np.array([-1], dtype=np.int32)),
    ],
)
def test_an_index_that_contradicts_itself_is_refused(change: Callable[[IndexPart], IndexPart]) -> None:
    directory, shop = SlotDirectory(b"b" * 32, ["shop"], 20), Cheating(change)
    with pytest.raises(MalformedMessage):
        directory.refresh(Peers({"shop": shop}), "shop")
    assert (directory.rows("shop"), shop.asked) == (0, 1)
