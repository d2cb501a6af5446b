from __future__ import annotations

import numpy as np
import pytest

from veilboost.align.api import AlignContext, Alignment
from veilboost.align.clear import align_by_id
from veilboost.align.memory import MemoryFederation, align_in_memory
from veilboost.align.prealigned import OrderCheck, OrderConfirmed, PrealignedPassive, order_digest
from veilboost.data.table import PartyTable, id_order
from veilboost.errors import EmptyIntersection, MalformedMessage, RowsDiffer, UnexpectedMessage
from veilboost.types import Column

pytestmark = pytest.mark.fast


def table(ids):
    ids = np.array(ids)
    return PartyTable(ids, (Column("x", np.arange(len(ids), dtype=np.float32)),), np.arange(len(ids), dtype=float))


def test_common_rows_in_the_order_of_ids():
    aligned = align_by_id({"a": table([5, 3, 9, 1]), "b": table([9, 2, 5]), "c": table([5, 9, 7, 8])})
    for party in aligned.values():
        assert party.ids.tolist() == [5, 9]
    assert aligned["a"].columns[0].values.tolist() == [0, 2]
    assert aligned["b"].label.tolist() == [2, 0]


def test_text_ids():
    aligned = align_by_id({"a": table(["x", "b", "a"]), "b": table(["a", "xx", "x"])})
    assert aligned["b"].ids.tolist() == ["a", "x"]
    assert aligned["b"].columns[0].values.tolist() == [0, 2]


@pytest.mark.parametrize("ids", [[12, 7, 100, 0], [-3, 12, 7], ["b", "aa", "a", "ä"]])
def test_ids_have_one_order_whatever_the_type(ids):
    """Shorter first, then as text: so numbers, and texts of numbers, stand at the same places at every party."""
    order = id_order(np.array(ids))
    expected = sorted(range(len(ids)), key=lambda at: (len(str(ids[at])), str(ids[at])))
    assert order.tolist() == expected
    assert id_order(np.array([str(value) for value in ids])).tolist() == expected


def test_common_rows_stand_in_the_order_of_a_simulation():
    ids = {"a": np.array([5, 100, 7, 20]), "b": np.array(["20", "7", "x", "100"])}
    for name, positions in (("a", [1, 3, 2]), ("b", [3, 0, 1])):
        ordered = Alignment(np.array(positions)).by_id(ids[name])
        assert [str(value) for value in ids[name][ordered.positions]] == ["7", "20", "100"]


def test_no_common_row():
    with pytest.raises(EmptyIntersection, match="VB-1201"):
        align_by_id({"a": table([1, 2]), "b": table([3, 4])})
    with pytest.raises(EmptyIntersection, match="another type"):
        align_by_id({"a": table([1, 2]), "b": table(["1", "2"])})


def test_the_same_order_is_confirmed_and_kept():
    done = align_in_memory("prealigned", {"a": np.array([5, 3, 9]), "b": np.array(["5", " 3", "9"])}, "a")
    for alignment in done.alignments.values():
        assert alignment.positions.tolist() == [0, 1, 2]
    assert done.rounds == 1


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        ([5, 3], "a different number of rows"),
        ([5, 9, 3], "in another order"),
        ([5, 3, 8], "other rows"),
        ([5, 3, 90], "other rows"),
    ],
)
def test_other_rows_or_another_order_are_refused_at_both(ids, says):
    federation = MemoryFederation("prealigned", {"a": np.array([5, 3, 9]), "b": np.array(ids)}, "a")
    with pytest.raises(RowsDiffer, match=says):
        federation.driver.align()
    with pytest.raises(UnexpectedMessage):
        federation.passives["b"].alignment()


def test_ids_do_not_run_together():
    salt = bytes(32)
    lists = ([b"ab", b"c"], [b"a", b"bc"], [b"abc"], [b"abc", b""])
    assert len({order_digest(each, salt, role) for each in lists for role in ("active", "passive")}) == 8
    assert order_digest(lists[0], salt, "active") != order_digest(lists[0], b"x" * 32, "active")


def test_a_digest_of_the_wrong_form_is_refused_and_the_party_stays_usable():
    ids, salt = [b"5", b"3"], np.zeros(32, np.uint8)
    passive = PrealignedPassive(AlignContext("b", ("a", "b"), np.array([5, 3])))
    digest = np.frombuffer(order_digest(ids, salt.tobytes(), "active"), np.uint8)
    for wrong in (OrderCheck(2, salt[:31], digest), OrderCheck(2, salt, digest[:16]), OrderCheck(2, salt, digest[:0])):
        with pytest.raises(MalformedMessage):
            passive.handle(wrong)
    with pytest.raises(RowsDiffer):
        passive.handle(OrderCheck(2, salt, np.zeros(32, np.uint8)))
    confirmed = passive.handle(OrderCheck(2, salt, digest))
    assert isinstance(confirmed, OrderConfirmed)
    assert confirmed.digest.tobytes() != digest.tobytes()
    with pytest.raises(UnexpectedMessage):
        passive.handle(OrderCheck(2, salt, digest))


def test_an_echo_is_not_taken_for_a_confirmation():
    def around(who, handler):
        return lambda message: OrderConfirmed(message.digest)

    federation = MemoryFederation("prealigned", {"a": np.array([5, 3]), "b": np.array([1, 2])}, "a", around=around)
    with pytest.raises(RowsDiffer, match="b has other rows"):
        federation.driver.align()


def test_nothing_to_align():
    nobody = np.array([], dtype=np.int64)
    with pytest.raises(EmptyIntersection):
        align_in_memory("prealigned", {"a": nobody, "b": nobody}, "a")
