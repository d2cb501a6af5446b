"""The clock of HENS and DPNS (ELXGB Alg. 1, lines 5 to 7): who is late with a level is not waited for."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from veilboost.errors import UnexpectedMessage
from veilboost.protocols.vertical.messages import StatisticsRequest
from veilboost.types import PartyName
from veilboost.wire.channel import Answer, Peers, Pending
from veilboost.wire.message import Message


class LateParties(UserWarning):
    """Parties that a level went on without."""


class OnTheClock:
    """An answer that is under way and need not be waited for."""

    def __init__(self, future: Future[Message]) -> None:
        self.future = future

    def __call__(self) -> Message:
        return self.future.result()


class ClockedPeers(Peers):
    """Peers of whom each is asked by a thread of its own where it is asked for statistics.

    A late party keeps its place: what it is asked next waits until it has answered, so it follows the trees and may be
    in time again at a later level. Everything but statistics waits for everybody.
    """

    def __init__(self, peers: Peers, seconds: float) -> None:
        super().__init__({})
        self._peers = peers
        self._seconds = seconds
        self._workers = {name: ThreadPoolExecutor(1, f"asking {name}") for name in peers.names}
        self._last: dict[PartyName, Future[Message]] = {}

    @property
    def names(self) -> tuple[PartyName, ...]:
        return self._peers.names

    def send(self, messages: Mapping[PartyName, Message]) -> Mapping[PartyName, Pending]:
        direct = {name: asked for name, asked in messages.items() if not isinstance(asked, StatisticsRequest)}
        for name in direct:
            if name in self._last:
                self._last.pop(name).result()  # what it refused while nobody waited comes to light here
        pending: dict[PartyName, Pending] = dict(self._peers.send(direct))
        for name, asked in messages.items():
            if name not in direct:
                self._last[name] = self._workers[name].submit(self._ask, name, asked)
                pending[name] = OnTheClock(self._last[name])
        return pending

    def _ask(self, name: PartyName, asked: Message) -> Message:
        return self._peers.send({name: asked})[name]()

    def collect(self, pending: Mapping[PartyName, Pending], kind: type[Answer]) -> dict[PartyName, Answer]:
        running = {name: asked.future for name, asked in pending.items() if isinstance(asked, OnTheClock)}
        if not running:
            return self._peers.collect(pending, kind)
        self._peers.rounds += 1
        wait(running.values(), return_when=FIRST_COMPLETED)  # "start the clock after collecting the first"
        wait(running.values(), timeout=self._seconds)
        late = [name for name, future in running.items() if not future.done()]
        if late:
            warnings.warn(f"a level went on without {', '.join(late)}", LateParties, stacklevel=2)
        answers: dict[PartyName, Answer] = {}
        for name, future in running.items():
            if name in late:
                continue
            answer = future.result()
            if not isinstance(answer, kind):
                raise UnexpectedMessage(f"{name} answered {answer.type_name()} where {kind.type_name()} was expected")
            answers[name] = answer
        return answers
