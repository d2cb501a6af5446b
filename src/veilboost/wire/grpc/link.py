"""A link over one bidirectional gRPC stream, at either of its ends."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable, Iterable, Iterator

import grpc

from veilboost.errors import PeerUnreachable
from veilboost.wire.grpc.chunk import decode_chunk, encode_chunk
from veilboost.wire.link import from_chunks, to_chunks
from veilboost.wire.packet import Packet

CHUNK_BYTES = 256 << 10  # measured: larger chunks are no faster on one machine, and hold more memory
_WAITING = 16  # chunks that may wait to be sent


class StreamLink:
    """Packets over a pair of chunk streams: `outgoing` is what gRPC sends, `incoming` what it received."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: queue.Queue[bytes | None] = queue.Queue(_WAITING)
        self._closed = False

    def attach(self, incoming: Iterable[bytes], hang_up: Callable[[], None]) -> None:
        """Where received chunks come from, and how to end the call. gRPC asks for `outgoing` before there is either."""
        self._packets = from_chunks(map(decode_chunk, incoming), self._most)
        self._hang_up = hang_up

    def outgoing(self) -> Iterator[bytes]:
        """The chunks to send, until the link is closed."""
        while (chunk := self._waiting.get()) is not None:
            yield chunk

    def send(self, packet: Packet) -> None:
        for chunk in to_chunks(packet, CHUNK_BYTES):
            self._put(encode_chunk(chunk))

    def receive(self) -> Packet | None:
        """The next packet, None when the other side closed; a broken stream is `PeerUnreachable`."""
        try:
            return next(self._packets, None)
        except grpc.RpcError as error:
            if self._closed:
                return None
            raise PeerUnreachable(_reason(error)) from None

    def finish(self) -> None:
        """Let what was sent arrive, then end the stream."""
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=5.0)

    def close(self) -> None:
        """Stop sending and receiving. Harmless when it is closed already."""
        if not self._closed:
            self._closed = True
            with contextlib.suppress(queue.Full):  # a sender that is stuck finds out by `_put`
                self._waiting.put_nowait(None)
            self._hang_up()

    def _put(self, chunk: bytes) -> None:
        while not self._closed:
            try:
                self._waiting.put(chunk, timeout=0.5)
            except queue.Full:
                continue
            return
        raise PeerUnreachable("the connection was closed")


def _reason(error: grpc.RpcError) -> str:
    """What gRPC says, in one line; refusals of our own server bear their code in it."""
    details = getattr(error, "details", lambda: None)()
    code = getattr(error, "code", lambda: None)()
    text = str(details or (code.name if code is not None else "the connection broke"))
    return " ".join(text.split())[:300]
