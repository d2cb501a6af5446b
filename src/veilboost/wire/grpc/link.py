"""A link over one bidirectional gRPC stream, at either of its ends."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator

import grpc

from veilboost.errors import PeerRefused, PeerUnreachable
from veilboost.wire.grpc.chunk import decode_chunk, encode_chunk
from veilboost.wire.link import from_chunks, to_chunks
from veilboost.wire.packet import ENVELOPE_SIZE, Packet

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
