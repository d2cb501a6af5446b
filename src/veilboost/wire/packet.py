"""What crosses a link: an envelope, the frame of a message, and a digest.

    packet = "VBPK" | version u16 | kind u8 | 0 u8 | session 16 bytes | number u64 | body | digest 16 bytes

A request and its answer bear the same session and number. The digest is that of the body: it catches a damaged body,
and it tells a repeated request from another one under the same number. It stands at the end, so that both sides make it
while the body is on its way.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from veilboost.errors import MalformedMessage, WireVersion

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
