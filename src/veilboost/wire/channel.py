"""A channel to one peer, the group of all peers, and in-memory channels between the parties of one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from veilboost.errors import UnexpectedMessage
from veilboost.types import PartyName
from veilboost.wire.message import Catalogue, Message, decode, encode, frame_size
from veilboost.wire.transcript import Transcript

Answer = TypeVar("Answer", bound=Message)
Pending = Callable[[], Message]
Reply = Message | Pending  # an answer, or a callable that waits for other parties and returns the answer


class Channel(Protocol):
    """Carries a request to a peer. `send` returns at once where the transport allows it; calling the result waits."""

    def send(self, message: Message) -> Pending: ...


class Peers:
    """The peers of a driving party. Sends requests to all of them at once and counts the rounds of waiting."""

    def __init__(self, channels: Mapping[PartyName, Channel]) -> None:
        self._channels = dict(channels)
        self.rounds = 0

    @property
    def names(self) -> tuple[PartyName, ...]:
        return tuple(self._channels)

    def send(self, messages: Mapping[PartyName, Message]) -> Mapping[PartyName, Pending]:
        """Start one request at each named peer. Work done before `collect` overlaps with theirs."""
        return {name: self._channels[name].send(message) for name, message in messages.items()}

    def collect(self, pending: Mapping[PartyName, Pending], kind: type[Answer]) -> dict[PartyName, Answer]:
        """Wait for all answers, which must be of type `kind`."""
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
    """An in-memory channel from a driving party to a passive party; both record the messages.

    Messages are immutable, so they are passed by reference and their size is computed. With `coded`, every message is
    encoded and decoded, as between processes.
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
