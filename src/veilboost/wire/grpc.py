"""Links over gRPC with mutual TLS, dialled or served. No other module of the library opens sockets."""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, cast

# gRPC reads this on import and would log every failed handshake; VeilBoost's own errors report them.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc

from veilboost.errors import (
    MalformedMessage,
    PeerBroken,
    PeerRefused,
    PeerUnreachable,
    UnexpectedMessage,
    VeilBoostError,
    WireError,
)
from veilboost.types import PartyName
from veilboost.wire.rpc import (
    ENVELOPE_SIZE,
    NO_SESSION,
    IdleTimeout,
    Kind,
    Packet,
    answers,
    failure_body,
    failure_from,
    failure_text,
    from_chunks,
    to_chunks,
)

# --- the one protobuf message of veilboost.proto, encoded by hand: no protobuf version has to match between parties --


_DATA = 0x0A  # field 1, length-delimited; the flag after it is field 2, a varint


def encode_chunk(chunk: tuple[bytes | memoryview, bool]) -> bytes:
    data, last = chunk
    head, size = bytearray([_DATA]), len(data)
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return b"".join((head, data, b"\x10\x01" if last else b""))


def decode_chunk(raw: bytes) -> tuple[memoryview, bool]:
    """The data, and whether it ends its packet. Fields must be in the order in which `encode_chunk` writes them."""
    if not raw or raw[0] != _DATA:
        raise MalformedMessage("a chunk has no data")
    size = shift = 0
    at = 1
    while True:
        if at >= len(raw) or shift > 35:
            raise MalformedMessage("a chunk's length is invalid")
        size |= (raw[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not raw[at - 1] & 0x80:
            break
    rest = raw[at + size :]
    if len(raw) < at + size or rest not in (b"", b"\x10\x00", b"\x10\x01"):
        raise MalformedMessage("a chunk is shorter than its stated length, or has unknown fields")
    return memoryview(raw)[at : at + size], rest == b"\x10\x01"


# --- the link ------------------------------------------------------------------------------------------------------


CHUNK_BYTES = 256 << 10  # measured: larger chunks are no faster on one machine, and use more memory
_WAITING = 16  # chunks that may wait to be sent


class StreamLink:
    """Packets over a pair of chunk streams: gRPC sends `outgoing` and receives `incoming`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: queue.SimpleQueue[tuple[bytes, bool] | None] = queue.SimpleQueue()
        self._room = threading.BoundedSemaphore(_WAITING)
        self._closed = False

    def attach(self, incoming: Iterable[bytes], hang_up: Callable[[], None]) -> None:
        """Set the source of received chunks and the function that ends the call. gRPC reads `outgoing` before that."""
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
        counted = len(packet.body) >= CHUNK_BYTES - ENVELOPE_SIZE  # small packets do not wait for room in the queue
        for chunk in to_chunks(packet, CHUNK_BYTES):
            while counted and not self._room.acquire(timeout=0.5) and not self._closed:
                pass
            if self._closed:
                raise PeerUnreachable("the connection was closed")
            self._waiting.put((encode_chunk(chunk), counted))

    def receive(self) -> Packet | None:
        """The next packet, or None when the peer closed the link. Raises `PeerUnreachable` if the stream broke."""
        try:
            return next(self._packets, None)
        except grpc.RpcError as error:
            if self._closed:
                return None
            if _code(error) is grpc.StatusCode.PERMISSION_DENIED:  # retrying would not help
                raise PeerRefused(_reason(error)) from None
            raise PeerUnreachable(_reason(error)) from None

    def finish(self) -> None:
        """Deliver what was sent, then end the stream."""
        self._waiting.put(None)

    def close(self) -> None:
        """Stop sending and receiving. Does nothing if the link is already closed."""
        if not self._closed:
            self._closed = True
            self._waiting.put(None)
            self._hang_up()


def _code(error: grpc.RpcError) -> grpc.StatusCode | None:
    """The status code at a client; at a server gRPC reports only that the stream broke."""
    return getattr(error, "code", lambda: None)()


def _reason(error: grpc.RpcError) -> str:
    """gRPC's description in one line; refusals of a VeilBoost server include their code."""
    details, code = getattr(error, "details", lambda: None)(), _code(error)
    text = str(details or (code.name if code is not None else "the connection broke"))
    return " ".join(text.split())[:300]


SERVICE, METHOD = "veilboost.v1.Link", "/veilboost.v1.Link/Open"


def options(keepalive: float) -> tuple[tuple[str, int], ...]:
    """Channel options of both ends. `keepalive`: seconds without traffic before gRPC pings the peer."""
    return (
        ("grpc.max_receive_message_length", 2 * CHUNK_BYTES),
        ("grpc.max_send_message_length", 2 * CHUNK_BYTES),
        ("grpc.keepalive_time_ms", int(keepalive * 1000)),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 500),
        ("grpc.use_local_subchannel_pool", 1),  # every dial opens a new connection
    )


@dataclass(frozen=True)
class TlsFiles:
    """A party's certificate and key, and the certificate authority that all parties trust, as PEM."""

    certificate: bytes
    key: bytes
    ca: bytes


HELLO_BYTES = 32


@dataclass(frozen=True)
class Greeting:
    """How a link begins (ADR 0032): the dialling party sends `hello`, the listener answers with a proof of identity.

    `verify` returns if the proof is that of `peer` and raises a coded error otherwise. `seconds` bounds the exchange.
    """

    peer: PartyName
    hello: bytes
    verify: Callable[[bytes], None]
    seconds: float


# gRPC closes a channel when it is garbage-collected. At interpreter exit its threads are gone and closing would block
# forever, so channels that an interrupt left open are closed before.
_OPEN: weakref.WeakSet[Any] = weakref.WeakSet()


@atexit.register
def _close_channels() -> None:
    for channel in list(_OPEN):
        channel.close()


def dial(
    address: str, tls: TlsFiles, server_name: str, most: int, greeting: Greeting, keepalive: float = 20.0
) -> StreamLink:
    """Open a stream to a peer, whose certificate must carry `server_name`, and verify its proof of identity."""
    link = StreamLink(most)

    def begin() -> tuple[Any, Any]:
        channel: Any = grpc.secure_channel(
            address,
            grpc.ssl_channel_credentials(tls.ca, tls.key, tls.certificate),
            options=(*options(keepalive), ("grpc.ssl_target_name_override", server_name)),
        )
        _OPEN.add(channel)
        return channel, channel.stream_stream(METHOD)(link.outgoing())

    # In a thread, which Ctrl-C does not interrupt: gRPC waits forever to close a channel with a half-made call.
    with ThreadPoolExecutor(1, thread_name_prefix="dial") as thread:
        channel, call = thread.submit(begin).result()

    def hang_up() -> None:
        call.cancel()
        channel.close()

    link.attach(call, hang_up)
    try:
        _greet(link, greeting)
    except BaseException:
        link.close()
        raise
    return link


def _greet(link: StreamLink, greeting: Greeting) -> None:
    link.send(Packet(Kind.HELLO, NO_SESSION, 0, greeting.hello))
    idle_timeout = IdleTimeout(greeting.seconds, link.close)
    with idle_timeout.waiting():
        proof = link.receive()
    idle_timeout.close()
    if proof is None:
        raise PeerUnreachable("the connection was closed before the peer proved its identity")
    if proof.kind is Kind.FAILURE:
        raise failure_from(greeting.peer, proof.body)
    if proof.kind is not Kind.PROOF:
        raise UnexpectedMessage(f"{greeting.peer} did not prove its identity")
    greeting.verify(proof.body)


_LOG = logging.getLogger(__name__)
MAX_LINKS = 64  # streams that may be open at once; a peer needs one or two

Admit = Callable[[bytes], Any]  # the peer's certificate (PEM) -> its identity, or a coded error
Prove = Callable[[bytes, Any], bytes]  # a hello and the admitted peer -> the proof of our identity
Handle = Callable[[Packet], Packet]
Welcome = Callable[[StreamLink, Any], Handle | None]
"""Called with a peer's link: returns the handler of its requests, or None to keep the link and send requests itself."""


class LinkServer:
    """Listens with mutual TLS; the handshake rejects peers without a certificate of the authority."""

    def __init__(
        self,
        address: str,
        tls: TlsFiles,
        admit: Admit,
        prove: Prove,
        welcome: Welcome,
        most: int,
        keepalive: float = 20.0,
    ) -> None:
        self._admit, self._prove, self._welcome, self._most = admit, prove, welcome, most
        self._server = grpc.server(
            ThreadPoolExecutor(MAX_LINKS, thread_name_prefix="link"),
            options=(*options(keepalive), ("grpc.so_reuseport", 0)),
            maximum_concurrent_rpcs=MAX_LINKS,
        )
        opened = cast(Any, grpc).stream_stream_rpc_method_handler(self._open)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Open": opened}),))
        credentials = grpc.ssl_server_credentials([(tls.key, tls.certificate)], tls.ca, require_client_auth=True)
        try:
            self.port = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise PeerUnreachable(f"cannot listen on {address}", "choose a free port") from error
        self._server.start()

    def stop(self) -> None:
        self._server.stop(grace=0.2).wait()

    def _open(self, incoming: Iterator[bytes], context: Any) -> Iterator[bytes]:
        certificates = context.auth_context().get("x509_pem_cert") or [b""]
        try:
            peer = self._admit(certificates[0])
        except Exception as error:  # gRPC would send the text of an uncaught exception
            coded = error if isinstance(error, VeilBoostError) else PeerBroken(f"a peer raised {type(error).__name__}")
            _LOG.warning("refused a connection: %s", " ".join(str(coded).split()))
            context.abort(grpc.StatusCode.PERMISSION_DENIED, failure_text(coded))
            return
        link = StreamLink(self._most)
        link.attach(incoming, context.cancel)
        context.add_callback(link.close)
        first = self._greeting(link, peer)
        if first is None:
            return
        yield from map(encode_chunk, to_chunks(first, CHUNK_BYTES))
        if first.kind is not Kind.PROOF:
            return
        handle = self._welcome(link, peer)
        if handle is None:
            yield from link.outgoing()
        else:  # this thread receives, answers and sends: requests pass through no queue
            for packet in answers(link, handle):
                yield from map(encode_chunk, to_chunks(packet, CHUNK_BYTES))

    def _greeting(self, link: StreamLink, peer: Any) -> Packet | None:
        """The answer to a hello: the proof of our identity, or a failure; None if the peer disconnected."""
        try:
            hello = link.receive()
            if hello is None:
                return None
            if hello.kind is not Kind.HELLO or len(hello.body) != HELLO_BYTES:
                raise UnexpectedMessage("a link must begin with a hello", public=True)
            return Packet(Kind.PROOF, NO_SESSION, 0, self._prove(hello.body, peer))
        except PeerUnreachable:
            return None
        except WireError as error:
            return Packet(Kind.FAILURE, NO_SESSION, 0, failure_body(error))
