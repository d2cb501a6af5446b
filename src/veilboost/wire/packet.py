"""What crosses a link: an envelope, the frame of a message, and a digest.

    packet = "VBPK" | version u16 | kind u8 | 0 u8 | session 16 bytes | number u64 | body | digest 16 bytes

A request and its answer bear the same session and number. The digest is that of the body: it catches a damaged body,
and it tells a repeated request from another one under the same number. It stands at the end, so that both sides make it
while the body is on its way.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

from veilboost.errors import DamagedPacket, MalformedMessage, OversizedMessage, WireVersion

MAGIC = b"VBPK"
VERSION = 2
DIGEST_SIZE = 16
_ENVELOPE = struct.Struct("<4sHBx16sQ")
ENVELOPE_SIZE = _ENVELOPE.size


class Kind(IntEnum):
    """What a packet is for."""

    REQUEST = 1
    ANSWER = 2
    FAILURE = 3  # the body is "VB-nnnn", a line feed, what, a line feed, what to do


@dataclass(frozen=True)
class Packet:
    """One request, answer or failure. `digest` is what arrived with it, empty for one that is to be sent."""

    kind: Kind
    session: bytes
    number: int
    body: bytes
    digest: bytes = b""

    def envelope(self) -> bytes:
        return _ENVELOPE.pack(MAGIC, VERSION, self.kind, self.session, self.number)


class BodyDigest:
    """SHA-256, shortened; processors have instructions for it."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, piece: Any) -> None:
        self._hash.update(piece)

    def value(self) -> bytes:
        return self._hash.digest()[:DIGEST_SIZE]


def read_envelope(start: bytes | memoryview) -> tuple[Kind, bytes, int]:
    """Kind, session and number from the first bytes of a packet, or a coded error."""
    if len(start) < ENVELOPE_SIZE:
        raise MalformedMessage("a packet is shorter than its envelope")
    magic, version, kind, session, number = _ENVELOPE.unpack_from(start)
    if magic != MAGIC:
        raise MalformedMessage("something that is not a packet arrived")
    if version != VERSION:
        raise WireVersion(f"the peer speaks packet version {version}, this side speaks {VERSION}", public=True)
    if kind not in Kind._value2member_map_:
        raise MalformedMessage("a packet of an unknown kind arrived")
    return Kind(kind), session, number


# --- links: a two-way way for packets between two parties, whoever opened it ---------------------------------------


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
