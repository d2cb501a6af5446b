"""A channel to one peer, the group of all peers, and in-memory channels between the parties of one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol, TypeVar

from veilboost.errors import UnexpectedMessage, VeilBoostError
from veilboost.types import PartyName
from veilboost.wire.message import Catalogue, Message, decode, encode, frame_size
from veilboost.wire.transcript import UNMEASURED, Network, Transcript

Answer = TypeVar("Answer", bound=Message)
Pending = Callable[[], Message]
Reply = Message | Pending  # an answer, or a callable that waits for other parties and returns the answer


class Channel(Protocol):
    """Carries a request to a peer. `send` returns at once where the transport allows it; calling the result waits."""

    def send(self, message: Message) -> Pending: ...
    def hold(self, message: Message) -> Pending:
        """Send a request together with the next one, or at once if that takes no exchange more."""
        return self.send(message)


class Held:
    """A request that waits to be sent together with the next one; calling it waits for its answer."""

    def __init__(self, message: Message, check: Callable[[Message], Message]) -> None:
        self.message, self._check = message, check
        self.pending: Pending | None = None  # when it was sent
        self._answer: Message | None = None

    def __call__(self) -> Message:
        if self._answer is None:
            if self.pending is None:
                raise RuntimeError(f"{self.message.type_name()} was not sent yet")
            self._answer = self._check(self.pending())
        return self._answer


class Peers:
    """The peers of a driving party. Sends requests to all of them at once and counts the exchanges (round trips).

    `network` is the line to them, for protocols that adapt to it.
    """

    def __init__(self, channels: Mapping[PartyName, Channel], network: Network = UNMEASURED) -> None:
        self._channels = dict(channels)
        self.network = network
        self._held: dict[PartyName, list[Held]] = {}
        self.rounds = 0
        self.away: set[PartyName] = set()  # peers that were lost, and may come back

    @property
    def names(self) -> tuple[PartyName, ...]:
        """All peers that are not away."""
        return tuple(name for name in self._channels if name not in self.away) if self.away else tuple(self._channels)

    def send(self, messages: Mapping[PartyName, Message]) -> Mapping[PartyName, Pending]:
        """Start one request at each named peer. Work done before `collect` overlaps with theirs."""
        if messages:
            self.rounds += 1
        try:
            return {name: self.request(name, message) for name, message in messages.items()}
        except VeilBoostError:
            self._held.clear()  # of a round that has failed
            raise

    def request(self, name: PartyName, message: Message) -> Pending:
        """Start a request at one peer, with what is held for it; the caller counts the exchange."""
        channel, together = self._channels[name], self._held.pop(name, [])
        for held in together:
            held.pending = channel.hold(held.message)
        pending = channel.send(message)

        def wait() -> Message:
            for held in together:
                held()
            return pending()

        return wait if together else pending

    def hold(self, messages: Mapping[PartyName, Message], kind: type[Answer]) -> Mapping[PartyName, Pending]:
        """Send these requests together with the next one to the same peer: both take one exchange.

        The peer handles them in this order. The answers must be of type `kind`; they can be collected when the next
        request was sent.
        """
        pending = {name: Held(message, partial(_checked, name, kind)) for name, message in messages.items()}
        for name, held in pending.items():
            self._held.setdefault(name, []).append(held)
        return pending

    def flush(self) -> None:
        """Send what is held, and wait for the answers."""
        last = {name: held.pop() for name, held in self._held.items()}
        for name, pending in self.send({name: held.message for name, held in last.items()}).items():
            last[name].pending = pending
        self.collect(last, Message)

    def collect(self, pending: Mapping[PartyName, Pending], kind: type[Answer]) -> dict[PartyName, Answer]:
        """Wait for all answers, which must be of type `kind`."""
        return {name: _checked(name, kind, wait()) for name, wait in pending.items()}

    def ask(self, messages: Mapping[PartyName, Message], kind: type[Answer]) -> dict[PartyName, Answer]:
        return self.collect(self.send(messages), kind)


def _checked(name: PartyName, kind: type[Answer], answer: Message) -> Answer:
    if not isinstance(answer, kind):
        raise UnexpectedMessage(f"{name} answered {answer.type_name()} where {kind.type_name()} was expected")
    return answer


Handler = Callable[[Message], Reply]


class MemoryChannel(Channel):
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
