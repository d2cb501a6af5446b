"""A two-way way for packets between two parties, whoever opened it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from veilboost.errors import DamagedPacket, MalformedMessage, OversizedMessage
from veilboost.wire.packet import DIGEST_SIZE, ENVELOPE_SIZE, BodyDigest, Kind, Packet, read_envelope


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
    """A packet in pieces of about `size` bytes, the last one marked: memory in transit is bounded by a piece."""
    body, digest = memoryview(packet.body), BodyDigest()
    start = max(size - ENVELOPE_SIZE, 0)
    digest.add(body[:start])
    piece: bytes | memoryview = packet.envelope() + body[:start]
    while start < len(body):
        yield piece, False
        piece = body[start : start + size]
        digest.add(piece)
        start += size
    yield b"".join((piece, digest.value())), True


def from_chunks(chunks: Iterable[tuple[memoryview, bool]], most: int) -> Iterator[Packet]:
    """Packets from pieces; one that grows beyond `most` bytes is refused before it is held."""
    pieces: list[memoryview] = []
    held, digest = 0, BodyDigest()
    kind, session, number = Kind.REQUEST, b"", 0
    for data, last in chunks:
        piece = data
        held += len(piece)
        if held > most:
            raise OversizedMessage(f"a message of more than {most >> 20} MB arrived", public=True)
        if not pieces:
            kind, session, number = read_envelope(piece)
            piece = piece[ENVELOPE_SIZE:]
        if not last:
            digest.add(piece)
            pieces.append(piece)
            continue
        if len(piece) < DIGEST_SIZE:
            raise MalformedMessage("a packet ends before its digest")
        pieces.append(piece[:-DIGEST_SIZE])
        digest.add(pieces[-1])
        if digest.value() != bytes(piece[-DIGEST_SIZE:]):
            raise DamagedPacket("a packet's content does not fit its digest")
        yield Packet(kind, session, number, b"".join(pieces), digest.value())
        pieces, held, digest = [], 0, BodyDigest()
