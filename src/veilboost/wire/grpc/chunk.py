"""The one protobuf message of `veilboost.proto`, written and read by hand: five lines each instead of a library whose
versions would have to match at every party."""

from __future__ import annotations

from veilboost.errors import MalformedMessage

_DATA, _LAST = 0x0A, 0x10  # field 1, length-delimited; field 2, varint


def encode_chunk(chunk: tuple[bytes | memoryview, bool]) -> bytes:
    data, last = chunk
    head, size = bytearray([_DATA]), len(data)
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return b"".join((head, data, b"\x10\x01" if last else b""))


def decode_chunk(raw: bytes) -> tuple[memoryview, bool]:
    """The data and whether it ends its packet; fields in the order in which we write them."""
    if not raw or raw[0] != _DATA:
        raise MalformedMessage("a chunk has no data")
    size = shift = 0
    at = 1
    while True:
        if at >= len(raw) or shift > 35:
            raise MalformedMessage("a chunk's length cannot be read")
        size |= (raw[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not raw[at - 1] & 0x80:
            break
    rest = raw[at + size :]
    if len(raw) < at + size or rest not in (b"", b"\x10\x00", b"\x10\x01"):
        raise MalformedMessage("a chunk is shorter than it says, or has fields that nobody knows")
    return memoryview(raw)[at : at + size], rest == b"\x10\x01"
