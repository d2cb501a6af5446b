"""A way to one peer, and the group of all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from veilboost.errors import UnexpectedMessage
from veilboost.types import PartyName
from veilboost.wire.message import Message

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
