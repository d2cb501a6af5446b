"""A two-way way for packets between two parties, whoever opened it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from veilboost.errors import OversizedMessage
from veilboost.wire.packet import ENVELOPE_SIZE, Packet, read_packet


class Link(Protocol):
    """Carries packets in order; both sides may send at any time."""

    def send(self, packet: Packet) -> None: ...
    def receive(self) -> Packet | None:
        """The next packet; None when the link is closed."""
        ...

    def finish(self) -> None:
        """Let what was sent arrive, then end the link."""
        ...

    def close(self) -> None: ...


def to_chunks(packet: Packet, size: int) -> Iterator[tuple[bytes | memoryview, bool]]:
    """A packet in pieces of at most `size` bytes, the last one marked: memory in transit is bounded by a piece."""
    body = memoryview(packet.body)
    first = size - ENVELOPE_SIZE
    yield packet.envelope() + body[:first], len(body) <= first
    for start in range(first, len(body), size):
        yield body[start : start + size], start + size >= len(body)


def from_chunks(chunks: Iterable[tuple[bytes, bool]], most: int) -> Iterator[Packet]:
    """Packets from pieces; one that grows beyond `most` bytes is refused before it is held."""
    pieces: list[bytes] = []
    held = 0
    for data, last in chunks:
        held += len(data)
        if held > most:
            raise OversizedMessage(f"a message of more than {most >> 20} MB arrived")
        pieces.append(data)
        if last:
            yield read_packet(pieces)
            pieces, held = [], 0
