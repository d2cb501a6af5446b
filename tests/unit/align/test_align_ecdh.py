"""`ecdh`: the ring, and what its members refuse."""

from __future__ import annotations

import numpy as np
import pytest

from veilboost.align.api import AlignContext
from veilboost.align.ecdh import BlindOther, BlindOwn, CommonRows, EcdhPassive, OtherPoints, OwnPoints
from veilboost.align.memory import MemoryFederation, align_in_memory
from veilboost.crypto.curve import hash_to_points
from veilboost.errors import DuplicateIds, FalseIntersection, MalformedMessage, UnexpectedMessage
from veilboost.wire.message import Done

pytestmark = pytest.mark.fast

IDS = {"bank": np.array(["7", "12", "x", "y"]), "shop": np.array([12, 7, 99]), "phone": np.array(["99", "7", "12"])}


def points(*texts):
    return hash_to_points([text.encode() for text in texts])


def passive(order=("bank", "shop", "phone"), **more):
    return EcdhPassive(AlignContext("shop", order, IDS["shop"], **more))


def test_a_ring_of_three_with_numbers_and_text():
    done = align_in_memory("ecdh", IDS, "bank", threads=2)
    found = {
        party: IDS[party][alignment.positions].astype(str).tolist() for party, alignment in done.alignments.items()
    }
    assert sorted(found["bank"]) == ["12", "7"]
    assert found["bank"] == found["shop"] == found["phone"]
    assert done.rounds == 4, "own sets, two moves, the result"


def test_no_passive_party_ever_sees_a_point_twice():
    """Equal points in two requests would show which rows two others share."""
    seen = {"shop": [], "phone": []}

    def around(who, handler):
        def watching(message):
            answer = handler(message)
            for carrier in (message, answer):
                if isinstance(carrier, (OwnPoints, BlindOther, OtherPoints)):
                    seen[who].extend(row.tobytes() for row in carrier.points)
            return answer

        return watching

    MemoryFederation("ecdh", IDS, "bank", around=around).driver.align()
    for found in seen.values():
        assert len(found) == len(set(found)) == 3 + 2 * (4 + 3)


def test_wrong_sets_are_refused_and_the_party_stays_usable():
    party = passive(most_rows=4)
    good = points("a", "b", "c")
    low = good.copy()
    low[1] = 0
    beyond = good.copy()
    beyond[1] = 0xFF
    with pytest.raises(UnexpectedMessage):
        party.handle(BlindOther("bank", good))
    assert isinstance(party.handle(BlindOwn()), OwnPoints)
    wrong = [
        ("bank", good[:, :31]),
        ("bank", np.zeros((2, 33), np.uint8)),
        ("bank", low),
        ("bank", beyond),
        ("bank", np.repeat(good[:1], 2, axis=0)),
        ("bank", points(*"abcde")),
        ("shop", good),
        ("nobody", good),
    ]
    for owner, bad in wrong:
        with pytest.raises(MalformedMessage):
            party.handle(BlindOther(owner, bad))
    with pytest.raises(UnexpectedMessage):
        party.handle(BlindOwn())
    with pytest.raises(UnexpectedMessage):
        party.handle(CommonRows(np.array([0])))
    assert isinstance(party.handle(BlindOther("bank", good)), OtherPoints)
    with pytest.raises(UnexpectedMessage, match="already"):
        party.handle(BlindOther("bank", points("d")))
    assert isinstance(party.handle(BlindOther("phone", good[:2])), OtherPoints)
    for places in ([3], [-1], [0, 0]):
        with pytest.raises(MalformedMessage):
            party.handle(CommonRows(np.array(places)))
    with pytest.raises(FalseIntersection):
        party.handle(CommonRows(np.array([2, 1, 0])))
    assert party.handle(CommonRows(np.array([2, 0]))) == Done()
    assert party.alignment().rows == 2
    with pytest.raises(UnexpectedMessage):
        party.handle(CommonRows(np.array([2, 0])))


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (OwnPoints, lambda p: p[::-1]),
        (OwnPoints, lambda p: np.repeat(p[:1], 2, axis=0)),
        (OwnPoints, lambda p: p[:, :16]),
        (OtherPoints, lambda p: p[:-1]),
        (OtherPoints, lambda p: np.repeat(p[:1], len(p), axis=0)),
        (OtherPoints, lambda p: np.full_like(p, 0xFF)),
        (OtherPoints, lambda p: np.zeros_like(p)[:0]),
    ],
)
def test_the_active_party_refuses_wrong_answers(kind, change):
    def around(who, handler):
        def lying(message):
            answer = handler(message)
            return kind(np.ascontiguousarray(change(answer.points))) if isinstance(answer, kind) else answer

        return lying

    with pytest.raises(MalformedMessage):
        MemoryFederation("ecdh", IDS, "bank", around=around).driver.align()


def test_bad_ids_are_refused_before_anything_is_sent():
    federation = MemoryFederation("ecdh", {"a": np.array([1, 2]), "b": np.array(["x", "x "])}, "a")
    with pytest.raises(DuplicateIds):
        federation.driver.prepare()
    assert federation.transcripts["b"].messages_sent() == 0


def test_random_bytes_do_no_harm():
    rng = np.random.default_rng(0)
    party = passive()
    party.handle(BlindOwn())
    for width in (0, 1, 31, 33, 64):
        noise = rng.integers(256, size=(5, width)).astype(np.uint8)
        with pytest.raises(MalformedMessage):
            party.handle(BlindOther("bank", noise))
    noise = rng.integers(256, size=(40, 32)).astype(np.uint8)  # half of it has the top bit set
    with pytest.raises(MalformedMessage, match="canonical"):
        party.handle(BlindOther("bank", noise))
    noise[:, 31] &= 0x3F  # now numbers below the prime: on the curve or its twist, which is harmless
    assert isinstance(party.handle(BlindOther("bank", noise)), OtherPoints)
