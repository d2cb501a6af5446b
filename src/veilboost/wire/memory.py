"""A channel inside one process. Messages become bytes all the same, so that what is counted is what would travel."""

from __future__ import annotations

from collections.abc import Callable

from veilboost.wire.channel import Pending
from veilboost.wire.codec import Catalogue, decode, encode
from veilboost.wire.message import Message
from veilboost.wire.transcript import Transcript

Handler = Callable[[Message], Message]


class MemoryChannel:
    """The way from a driving party to a passive one and back, recorded by both."""

    def __init__(self, handler: Handler, catalogue: Catalogue, here: Transcript, there: Transcript) -> None:
        self._handler = handler
        self._catalogue = catalogue
        self._here = here
        self._there = there

    def send(self, message: Message) -> Pending:
        request = self._carry(message, self._here, self._there)
        answer = self._carry(self._handler(request), self._there, self._here)
        return lambda: answer

    def _carry(self, message: Message, sender: Transcript, receiver: Transcript) -> Message:
        frame = encode(message)
        sender.record("sent", receiver.owner, message, len(frame))
        receiver.record("received", sender.owner, message, len(frame))
        return decode(frame, self._catalogue)
