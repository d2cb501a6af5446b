"""A party's daemon: which peers may connect, which jobs it takes part in, and what each request may do.

`PartyHost` has no sockets: it takes a packet and returns a packet, so the same code runs in a test and in a daemon.
Every request is answered with a packet; no message can stop the daemon.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeGuard

from veilboost import __version__, logs
from veilboost.durable import Locks, keeping
from veilboost.errors import (
    LimitReached,
    PeerBroken,
    PeerUnreachable,
    ReplayedRequest,
    StaleSession,
    TableBusy,
    UnexpectedMessage,
    VeilBoostError,
)
from veilboost.party.hub import LinkHub, Reach
from veilboost.party.identity import PeerIdentity
from veilboost.party.job import read_job
from veilboost.party.messages import OpenService, Ping, PrepareAlignment, Propose, ProposePrediction
from veilboost.party.metrics import Metrics
from veilboost.party.monitor import Monitor
from veilboost.party.session import Session, SessionContext, TrainingSession
from veilboost.party.settings import PartySettings
from veilboost.party.status import DAEMON_LOCK
from veilboost.protocols.spec import Setting
from veilboost.types import PartyName
from veilboost.wire.message import Catalogue, Message, decode
from veilboost.wire.rpc import FIRST_PAUSE, LONGEST_PAUSE, Kind, Link, Packet, answer_requests, failure_body

_LOG = logs.EventLogger(__name__)


# --- sessions, chosen by the type of their first message -------------------------------------------------------------


# By name, not imported: a daemon only loads what it needs, and sessions may be in packages above this one.
SESSIONS: dict[type[Message], str] = {
    Propose: "veilboost.party.daemon:training_session",
    ProposePrediction: "veilboost.party.predicting:PredictionSession",
    PrepareAlignment: "veilboost.party.precompute:KeySession",
    OpenService: "veilboost.secure_inference.session:ServiceSession",
    Ping: "veilboost.party.ping:PingSession",
}
OPENINGS = Catalogue(tuple(SESSIONS))
TRAINING: dict[Setting, str] = {
    "vertical": "veilboost.party.vertical:VerticalSession",
    "horizontal": "veilboost.party.horizontal:HorizontalSession",
}


def session_for(opening: Message) -> Callable[[SessionContext, Any], Session]:
    """The factory of the session that this message opens. It raises if the owner's policy forbids the proposal."""
    return _named(SESSIONS[type(opening)])


def training_session(context: SessionContext, proposal: Propose) -> TrainingSession:
    """The session of a training job, according to the protocol's setting."""
    job = read_job(proposal.job)
    return _named(TRAINING[job.spec.setting])(context, job, proposal)


