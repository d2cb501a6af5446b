"""Requests and answers in packets, over links that may break.

    packet = "VBPK" | version u16 | kind u8 | 0 u8 | session 16 bytes | number u64 | body | digest 16 bytes

A request and its answer carry the same session and number. The digest is that of the body: it detects a damaged body
and distinguishes a repeated request from a different one with the same number. It comes last, so that both parties
compute it while the body is in transit.

The body holds one message, or several that are handled in order. The driving party numbers its packets and sends one at
a time to each peer. When a link breaks, it opens the link again and repeats the packet, until the deadline. The
answering party recognises a repeated packet by its number and digest and returns its earlier answer, so that no work is
done and no randomness is drawn twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import struct
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Protocol

from veilboost import errors
from veilboost.errors import (
    DamagedPacket,
    LimitReached,
    MalformedMessage,
    OversizedMessage,
    PeerRefused,
    PeerUnreachable,
    UnexpectedMessage,
    VeilBoostError,
    WireError,
    WireVersion,
    printable,
)
from veilboost.logs import MOST_TEXT
from veilboost.types import PartyName
from veilboost.wire.channel import Pending
from veilboost.wire.message import Catalogue, Message, decode_all, encode, join_frames
from veilboost.wire.transcript import Direction, Transcript

MAGIC = b"VBPK"
VERSION = 5
DIGEST_SIZE = 16  # of SHA-256, which processors accelerate
_ENVELOPE = struct.Struct("<4sHBx16sQ")
ENVELOPE_SIZE = _ENVELOPE.size


class Kind(IntEnum):
    REQUEST = 1
    ANSWER = 2
    FAILURE = 3  # the body is "VB-nnnn", a line feed, what happened, a line feed, what to do
    HELLO = 4  # the first packet of a link, sent by the party that dialled: random bytes and its release
    PROOF = 5  # the answer: the listener's release, and its identity, proved by its certificate's key


@dataclass(frozen=True)
class Packet:
    """One request, answer or failure. `digest` is the received digest; it is empty in a packet to be sent."""

    kind: Kind
    session: bytes
    number: int
    body: bytes
    digest: bytes = b""

    @property
    def size(self) -> int:
        """Bytes in transit, without those of gRPC and TLS."""
        return ENVELOPE_SIZE + len(self.body) + DIGEST_SIZE

    def envelope(self) -> bytes:
        return _ENVELOPE.pack(MAGIC, VERSION, self.kind, self.session, self.number)


def read_envelope(start: bytes | memoryview) -> tuple[Kind, bytes, int]:
    """Kind, session and number from the first bytes of a packet. Raises a coded error if they are invalid."""
    if len(start) < ENVELOPE_SIZE:
        raise MalformedMessage("a packet is shorter than its envelope")
    magic, version, kind, session, number = _ENVELOPE.unpack_from(start)
    if magic != MAGIC:
        raise MalformedMessage("received bytes that are not a packet")
    if version != VERSION:
        raise WireVersion(f"the peer uses packet version {version}, this party uses {VERSION}", public=True)
    if kind not in Kind._value2member_map_:
        raise MalformedMessage("received a packet of an unknown kind")
    return Kind(kind), session, number


# --- links: bidirectional packet connections between two parties, whichever party opened them ----------------------


class Link(Protocol):
    """Carries packets in order; both parties may send at any time."""

    @property
    def closed(self) -> bool: ...
    def send(self, packet: Packet) -> None: ...
    def receive(self) -> Packet | None:
        """The next packet; None when the link is closed."""

    def finish(self) -> None:
        """Deliver what was sent, then end the link."""

    def close(self) -> None: ...


class Observer:
    """Is told what happens on links. This one ignores it."""

    def packet(self, peer: PartyName, direction: Direction, size: int) -> None: ...
    def refused(self, code: str) -> None: ...


UNOBSERVED = Observer()


def to_chunks(packet: Packet, size: int) -> Iterator[tuple[bytes | memoryview, bool]]:
    """Split a packet into pieces of about `size` bytes and mark the last one. Bounds the memory used in transit."""
    body = memoryview(packet.body)
    start = max(size - ENVELOPE_SIZE, 0)
    digest = hashlib.sha256(body[:start])
    piece: bytes | memoryview = packet.envelope() + body[:start]
    while start < len(body):
        yield piece, False
        piece = body[start : start + size]
        digest.update(piece)
        start += size
    yield b"".join((piece, digest.digest()[:DIGEST_SIZE])), True


class Transit:
    """Counts the bytes of one peer's unfinished packets, over all of its links, and refuses more than `most`."""

    def __init__(self, most: int) -> None:
        self._most, self._held = most, 0
        self._lock = threading.Lock()

    def add(self, size: int) -> None:
        """Count bytes that arrived, or, if negative, that are no longer held."""
        with self._lock:
            if size > 0 and self._held + size > self._most:
                raise LimitReached(f"a peer has more than {self._most >> 20} MB of unfinished messages", public=True)
            self._held += size


