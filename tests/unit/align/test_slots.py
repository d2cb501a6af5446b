"""The active party's directory of slots keeps a limited number of looked-up ids."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from veilboost.align import slots
from veilboost.align.slots import IndexRequest, LookUp, SlotDirectory, SlotOwner, SlotTable
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
