"""A way to one peer, the group of all of them, and channels of memory between the parties of one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from veilboost.errors import UnexpectedMessage
from veilboost.types import PartyName
from veilboost.wire.message import Catalogue, Message, decode, encode, frame_size
from veilboost.wire.transcript import Transcript

Answer = TypeVar("Answer", bound=Message)
Pending = Callable[[], Message]
Reply = Message | Pending  # an answer, or one that has to wait for others and is ready when it is called for


class Channel(Protocol):
    """Carries a request to a peer; `send` returns at once where the carrier can, the result waits."""

    def send(self, message: Message) -> Pending: ...


class Peers:
    """The peers of a driving party, asked all at once. Counts the rounds in which it had to wait for them."""

    def __init__(self, channels: Mapping[PartyName, Channel]) -> None:
        self._channels = dict(channels)
        self.rounds = 0

    @property
    def names(self) -> tuple[PartyName, ...]:
        return tuple(self._channels)

    def send(self, messages: Mapping[PartyName, Message]) -> Mapping[PartyName, Pending]:
        """Start one request at each named peer; work done before `collect` overlaps with theirs."""
        return {name: self._channels[name].send(message) for name, message in messages.items()}

    def collect(self, pending: Mapping[PartyName, Pending], kind: type[Answer]) -> dict[PartyName, Answer]:
        """Wait for all answers, which must be of this kind."""
        if pending:
            self.rounds += 1
        answers: dict[PartyName, Answer] = {}
        for name, wait in pending.items():
            answer = wait()
            if not isinstance(answer, kind):
                raise UnexpectedMessage(f"{name} answered {answer.type_name()} where {kind.type_name()} was expected")
            answers[name] = answer
        return answers

    def ask(self, messages: Mapping[PartyName, Message], kind: type[Answer]) -> dict[PartyName, Answer]:
        return self.collect(self.send(messages), kind)


Handler = Callable[[Message], Reply]


class MemoryChannel:
    """The way from a driving party to a passive one and back, recorded by both.

    Messages are immutable, so they are handed over as they are, and their size is computed. `coded`: they become bytes
    and are read again, as between processes.
    """

    def __init__(
        self, handler: Handler, catalogue: Catalogue, here: Transcript, there: Transcript, coded: bool = False
    ) -> None:
        self._handler = handler
        self._catalogue = catalogue
        self._here = here
        self._there = there
        self._coded = coded

    def send(self, message: Message) -> Pending:
        request = self._carry(message, self._here, self._there)
        reply = self._handler(request)
        if not isinstance(reply, Message):
            return lambda: self._carry(reply(), self._there, self._here)
        answer = self._carry(reply, self._there, self._here)
        return lambda: answer

    def _carry(self, message: Message, sender: Transcript, receiver: Transcript) -> Message:
        carried, size = message, 0
        if self._coded:
            frame = encode(message)
            carried, size = decode(frame, self._catalogue), len(frame)
        else:
            size = frame_size(message)
        sender.record("sent", receiver.owner, message, size)
        receiver.record("received", sender.owner, message, size)
        return carried