LEAST_PIECE = 1024  # bytes of every piece but the last: smaller ones would take more memory than they carry


def from_chunks(
    chunks: Iterable[tuple[memoryview, bool]], most: int, transit: Transit | None = None
) -> Generator[Packet]:
    """Join pieces into packets. A packet of more than `most` bytes is refused before it is stored.

    A packet counts as in transit until the next one is asked for.
    """
    transit = transit or Transit(2 * most)
    pieces: list[memoryview] = []
    held, digest = 0, hashlib.sha256()
    kind, session, number = Kind.REQUEST, b"", 0
    try:
        for data, last in chunks:
            piece = data
            if not last and len(piece) < LEAST_PIECE:
                raise MalformedMessage("received a packet in pieces that are too small")
            if held + len(piece) > most:
                raise OversizedMessage(f"received a message of more than {most >> 20} MB", public=True)
            transit.add(len(piece))
            held += len(piece)
            if not pieces:
                kind, session, number = read_envelope(piece)
                piece = piece[ENVELOPE_SIZE:]
            if not last:
                digest.update(piece)
                pieces.append(piece)
                continue
            if len(piece) < DIGEST_SIZE:
                raise MalformedMessage("a packet ends before its digest")
            pieces.append(piece[:-DIGEST_SIZE])
            digest.update(pieces[-1])
            found = digest.digest()[:DIGEST_SIZE]
            if found != bytes(piece[-DIGEST_SIZE:]):
                raise DamagedPacket("a packet's content does not match its digest")
            yield Packet(kind, session, number, _joined(pieces), found)
            transit.add(-held)
            held, digest = 0, hashlib.sha256()
    finally:  # a broken upload is freed at once, even while the error that ended it is still in use
        transit.add(-held)
        pieces.clear()


def _joined(pieces: list[memoryview]) -> bytes:
    """The whole body of a packet. Its pieces are freed before it is handled."""
    body = b"".join(pieces)
    pieces.clear()
    return body


# --- the driving party ---------------------------------------------------------------------------------------------


NO_SESSION = bytes(16)  # in a failure: the request could not be read, so its session is unknown
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0  # seconds between attempts to reach a peer; each pause doubles


class Clock(Protocol):
    """The time source, passed in so that tests need not wait."""

    def monotonic(self) -> float: ...
    def sleep(self, seconds: float, /) -> None: ...


Waiting = Callable[[PartyName, str], None]  # called with the peer that the caller waits for, and the reason


class Together:
    """Requests in one packet, and their answers."""

    def __init__(self) -> None:
        self._frames: list[bytes] = []
        self._count = 0
        self._answers: dict[int, Message] = {}
        self.wait: Callable[[], Sequence[Message]] | None = None  # for the packet's answer, until it was read

    def add(self, frame: bytes) -> Pending:
        self._frames.append(frame)
        self._count += 1
        return partial(self._answer, self._count - 1)

    def body(self) -> bytes:
        """The body of the packet. The frames are not kept."""
        frames, self._frames = self._frames, []
        return join_frames(frames)

    def _answer(self, number: int) -> Message:
        if self.wait is not None:
            found = self.wait()
            if len(found) != self._count:
                raise UnexpectedMessage(f"{self._count} requests were sent together and {len(found)} answered")
            self._answers, self.wait = dict(enumerate(found)), None
        return self._answers.pop(number)


