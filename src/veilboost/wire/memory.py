"""A channel inside one process. What is counted is what would travel."""

from __future__ import annotations

from collections.abc import Callable

from veilboost.wire.channel import Pending, Reply
from veilboost.wire.codec import Catalogue, decode, encode, frame_size
from veilboost.wire.message import Message
from veilboost.wire.transcript import Transcript

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
