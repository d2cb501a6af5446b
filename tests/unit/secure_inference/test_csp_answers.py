"""A CSP that answers twice, for another request, or not at all: what the active party makes of it."""

from __future__ import annotations

import threading
from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest

from veilboost.errors import PeerUnreachable, UnexpectedMessage
from veilboost.party.messages import Accepted, Finish, OpenService
from veilboost.secure_inference.client import CATALOGUE, ServiceChannel
from veilboost.secure_inference.messages import BlindedNodes, Directions
from veilboost.wire.channel import Peers
from veilboost.wire.message import Done, decode, encode
from veilboost.wire.rpc import Kind, Packet

pytestmark = pytest.mark.fast
ASKED = BlindedNodes(np.zeros((3, 4), dtype=np.uint8))
RIGHT, WRONG = (Directions(np.array([bits], dtype=np.uint8)) for bits in (0b10100000, 0b01000000))


class Csp:
    """A link whose far end answers as `answer(message)` says: any number of (message, distance in numbers)."""

    def __init__(self, answer, open_ended=False):
        self._answer, self._coming = answer, deque()
        self._closed = threading.Event()
        if not open_ended:
            self._closed.set()
        self.asked = []

    def send(self, packet):
        message = decode(packet.body, CATALOGUE)
        self.asked.append(type(message))
        usual = {OpenService: Accepted("1", aligned=False), Finish: Done()}.get(type(message))
        found = [(usual, 0)] if usual is not None else self._answer(message)
        for told, distance in found:
            self._coming.append(Packet(Kind.ANSWER, packet.session, packet.number + distance, encode(told)))

    def receive(self):
        if not self._coming:
            assert self._closed.wait(30)
        return self._coming.popleft() if self._coming else None

    def finish(self):
        pass

    def close(self):
        self._closed.set()


def ask(answer, seconds=30.0, open_ended=False):
    csp = Csp(answer, open_ended)
    settings = SimpleNamespace(name="bank", limits=SimpleNamespace(wait_seconds=seconds, request_seconds=seconds))
    way = ServiceChannel(settings, "csp", OpenService("credit", "ta", "csp"), lambda _peer, _seconds: csp)
    return csp, Peers({"csp": way}).ask({"csp": ASKED}, Directions)["csp"]


def test_a_second_answer_is_not_taken_for_the_first_nor_for_that_of_the_next_request():
    csp, found = ask(lambda _: [(RIGHT, 0), (WRONG, 0)])
    assert found.positive.tolist() == RIGHT.positive.tolist()
    assert csp.asked == [OpenService, BlindedNodes, Finish]  # the second one was skipped, not taken for `Done`


@pytest.mark.parametrize("distance", [1, 7])
def test_an_answer_to_a_request_that_was_not_made_is_refused(distance):
    with pytest.raises(UnexpectedMessage, match="a different request"):
        ask(lambda _: [(RIGHT, distance)])


def test_an_answer_of_another_kind_is_refused():
    with pytest.raises(UnexpectedMessage, match="Done"):
        ask(lambda _: [(Done(), 0)])


def test_a_csp_that_does_not_answer_is_named_when_the_time_is_over():
    with pytest.raises(PeerUnreachable, match="csp did not answer"):
        ask(lambda _: [], seconds=0.1)
    with pytest.raises(PeerUnreachable, match="csp did not answer"):
        ask(lambda _: [(RIGHT, -1)], seconds=0.1)  # nothing but an answer to what was asked before


def test_a_csp_that_lives_and_says_nothing_does_not_hold_users_for_ever():
    with pytest.raises(PeerUnreachable, match="csp is connected and has not answered"):
        ask(lambda _: [], seconds=0.1, open_ended=True)