class Caller:
    """The driving party's channel to one peer within one session."""

    def __init__(
        self,
        peer: PartyName,
        open_link: Callable[[float], Link],
        session: bytes,
        catalogue: Catalogue,
        transcript: Transcript,
        deadline: float,
        clock: Clock = time,
        waiting: Waiting | None = None,
        first_number: int = 1,
        idle_timeout: float | None = None,
    ) -> None:
        """Parameters that need explanation:

        `open_link(seconds)` opens a link within that many seconds. `deadline` bounds, in seconds, how long a request
        waits for a peer that is unreachable; `idle_timeout`, for a peer that is connected but does not answer.
        """
        self.peer = peer
        self._open_link = open_link
        self._session = session
        self._catalogue = catalogue
        self._transcript = transcript
        self._deadline = deadline
        self._clock = clock
        self._waiting = waiting
        self._number = first_number - 1
        self._held = Together()
        self._link: Link | None = None
        self._idle_timeout = None if idle_timeout is None else IdleTimeout(idle_timeout, self._hang_up)

    def send(self, message: Message) -> Pending:
        pending, together, self._held = self.hold(message), self._held, Together()
        self._number += 1
        packet = Packet(Kind.REQUEST, self._session, self._number, together.body())
        sent = self._try_send(packet)
        together.wait = lambda: self._wait(packet, sent)
        return pending

    def hold(self, message: Message) -> Pending:
        """Send a message in one packet with the next one."""
        frame = encode(message)
        self._transcript.record("sent", self.peer, message, len(frame), frame)
        return self._held.add(frame)

    def record_in(self, transcript: Transcript) -> None:
        """Record messages in another transcript from now on."""
        self._transcript = transcript

    @contextlib.contextmanager
    def within(self, seconds: float) -> Generator[None]:
        """Give up sooner, on a peer that is unreachable and on one that does not answer."""
        deadline, self._deadline = self._deadline, seconds
        idle = None if self._idle_timeout is None else self._idle_timeout.seconds
        try:
            if self._idle_timeout is not None:
                self._idle_timeout.seconds = seconds
            yield
        finally:
            self._deadline = deadline
            if self._idle_timeout is not None and idle is not None:
                self._idle_timeout.seconds = idle
                self._idle_timeout.close()  # its timer would fire too early

    @property
    def connected(self) -> bool:
        """Whether the peer was connected at the last request."""
        return self._link is not None

    def close(self) -> None:
        if self._idle_timeout is not None:
            self._idle_timeout.close()
        if self._link is not None:
            self._link.close()
            self._link = None

    def _hang_up(self) -> None:
        """Close the link for the thread that waits on it; that thread then cleans up."""
        if (link := self._link) is not None:
            link.close()

    def _waits(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self._idle_timeout is None else self._idle_timeout

    def _receive(self, link: Link) -> Packet | None:
        with self._waits():
            return link.receive()

    def _try_send(self, packet: Packet) -> bool:
        if self._link is None:
            return False
        try:
            with self._waits():
                self._link.send(packet)
        except PeerUnreachable:
            self.close()
            self._check_idle("read the request")
            return False
        return True

    def _check_idle(self, what: str) -> None:
        """Raise if the last wait took too long: another connection to the same peer would not help."""
        if self._idle_timeout is not None and self._idle_timeout.over:
            raise PeerUnreachable(
                f"{self.peer} is connected and has not {what} within {self._idle_timeout.seconds:g} s",
                "raise request_seconds under [limits] if its work takes longer, and continue with --resume",
            )

    def _wait(self, packet: Packet, sent: bool) -> Sequence[Message]:
        pause, why = FIRST_PAUSE, "the connection is being made"
        until = self._clock.monotonic() + self._deadline  # from now: the caller may have waited for another peer first
        latest = until + (0.0 if self._idle_timeout is None else self._idle_timeout.seconds)
        while True:
            if sent and self._link is not None:
                since = self._clock.monotonic()
                answer, why = self._next_answer(self._link, packet)
                if answer is not None:
                    try:
                        return self._read(packet, answer)  # also if the peer itself misses another party
                    except DamagedPacket as error:
                        why = error.what
                self.close()
                self._check_idle("answered")
                # While the peer was connected, nobody waited for it to come back.
                until = min(until + self._clock.monotonic() - since, latest)
                # Dialling does not fail, the first use does: an unreachable peer is detected here.
                pause = self._pause(pause, why, until)
            left = until - self._clock.monotonic()
            if left <= 0:
                raise PeerUnreachable(
                    f"{self.peer} did not answer within {self._deadline:g} s ({why})",
                    public=f"{self.peer} did not answer",  # `why` may contain addresses
                )
            sent = False
            try:
                self._link = self._open_link(left)
            except PeerUnreachable as error:
                why = error.what
            else:
                sent = self._try_send(packet)
            if not sent:
                pause = self._pause(pause, why, until)

    def _next_answer(self, link: Link, packet: Packet) -> tuple[Packet | None, str]:
        """The answer to a request, or None and why the link ended before."""
        try:
            answer = self._receive(link)
            while answer is not None and _is_of_earlier(answer, packet):
                answer = self._receive(link)
        except (PeerUnreachable, DamagedPacket) as error:
            return None, error.what
        return answer, "the connection was closed"

    def _pause(self, pause: float, why: str, until: float) -> float:
        """Report which peer is awaited, wait, and return the next pause."""
        if self._waiting is not None:
            self._waiting(self.peer, why)
        self._clock.sleep(min(pause, max(until - self._clock.monotonic(), 0.0)))
        return min(2 * pause, LONGEST_PAUSE)

    def _read(self, request: Packet, answer: Packet) -> Sequence[Message]:
        failed = answer.kind is Kind.FAILURE
        unread = failed and answer.session == NO_SESSION
        if not unread and (answer.session != request.session or answer.number != request.number):
            raise UnexpectedMessage(f"{self.peer} answered a different request")
        if failed:
            raise failure_from(self.peer, answer.body)
        if answer.kind is not Kind.ANSWER:
            raise UnexpectedMessage(f"{self.peer} sent a request where an answer was expected")
        found = decode_all(answer.body, self._catalogue)
        for message, frame in found:
            self._transcript.record("received", self.peer, message, len(frame), frame)
        return [message for message, _ in found]


def _is_of_earlier(answer: Packet, request: Packet) -> bool:
    """Whether it answers a request that is no longer awaited because another party's failure ended the round."""
    return answer.session == request.session and answer.number < request.number


def failure_body(error: VeilBoostError) -> bytes:
    """The public form of an error. Errors are sent to peers only through this function and `failure_text`."""
    return "\n".join((error.code, *error.for_peer())).encode()


def failure_text(error: VeilBoostError) -> str:
    """The same in one line, for a peer that is refused before it can send a packet."""
    return "; ".join(filter(None, (f"{error.code}: {error.for_peer()[0]}", error.for_peer()[1])))


def failure_from(peer: PartyName, body: bytes) -> VeilBoostError:
    """The error that a peer sent: the same class if it is a wire error, `PeerRefused` otherwise."""
    lines = body.decode("utf-8", "replace").split("\n", 2)
    code, what, remedy = (printable(" ".join(line.split())[:MOST_TEXT]) for line in (*lines, "", "")[:3])
    known = {cls.code: cls for cls in errors.coded_errors()}.get(code)
    if known is not None and issubclass(known, WireError):
        return known(f"{peer}: {what}", remedy or None)
    return PeerRefused(f"{peer} refused ({code}: {what})", remedy or None)


def answers(link: Link, handle: Callable[[Packet], Packet]) -> Iterator[Packet]:
    """Answer the packets of a link until it closes. Ends and never raises, whatever a peer sends."""
    while True:
        try:
            packet = link.receive()
        except PeerUnreachable:
            return
        except WireError as error:  # not a valid packet: report why, then end the stream, whose position is lost
            yield Packet(Kind.FAILURE, NO_SESSION, 0, failure_body(error))
            return
        if packet is None:
            return
        yield handle(packet)


def answer_requests(link: Link, handle: Callable[[Packet], Packet]) -> None:
    """Answer requests over a link that this party opened."""
    with contextlib.suppress(PeerUnreachable):
        for packet in answers(link, handle):
            link.send(packet)
    link.finish()


# --- limits how long a connected peer may take to answer; keepalive detects peers that are gone --------------------


class IdleTimeout:
    """Calls `give_up` from a separate thread when a wait, a `with` block, takes longer than `seconds`."""

    def __init__(self, seconds: float, give_up: Callable[[], None]) -> None:
        self.seconds, self.over = seconds, False
        self._give_up = give_up
        self._since: float | None = None
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self._since, self.over = time.monotonic(), False  # a timer that fired during an earlier wait does not count
            if self._timer is None:
                self._look_in(self.seconds)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._since = None

    def close(self) -> None:
        """Stop the timer and its thread. A later wait starts a new one."""
        with self._lock:
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            if timer.is_alive():  # not if an interrupt came while it was being started
                timer.join()

    def _look_in(self, seconds: float) -> None:
        # One timer serves many waits: it restarts when it fires too early, and stops when nothing waits.
        self._timer = threading.Timer(seconds, self._look)
        self._timer.daemon = True
        self._timer.start()

    def _look(self) -> None:
        with self._lock:
            closed, self._timer = self._timer is None, None
            if closed or self._since is None:
                return
            left = self._since + self.seconds - time.monotonic()
            if left > 0:
                self._look_in(left)
                return
            self.over = True
        self._give_up()
