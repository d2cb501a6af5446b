"""A link over one bidirectional gRPC stream, at either of its ends."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator

import grpc

from veilboost.errors import MalformedMessage, PeerRefused, PeerUnreachable
from veilboost.wire.packet import ENVELOPE_SIZE, Packet, from_chunks, to_chunks

# --- the one protobuf message of veilboost.proto, by hand: a library would have to match at every party ------------


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


# --- the link ------------------------------------------------------------------------------------------------------


CHUNK_BYTES = 256 << 10  # measured: larger chunks are no faster on one machine, and hold more memory
_WAITING = 16  # chunks that may wait to be sent


class StreamLink:
    """Packets over a pair of chunk streams: `outgoing` is what gRPC sends, `incoming` what it received."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: queue.SimpleQueue[tuple[bytes, bool] | None] = queue.SimpleQueue()
        self._room = threading.BoundedSemaphore(_WAITING)
        self._closed = False

    def attach(self, incoming: Iterable[bytes], hang_up: Callable[[], None]) -> None:
        """Where received chunks come from, and how to end the call. gRPC asks for `outgoing` before there is either."""
        self._packets = from_chunks(map(decode_chunk, incoming), self._most)
        self._hang_up = hang_up

    def outgoing(self) -> Iterator[bytes]:
        """The chunks to send, until the link is closed."""
        while (item := self._waiting.get()) is not None:
            chunk, counted = item
            yield chunk
            if counted:
                self._room.release()

    def send(self, packet: Packet) -> None:
        counted = len(packet.body) >= CHUNK_BYTES - ENVELOPE_SIZE  # small packets need not wait for room
        for chunk in to_chunks(packet, CHUNK_BYTES):
            while counted and not self._room.acquire(timeout=0.5) and not self._closed:
                pass
            if self._closed:
                raise PeerUnreachable("the connection was closed")
            self._waiting.put((encode_chunk(chunk), counted))

    def receive(self) -> Packet | None:
        """The next packet, None when the other side closed; a broken stream is `PeerUnreachable`."""
        try:
            return next(self._packets, None)
        except grpc.RpcError as error:
            if self._closed:
                return None
            if _code(error) is grpc.StatusCode.PERMISSION_DENIED:  # asking again would not help
                raise PeerRefused(_reason(error)) from None
            raise PeerUnreachable(_reason(error)) from None

    def finish(self) -> None:
        """Let what was sent arrive, then end the stream."""
        self._waiting.put(None)

    def close(self) -> None:
        """Stop sending and receiving. Harmless when it is closed already."""
        if not self._closed:
            self._closed = True
            self._waiting.put(None)
            self._hang_up()


def _code(error: grpc.RpcError) -> grpc.StatusCode | None:
    """What a client hears; where a server reads, gRPC tells no more than that the stream broke."""
    return getattr(error, "code", lambda: None)()


def _reason(error: grpc.RpcError) -> str:
    """What gRPC says, in one line; refusals of our own server bear their code in it."""
    details, code = getattr(error, "details", lambda: None)(), _code(error)
    text = str(details or (code.name if code is not None else "the connection broke"))
    return " ".join(text.split())[:300]
