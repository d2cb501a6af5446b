"""Links over gRPC with mutual TLS, dialled or served. No other module of the library opens sockets."""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

# gRPC reads this on import and would log every failed handshake; VeilBoost's own errors report them.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc

from veilboost.errors import (
    LimitReached,
    MalformedMessage,
    PeerBroken,
    PeerRefused,
    PeerUnreachable,
    UnexpectedMessage,
    VeilBoostError,
    WireError,
    printable,
)
from veilboost.logs import EventLogger, reason
from veilboost.types import PartyName
from veilboost.wire.rpc import (
    NO_SESSION,
    UNOBSERVED,
    IdleTimeout,
    Kind,
    Observer,
    Packet,
    Transit,
    answers,
    failure_body,
    failure_from,
    failure_text,
    from_chunks,
    to_chunks,
)
from veilboost.wire.transcript import Direction

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


@dataclass(frozen=True)
class LinkLimits:
    """What the peer of a link may use: bytes of a packet, seconds to begin a link and to read or send a packet.

    Of a server: links of one peer, and the number of peers. A peer's unfinished packets are at most two whole ones.
    """

    message_bytes: int
    hello_seconds: float = 10.0
    packet_seconds: float = 3600.0
    keepalive_seconds: float = 20.0
    links: int = 16
    peers: int = 8


class StreamLink:
    """Packets over a pair of chunk streams: gRPC sends `outgoing` and receives `incoming`."""

    def __init__(
        self,
        limits: LinkLimits,
        transit: Transit | None = None,
        count: Callable[[Direction, int], None] = lambda direction, size: None,
    ) -> None:
        self._limits, self._transit, self._count = limits, transit, count
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._room = threading.Semaphore(_WAITING)
        self._closed = False
        self._timeout = IdleTimeout(limits.packet_seconds, self.close)

    def attach(self, incoming: Iterable[bytes], hang_up: Callable[[], None]) -> None:
        """Set the source of received chunks and the function that ends the call. gRPC reads `outgoing` before that."""
        self._packets = from_chunks(self._chunks(iter(incoming)), self._limits.message_bytes, self._transit)
        self._hang_up = hang_up

    def _chunks(self, incoming: Iterator[bytes]) -> Iterator[tuple[memoryview, bool]]:
        """Decoded chunks. The peer may wait before a packet, but has to finish one that it has begun."""
        for raw in incoming:
            chunk = decode_chunk(raw)
            yield chunk
            if not chunk[1]:
                with self._bounded():
                    for rest in incoming:
                        chunk = decode_chunk(rest)
                        yield chunk
                        if chunk[1]:
                            break

    @contextmanager
    def _bounded(self) -> Generator[None]:
        """Close the link if this takes longer than a packet may take."""
        try:
            with self._timeout:
                yield
        finally:
            if self._closed:
                self._timeout.close()

    @property
    def closed(self) -> bool:
        return self._closed

    def outgoing(self) -> Iterator[bytes]:
        """The chunks to send, until the link is closed."""
        while (chunk := self._waiting.get()) is not None:
            yield chunk
            self._room.release()

    def send(self, packet: Packet) -> None:
        for chunk in self.chunks_of(packet):
            self._room.acquire()
            if self._closed:
                self._room.release()  # for other threads that send
                raise PeerUnreachable("the connection was closed, or the peer does not read from it")
            self._waiting.put(chunk)

    def chunks_of(self, packet: Packet) -> Iterator[bytes]:
        """The chunks of a packet to send. If the peer does not read them in time, the link is closed."""
        with self._bounded():
            yield from map(encode_chunk, to_chunks(packet, CHUNK_BYTES))
        self._count("sent", packet.size)

    def receive(self) -> Packet | None:
        """The next packet, or None when the peer closed the link. Raises `PeerUnreachable` if the stream broke."""
        try:
            packet = next(self._packets, None)
        except grpc.RpcError as error:
            if self._closed:
                return None
            if _code(error) is grpc.StatusCode.PERMISSION_DENIED:  # retrying would not help
                raise PeerRefused(_reason(error)) from None
            raise PeerUnreachable(_reason(error)) from None
        if packet is not None:
            self._count("received", packet.size)
        return packet

    def finish(self) -> None:
        """Deliver what was sent, then end the stream."""
        self._waiting.put(None)

    def close(self) -> None:
        """Stop sending and receiving. Does nothing if the link is already closed."""
        if not self._closed:
            self._closed = True
            self._waiting.put(None)
            self._room.release()
            self._hang_up()
            self._timeout.close()

    def discard(self) -> None:
        """Free what the link holds of a packet."""
        with contextlib.suppress(ValueError):  # another thread is receiving, and frees it
            self._packets.close()


def _code(error: grpc.RpcError) -> grpc.StatusCode | None:
    """The status code at a client; at a server gRPC reports only that the stream broke."""
    return getattr(error, "code", lambda: None)()


def _reason(error: grpc.RpcError) -> str:
    """gRPC's description in one line; refusals of a VeilBoost server include their code."""
    details, code = getattr(error, "details", lambda: None)(), _code(error)
    text = str(details or (code.name if code is not None else "the connection broke"))
    return printable(" ".join(text.split())[:300])