def _named(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


@dataclass
class Conversation:
    """One peer within one session: its last request and the answer."""

    number: int = 0
    digest: bytes = b""
    answer: Packet | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


def _trains(session: Session) -> TypeGuard[TrainingSession]:
    """Whether the session uses the table, or is about to."""
    return isinstance(session, TrainingSession) and session.uses_table and not session.dry_run


class PartyHost:
    """An owner's settings, and a session for every running job."""

    def __init__(self, settings: PartySettings, reach: Reach, metrics: Metrics | None = None) -> None:
        self.settings = settings
        self.metrics = metrics or Metrics(settings)
        self._reach = reach
        self._locks = Locks()
        self._sessions: dict[bytes, Session] = {}
        self._conversations: dict[tuple[bytes, PartyName], Conversation] = {}
        self._lock = threading.Lock()

    def handle(self, peer: PeerIdentity, packet: Packet) -> Packet:
        """Answer a request. A repeated request gets the same answer."""
        with logs.bound(peer=peer.party, session=packet.session.hex()[:8]):
            return self._handle(peer, packet)

    def _handle(self, peer: PeerIdentity, packet: Packet) -> Packet:
        try:
            if packet.kind is not Kind.REQUEST:
                raise UnexpectedMessage("an answer came where a request was expected")
            conversation = self._conversation(packet.session, peer.party)
            try:
                with conversation.lock:
                    return self._answer(peer, packet, conversation)
            finally:
                if conversation.answer is None:  # nothing to repeat; refusals must not fill the memory
                    with self._lock:
                        self._conversations.pop((packet.session, peer.party), None)
        except Exception as error:
            coded = error if isinstance(error, VeilBoostError) else PeerBroken(logs.reason(error))
            # The owner finds the full reason in the log; the peer receives its public form.
            opening = logs.is_bound("job") and packet.session not in self._sessions
            _LOG.warning("job_refused" if opening else "request_refused", logs.reason(coded), coded)
            self.metrics.refused(coded.code)
            return Packet(Kind.FAILURE, packet.session, packet.number, failure_body(coded))

    def _conversation(self, session: bytes, party: PartyName) -> Conversation:
        """The conversation of a peer within a session. A peer may only have so many sessions at once."""
        with self._lock:
            known = self._conversations.get((session, party))
            if known is None:
                if self._open_sessions(party) >= self.settings.limits.max_sessions:
                    self._end_sessions()
                if (sessions := self._open_sessions(party)) >= self.settings.limits.max_sessions:
                    raise LimitReached(f"{party} has {sessions} sessions open here", public=True)
                known = self._conversations[session, party] = Conversation()
            return known

    def _open_sessions(self, party: PartyName) -> int:
        """How many sessions a peer is part of, or is about to open."""
        own = {key[0]: value for key, value in self._conversations.items() if key[1] == party}
        return sum(value.answer is None or session in self._sessions for session, value in own.items())

    def _answer(self, peer: PeerIdentity, packet: Packet, conversation: Conversation) -> Packet:
        if conversation.answer is not None and packet.number == conversation.number:
            if packet.digest != conversation.digest:
                raise ReplayedRequest("a request was repeated with different content")
            return conversation.answer
        session = self._sessions.get(packet.session)
        new = session is None
        if session is None:
            session = self._begin(peer, packet)
            conversation.number = packet.number - 1
        logs.bind(**session.concerns)
        if packet.number <= conversation.number:
            raise ReplayedRequest("a request came out of order")
        try:
            message = decode(packet.body, session.catalogue)
            with self.metrics.exchange(peer.party, message):
                frame = session.handle(peer, message, packet.body)
        except BaseException as error:
            with contextlib.suppress(VeilBoostError):  # the disk may be the cause; the log has the error in any case
                session.note_error(str(error) if isinstance(error, VeilBoostError) else logs.reason(error))
            if new:  # a refused proposal leaves nothing behind
                session.give_up()
            raise
        session.last_request = time.monotonic()  # work does not count as silence
        if new:
            self._enter(packet.session, session)
        answer = Packet(Kind.ANSWER, packet.session, packet.number, frame)
        conversation.number, conversation.digest, conversation.answer = packet.number, packet.digest, answer
        if session.over:
            self._forget(packet.session, keep=conversation)
        return answer

    def _begin(self, peer: PeerIdentity, packet: Packet) -> Session:
        """Start a session with its opening message. Only one job at a time may train on the table."""
        try:
            opening = decode(packet.body, OPENINGS)
        except VeilBoostError:
            raise StaleSession("the session is unknown: it has ended, or this party was restarted") from None
        context = SessionContext(self.settings, self._reach, packet.session, peer, self._locks, self.metrics)
        session = session_for(opening)(context, opening)
        if _trains(session):
            for key, other in list(self._sessions.items()):
                if not _trains(other):
                    continue
                same_job = other.job.name == session.job.name and other.proposer == session.proposer
                if not same_job and not self._is_idle(key, other):
                    raise TableBusy(
                        f"the job {other.job.name!r} uses the table of {self.settings.name}",
                        f"wait until it ends, or run veilboost jobs cancel {other.job.name} at {other.proposer}; if "
                        f"the process there has crashed, {self.settings.name} releases the table "
                        f"{self.settings.limits.wait_seconds:g} s after its last request (wait_seconds under [limits])",
                        public="another job uses the party's table; try again when it has ended. The party releases "
                        "the table of a job whose driver has crashed after its own wait_seconds",
                    )
        return session

    def _enter(self, key: bytes, session: Session) -> None:
        """Register an accepted session, which takes the table. Sessions of the same job and idle ones end."""
        with self._lock:
            self._end_sessions(training=_trains(session))
            self._sessions[key] = session

    def _end_sessions(self, training: bool = False) -> None:
        """End idle sessions, and those that train; their answers are forgotten."""
        ended = {
            key for key, each in self._sessions.items() if self._is_idle(key, each) or (training and _trains(each))
        }
        for key in ended:
            self._sessions.pop(key).give_up()
        self._conversations = {key: value for key, value in self._conversations.items() if key[0] not in ended}

    def _is_idle(self, key: bytes, session: Session) -> bool:
        """Whether the driver is gone: nothing is in work, and it sent no request for longer than any party waits."""
        working = any(value.lock.locked() for known, value in list(self._conversations.items()) if known[0] == key)
        return not working and time.monotonic() - session.last_request > self.settings.limits.wait_seconds

    def _forget(self, session: bytes, keep: Conversation) -> None:
        """Remove an ended session, except the last answer, in case its request is repeated."""
        with self._lock:
            self._sessions.pop(session, None)
            for key in [key for key, value in self._conversations.items() if key[0] == session and value is not keep]:
                del self._conversations[key]
            for key in list(self._conversations)[:-256]:
                if key[0] not in self._sessions:
                    del self._conversations[key]

    def close(self) -> None:
        for session in list(self._sessions.values()):
            session.give_up()


class Daemon:
    """A running party. Serves from its creation until `stop`."""

    def __init__(self, settings: PartySettings) -> None:
        self.settings = settings
        metrics = Metrics(settings)
        self._hub = LinkHub(settings, metrics)
        self.identity = self._hub.identity
        self.host = PartyHost(settings, self._reach, metrics)
        self._stopping = threading.Event()
        self._locks, self._lock = Locks(), settings.runs / DAEMON_LOCK
        with keeping("the runs folder cannot be locked"):
            self._locks.take(self._lock)
        try:
            self.monitor = Monitor(settings, metrics)
            try:
                self._server = self._hub.serve(
                    lambda link, peer: lambda packet: self.host.handle(peer, packet), self.monitor.ready
                )
            except BaseException:
                self.monitor.close()
                raise
        except BaseException:
            self._locks.release(self._lock)
            raise
        self.port = self._server.port
        _LOG.info(
            "party_started",
            f"{settings.name} listens on port {self.port}",
            release=__version__,
            certificate=self.identity.fingerprint[:16],
        )
        # `connect = "out"` in a party's own settings: this party dials the peer and answers over that link.
        for name, peer in settings.peers.items():
            if peer.connect == "out" and peer.address is not None:
                threading.Thread(target=self._dial_out, args=(name, peer.address), daemon=True).start()

    def stop(self) -> None:
        _LOG.info("party_stopped", f"{self.settings.name} stops")
        self._stopping.set()
        self.monitor.close()
        self._server.stop()
        self._hub.close()
        self.host.close()
        self._locks.release(self._lock)

    def _dial_out(self, name: PartyName, address: str) -> None:
        """Keep a link open to a peer that cannot dial this party; the peer sends requests over it."""
        pause, logged = FIRST_PAUSE, ""
        while not self._stopping.is_set():
            received = False
            try:
                link, peer = self._hub.dial(name, address, self.settings.limits.connect_seconds, answers=True)
            except VeilBoostError as error:
                if error.code != logged:
                    _LOG.warning("peer_unreachable", logs.reason(error), error, peer=name)
                    logged = error.code
                pause = min(2 * pause, LONGEST_PAUSE)
                self._stopping.wait(pause)
                continue

            logged = ""

            def handle(packet: Packet, peer: PeerIdentity = peer) -> Packet:
                nonlocal received
                received = True
                return self.host.handle(peer, packet)

            answer_requests(link, handle)
            link.close()
            pause = FIRST_PAUSE if received else min(2 * pause, LONGEST_PAUSE)
            self._stopping.wait(pause)

    def _reach(self, name: PartyName, seconds: float) -> Link:
        peer = self.settings.peers.get(name)
        if peer is None or peer.address is None:
            raise PeerUnreachable(f"{self.settings.name} has no address for {name}", "name it under [peers]")
        return self._hub.open(name, peer.address, seconds)
