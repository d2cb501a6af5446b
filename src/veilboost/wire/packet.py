"""What crosses a link: an envelope and, in requests and answers, the frame of a message.

    packet = "VBPK" | version u16 | kind u8 | 0 u8 | session 16 bytes | number u64 | digest 16 bytes | body

A request and its answer bear the same session and number. The digest is that of the body: it catches a damaged body,
and it tells a repeated request from another one under the same number.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from veilboost.errors import DamagedPacket, MalformedMessage, WireVersion

MAGIC = b"VBPK"
VERSION = 1
_ENVELOPE = struct.Struct("<4sHBx16sQ16s")
ENVELOPE_SIZE = _ENVELOPE.size


class Kind(IntEnum):
    """What a packet is for."""

    REQUEST = 1
    ANSWER = 2
    FAILURE = 3  # the body is "VB-nnnn", a line feed, what, a line feed, what to do


@dataclass(frozen=True)
class Packet:
    """One request, answer or failure."""

    kind: Kind
    session: bytes
    number: int
    digest: bytes
    body: bytes

    @staticmethod
    def of(kind: Kind, session: bytes, number: int, body: bytes) -> Packet:
        return Packet(kind, session, number, digest_of(body), body)

    def envelope(self) -> bytes:
        return _ENVELOPE.pack(MAGIC, VERSION, self.kind, self.session, self.number, self.digest)


def digest_of(body: bytes) -> bytes:
    """SHA-256, shortened; processors have instructions for it."""
    return hashlib.sha256(body).digest()[:16]


def read_packet(pieces: Sequence[bytes]) -> Packet:
    """A packet from its pieces, of which the first holds the envelope; or a coded error."""
    if len(pieces[0]) < ENVELOPE_SIZE:
        raise MalformedMessage("a packet is shorter than its envelope")
    magic, version, kind, session, number, digest = _ENVELOPE.unpack_from(pieces[0])
    if magic != MAGIC:
        raise MalformedMessage("something that is not a packet arrived")
    if version != VERSION:
        raise WireVersion(f"the peer speaks packet version {version}, this side speaks {VERSION}")
    if kind not in Kind._value2member_map_:
        raise MalformedMessage("a packet of an unknown kind arrived")
    body = b"".join((memoryview(pieces[0])[ENVELOPE_SIZE:], *pieces[1:]))  # the one copy
    if digest_of(body) != digest:
        raise DamagedPacket("a packet's content does not fit its digest")
    return Packet(Kind(kind), session, number, digest, body)