SERVICE, METHOD = "veilboost.v1.Link", "/veilboost.v1.Link/Open"
HEALTH = "grpc.health.v1.Health"
_SERVING, _NOT_SERVING = b"\x08\x01", b"\x08\x02"  # field 1, an enum


def _options(limits: LinkLimits) -> tuple[tuple[str, int], ...]:
    """Channel options of both ends."""
    return (
        ("grpc.max_receive_message_length", 2 * CHUNK_BYTES),
        ("grpc.max_send_message_length", 2 * CHUNK_BYTES),
        ("grpc.keepalive_time_ms", int(limits.keepalive_seconds * 1000)),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 500),
        ("grpc.use_local_subchannel_pool", 1),  # every dial opens a new connection
    )


@dataclass(frozen=True)
class TlsFiles:
    """A party's certificate and key, and the certificate authority that all parties trust, as PEM."""

    certificate: bytes
    key: bytes
    ca: bytes


HELLO_BYTES = 32  # random bytes; the release of the dialling party follows
MAX_RELEASE = 64


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
    address: str,
    tls: TlsFiles,
    server_name: str,
    limits: LinkLimits,
    greeting: Greeting,
    observer: Observer = UNOBSERVED,
) -> StreamLink:
    """Open a stream to a peer, whose certificate must carry `server_name`, and verify its proof of identity."""
    link = StreamLink(limits, count=partial(observer.packet, greeting.peer))

    def begin() -> tuple[Any, Any]:
        channel: Any = grpc.secure_channel(
            address,
            grpc.ssl_channel_credentials(tls.ca, tls.key, tls.certificate),
            options=(*_options(limits), ("grpc.ssl_target_name_override", server_name)),
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
    with _closing_after(greeting.seconds, link):
        link.send(Packet(Kind.HELLO, NO_SESSION, 0, greeting.hello))
        proof = link.receive()
    if proof is None:
        raise PeerUnreachable("the connection was closed before the peer proved its identity")
    if proof.kind is Kind.FAILURE:
        raise failure_from(greeting.peer, proof.body)
    if proof.kind is not Kind.PROOF:
        raise UnexpectedMessage(f"{greeting.peer} did not prove its identity")
    greeting.verify(proof.body)


@contextmanager
def _closing_after(seconds: float, link: StreamLink) -> Generator[None]:
    timeout = IdleTimeout(seconds, link.close)
    try:
        with timeout:
            yield
    finally:
        timeout.close()


_LOG = EventLogger(__name__)
SPARE_LINKS = 8  # for peers that are about to be refused
MAX_CONNECTIONS = 16_384  # TCP connections, most of which no party with a certificate needs


class Peer(Protocol):
    """An admitted peer."""

    @property
    def party(self) -> PartyName: ...


Admit = Callable[[bytes], Peer]  # the peer's certificate (PEM) -> its identity, or a coded error
Prove = Callable[[bytes, Any], bytes]  # a hello and the admitted peer -> the proof of our identity
Handle = Callable[[Packet], Packet]
Welcome = Callable[[StreamLink, Any], Handle | None]
"""Called with a peer's link: returns the handler of its requests, or None to keep the link and send requests itself."""


def _certificate(context: Any) -> bytes:
    """The certificate of the peer of a call, as PEM; TLS has verified its issuer."""
    return (context.auth_context().get("x509_pem_cert") or [b""])[0]


def most_connections() -> int:
    """How many connections to accept: half of the files that this process may open, after raising that limit."""
    try:
        import resource
    except ImportError:  # not on this system
        return MAX_CONNECTIONS
    soft, hard = (limit if limit >= 0 else 2 * MAX_CONNECTIONS for limit in resource.getrlimit(resource.RLIMIT_NOFILE))
    wanted = min(hard, 2 * MAX_CONNECTIONS)
    if soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
            soft = wanted
    return min(soft // 2, MAX_CONNECTIONS)


@dataclass
class _Account:
    """What one peer uses of a server."""

    transit: Transit
    links: int = 0


def _server_credentials(tls: Callable[[], TlsFiles]) -> Any:
    """Credentials that every new connection takes from `tls`: files that changed need no restart."""
    used = tls()

    def configuration() -> Any:
        return grpc.ssl_server_certificate_configuration([(used.key, used.certificate)], used.ca)

    def changed() -> Any:
        nonlocal used
        if (now := tls()) == used:
            return None  # no change
        used = now
        return configuration()

    return grpc.dynamic_ssl_server_credentials(configuration(), changed, require_client_authentication=True)


class LinkServer:
    """Listens with mutual TLS; the handshake rejects peers without a certificate of the authority."""

    def __init__(
        self,
        address: str,
        tls: Callable[[], TlsFiles],
        admit: Admit,
        prove: Prove,
        welcome: Welcome,
        limits: LinkLimits,
        ready: Callable[[], bool] = lambda: True,
        observer: Observer = UNOBSERVED,
    ) -> None:
        """`ready` is what the health service reports."""
        self._admit, self._prove, self._welcome, self._limits = admit, prove, welcome, limits
        self._ready, self._observer = ready, observer
        self._accounts: dict[PartyName, _Account] = {}
        self._lock = threading.Lock()
        every = limits.links * limits.peers + SPARE_LINKS
        self._server = grpc.server(
            ThreadPoolExecutor(every, thread_name_prefix="link"),
            options=(
                *_options(limits),
                ("grpc.so_reuseport", 0),
                ("grpc.max_concurrent_streams", limits.links),  # of one connection
                ("grpc.server_handshake_timeout_ms", int(limits.hello_seconds * 1000)),
                ("grpc.max_connection_idle_ms", int(limits.hello_seconds * 1000)),  # of connections without a stream
                ("grpc.max_allowed_incoming_connections", most_connections()),
            ),
            maximum_concurrent_rpcs=every,
        )
        opened = cast(Any, grpc).stream_stream_rpc_method_handler(self._open)
        checked = cast(Any, grpc).unary_unary_rpc_method_handler(self._check_health)
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(SERVICE, {"Open": opened}),
                grpc.method_handlers_generic_handler(HEALTH, {"Check": checked}),
            )
        )
        try:
            self.port = self._server.add_secure_port(address, _server_credentials(tls))
        except RuntimeError as error:
            raise PeerUnreachable(f"cannot listen on {address}", "choose a free port") from error
        self._server.start()

    def stop(self) -> None:
        self._server.stop(grace=0.2).wait()

    def _check_health(self, request: bytes, context: Any) -> bytes:
        """`grpc.health.v1.Health/Check`, for peers that are admitted. The request is a service name in field 1."""
        try:
            self._admit(_certificate(context))
        except Exception as error:
            self._refuse(error, context)
        if request not in (b"", b"\x0a" + bytes([len(SERVICE)]) + SERVICE.encode()):
            context.abort(grpc.StatusCode.NOT_FOUND, "there is no such service")
        return _SERVING if self._ready() else _NOT_SERVING

    def _refuse(self, error: Exception, context: Any) -> None:
        """Abort the call. gRPC would send the text of an uncaught exception."""
        coded = error if isinstance(error, VeilBoostError) else PeerBroken(f"a peer raised {type(error).__name__}")
        _LOG.warning("peer_refused", f"refused a connection from {context.peer()}: {reason(coded)}", coded)
        self._observer.refused(coded.code)
        full = isinstance(coded, LimitReached)
        status = grpc.StatusCode.RESOURCE_EXHAUSTED if full else grpc.StatusCode.PERMISSION_DENIED
        context.abort(status, failure_text(coded))

    def _open(self, incoming: Iterator[bytes], context: Any) -> Iterator[bytes]:
        try:
            peer = self._admit(_certificate(context))
            account = self._enter(peer.party)
        except Exception as error:
            self._refuse(error, context)
            return
        link = StreamLink(self._limits, account.transit, partial(self._observer.packet, peer.party))
        link.attach(incoming, context.cancel)
        try:  # until the thread is free, which may be later than the end of the call
            context.add_callback(link.close)
            yield from self._serve(link, peer)
        finally:
            link.discard()
            with self._lock:
                account.links -= 1

    def _enter(self, party: PartyName) -> _Account:
        """Count a link of this peer, so that no peer can take the links of another."""
        with self._lock:
            account = self._accounts.setdefault(party, _Account(Transit(2 * self._limits.message_bytes)))
            if account.links >= self._limits.links:
                raise LimitReached(f"{party} has {account.links} connections open here", public=True)
            account.links += 1
            return account

    def _serve(self, link: StreamLink, peer: Peer) -> Iterator[bytes]:
        first = self._greeting(link, peer)
        if first is None:
            return
        yield from link.chunks_of(first)
        if first.kind is not Kind.PROOF:
            return
        _LOG.debug("peer_connected", "admitted a link", peer=peer.party)
        handle = self._welcome(link, peer)
        if handle is None:
            yield from link.outgoing()
        else:  # this thread receives, answers and sends: requests pass through no queue
            for packet in answers(link, handle):
                yield from link.chunks_of(packet)

    def _greeting(self, link: StreamLink, peer: Peer) -> Packet | None:
        """The answer to a hello: the proof of our identity, or a failure; None if the peer disconnected."""
        try:
            with _closing_after(self._limits.hello_seconds, link):
                hello = link.receive()
            if hello is None:
                return None
            if hello.kind is not Kind.HELLO or not 0 < len(hello.body) - HELLO_BYTES <= MAX_RELEASE:
                raise UnexpectedMessage("a link must begin with a hello", public=True)
            return Packet(Kind.PROOF, NO_SESSION, 0, self._prove(hello.body, peer))
        except PeerUnreachable:
            return None
        except WireError as error:
            _LOG.warning("peer_refused", f"refused a link: {reason(error)}", error, peer=peer.party)
            self._observer.refused(error.code)
            return Packet(Kind.FAILURE, NO_SESSION, 0, failure_body(error))
