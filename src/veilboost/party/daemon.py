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
from pathlib import Path
from typing import Any, TypeGuard

from veilboost import __version__, logs
from veilboost.durable import Locks, keeping
from veilboost.errors import (
    ApprovalPending,
    JobCancelled,
    JobExists,
    LimitReached,
    PeerBroken,
    PeerUnreachable,
    ReplayedRequest,
    StaleSession,
    TableBusy,
    UnexpectedMessage,
    VeilBoostError,
)
from veilboost.party.deployment_folder import end_expired
from veilboost.party.hub import LinkHub, Reach
from veilboost.party.identity import PeerIdentity
from veilboost.party.job import read_job
from veilboost.party.lifecycle import expire, park_interrupted, refuse_ended
from veilboost.party.messages import (
    OpenDeployment,
    OpenService,
    Ping,
    PrepareAlignment,
    Propose,
    ProposeDeployment,
    ProposePrediction,
    WithdrawDeployment,
)
from veilboost.party.metrics import Metrics
from veilboost.party.monitor import Monitor
from veilboost.party.retention import apply_retention
from veilboost.party.runs import RunFolder
from veilboost.party.session import Closing, Session, SessionContext, TrainingSession
from veilboost.party.settings import PartySettings
from veilboost.party.status import DAEMON_LOCK
from veilboost.protocols.spec import Setting
from veilboost.types import PartyName
from veilboost.wire.message import Catalogue, Message, decode, decode_all
from veilboost.wire.rpc import FIRST_PAUSE, LONGEST_PAUSE, Kind, Link, Packet, answer_requests, failure_body

_LOG = logs.EventLogger(__name__)
TIDY_SECONDS = 1.0  # between two looks at cancelled jobs and lost drivers
EXPIRY_SECONDS = 3600.0  # between two looks at jobs that stopped long ago, and at files that are kept no longer


# --- sessions, chosen by the type of their first message -------------------------------------------------------------


# By name, not imported: a daemon only loads what it needs, and sessions may be in packages above this one.
SESSIONS: dict[type[Message], str] = {
    Propose: "veilboost.party.daemon:training_session",
    ProposePrediction: "veilboost.party.predicting:PredictionSession",
    PrepareAlignment: "veilboost.party.precompute:KeySession",
    ProposeDeployment: "veilboost.party.deployed:DeploymentSession",
    OpenDeployment: "veilboost.party.deployed:DeploymentSession",
    WithdrawDeployment: "veilboost.party.deployed:DeploymentSession",
    OpenService: "veilboost.secure_inference.session:ServiceSession",
    Ping: "veilboost.party.ping:PingSession",
}
OPENINGS = Catalogue(tuple(SESSIONS))
TRAINING: dict[Setting, str] = {
    "vertical": "veilboost.party.vertical_session:VerticalSession",
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


def _same_job(one: TrainingSession, other: TrainingSession) -> bool:
    return (one.job.name, one.proposer) == (other.job.name, other.proposer)


def _give_up(session: Session) -> None:
    """End a session. A full disk must not keep others from ending."""
    try:
        session.give_up()
    except VeilBoostError as error:
        _LOG.warning("internal_error", logs.reason(error), error, peer=session.proposer)


class PartyHost:
    """An owner's settings, and a session for every running job."""

    def __init__(self, settings: PartySettings, reach: Reach, metrics: Metrics | None = None) -> None:
        self.settings = settings
        self.metrics = metrics or Metrics(settings)
        self._reach = reach
        self._locks = Locks()
        self._loaded: dict[Path, Closing] = {}
        self._sessions: dict[bytes, Session] = {}
        self._opening: dict[bytes, Session] = {}  # not accepted yet
        self._conversations: dict[tuple[bytes, PartyName], Conversation] = {}
        self._lock = threading.Lock()

    def handle(self, peer: PeerIdentity, packet: Packet, link: Link | None = None) -> Packet:
        """Answer a request that came over `link`. A repeated request gets the same answer."""
        with logs.bound(peer=peer.party, session=packet.session.hex()[:8]):
            return self._handle(peer, packet, link)

    def _handle(self, peer: PeerIdentity, packet: Packet, link: Link | None) -> Packet:
        try:
            if packet.kind is not Kind.REQUEST:
                raise UnexpectedMessage("an answer came where a request was expected")
            conversation = self._conversation(packet.session, peer.party)
            try:
                with conversation.lock:
                    return self._answer(peer, packet, conversation, link)
            finally:
                if conversation.answer is None:  # nothing to repeat; refusals must not fill the memory
                    with self._lock:
                        self._conversations.pop((packet.session, peer.party), None)
        except Exception as error:
            coded = error if isinstance(error, VeilBoostError) else PeerBroken(logs.reason(error))
            # The owner finds the full reason in the log; the peer receives its public form.
            opening = logs.is_bound("job") and packet.session not in self._sessions
            if not isinstance(coded, ApprovalPending):  # logged when the proposal was stored
                _LOG.warning("job_refused" if opening else "request_refused", logs.reason(coded), coded)
            self.metrics.refused(coded.code)
            return Packet(Kind.FAILURE, packet.session, packet.number, failure_body(coded))

    def _conversation(self, session: bytes, party: PartyName) -> Conversation:
        """The conversation of a peer within a session. A peer may only have so many sessions at once."""
        new = (session, party) not in self._conversations
        if new and self._open_sessions(party) >= self.settings.limits.max_sessions:
            self.tidy()
        with self._lock:
            known = self._conversations.get((session, party))
            if known is None:
                if (sessions := self._open_sessions(party)) >= self.settings.limits.max_sessions:
                    raise LimitReached(f"{party} has {sessions} sessions open here", public=True)
                known = self._conversations[session, party] = Conversation()
            return known

    def _open_sessions(self, party: PartyName) -> int:
        """How many sessions a peer is part of, or is about to open."""
        own = {key[0]: value for key, value in list(self._conversations.items()) if key[1] == party}
        return sum(value.answer is None or session in self._sessions for session, value in own.items())

    def _answer(self, peer: PeerIdentity, packet: Packet, conversation: Conversation, link: Link | None) -> Packet:
        if conversation.answer is not None and packet.number == conversation.number:
            if packet.digest != conversation.digest:
                raise ReplayedRequest("a request was repeated with different content")
            return conversation.answer
        with self._lock:  # so that `tidy` sees that this session works
            session = self._sessions.get(packet.session)
        if session is None:
            session, frame = self._open(peer, packet, link)
        else:
            if packet.number <= conversation.number:
                raise ReplayedRequest("a request came out of order")
            frame = self._frame(session, peer, packet, link)
        answer = Packet(Kind.ANSWER, packet.session, packet.number, frame)
        conversation.number, conversation.digest, conversation.answer = packet.number, packet.digest, answer
        if session.over:
            self._forget(packet.session, keep=conversation)
        return answer

    def _frame(self, session: Session, peer: PeerIdentity, packet: Packet, link: Link | None) -> bytes:
        """The answer of a session, unless its owner has cancelled it."""
        logs.bind(**session.concerns)
        if session.cancelled:
            with self._lock:
                self._pop(packet.session)
            self._end_cancelled(session)
        if peer.party == session.proposer:
            session.link = link
        try:
            return session.handle(peer, decode_all(packet.body, session.catalogue))
        except BaseException as error:
            with contextlib.suppress(VeilBoostError):  # the disk may be the cause; the log has the error
                session.note_error(str(error) if isinstance(error, VeilBoostError) else logs.reason(error))
            raise
        finally:
            session.last_request = time.monotonic()  # work does not count as silence

    def _open(self, peer: PeerIdentity, packet: Packet, link: Link | None) -> tuple[Session, bytes]:
        """Start a session with its opening message, and answer that. A refused proposal leaves nothing behind."""
        try:
            opening = decode(packet.body, OPENINGS)
        except VeilBoostError:
            raise StaleSession("the session is unknown: it has ended, or this party was restarted") from None
        context = SessionContext(
            self.settings, self._reach, packet.session, peer, self._locks, self.metrics, self._loaded
        )
        session = session_for(opening)(context, opening)
        if _trains(session):
            self.tidy()
        with self._lock:
            if isinstance(session, TrainingSession) and session.uses_table:  # a dry run must find the same
                self._check_room(session)
            self._opening[packet.session] = session
        try:
            frame = self._frame(session, peer, packet, link)
            self._enter(packet.session, session)
        except BaseException:
            _give_up(session)
            raise
        finally:
            with self._lock:
                del self._opening[packet.session]
        return session, frame

    def _check_room(self, session: TrainingSession) -> None:
        """Raise unless one more job may use the table. The caller has the lock."""
        running = [each for each in self._sessions.values() if _trains(each) and not _same_job(each, session)]
        others = [*running, *(each for each in self._opening.values() if _trains(each))]
        if any(other.job.name == session.job.name for other in others):
            raise JobExists(
                f"another job {session.job.name!r} is running",
                "change name in the job file",
                public="the party already has a run with this name; change name in the job file",
            )
        if len(others) >= self.settings.limits.max_jobs:
            names = ", ".join(f"{other.job.name} of {other.proposer}" for other in others)
            raise TableBusy(
                f"{len(others)} jobs use the table of {self.settings.name}: {names}",
                "wait until one ends, end one with veilboost jobs cancel NAME, or increase max_jobs under [limits]; a "
                f"job whose driver has crashed is parked after {self.settings.limits.wait_seconds:g} s (wait_seconds "
                "under [limits])",
                public="as many other jobs use the party's table as it allows; try again when one has ended",
            )

    def _enter(self, key: bytes, session: Session) -> None:
        """Register an accepted session. Earlier sessions of the same job end."""
        with self._lock:
            running = [(known, each) for known, each in self._sessions.items() if _trains(each)]
            same = [known for known, each in running if _trains(session) and _same_job(each, session)]
            ended = [self._pop(known) for known in same]
            self._sessions[key] = session
        for other in ended:
            _give_up(other)

    def tidy(self) -> None:
        """End the jobs that the owner has cancelled, and the sessions whose peers are gone: their jobs are parked.

        What no session can use any more is not kept in memory.
        """
        with self._lock:  # files are written later: other requests do not wait for the disk
            still = [(key, each) for key, each in self._sessions.items() if not self._works(key)]
            cancelled = [self._pop(key) for key, each in still if each.cancelled]
            idle = [self._pop(key) for key, each in still if not each.cancelled and self._is_idle(each)]
        for session in cancelled:
            try:
                self._end_cancelled(session)
            except JobCancelled:  # what its driver is told when it asks
                pass
            except VeilBoostError as error:  # the disk is full; the others must end all the same
                _LOG.warning("internal_error", logs.reason(error), error, peer=session.proposer)
        for session in idle:
            _give_up(session)
        for path in [path for path, each in list(self._loaded.items()) if each.over]:
            if (ended := self._loaded.pop(path, None)) is not None:
                ended.close()

    def _end_cancelled(self, session: Session) -> None:
        """End a job that the owner has cancelled. Raises what its driver is told."""
        if isinstance(session, TrainingSession):
            session.end()
            refuse_ended(RunFolder(self.settings.runs / session.job.name), self.settings)

    def _works(self, key: bytes) -> bool:
        """Whether a request of a session is being answered."""
        return any(value.lock.locked() for known, value in self._conversations.items() if known[0] == key)

    def _is_idle(self, session: Session) -> bool:
        """Whether the proposer is gone, or has a link open but has sent nothing for longer than any request takes."""
        limits = self.settings.limits
        longest = limits.request_seconds + limits.wait_seconds
        return session.silence() > limits.wait_seconds or time.monotonic() - session.last_request > longest

    def _pop(self, key: bytes) -> Session:
        """Forget a session and its answers. The caller has the lock."""
        self._conversations = {known: value for known, value in self._conversations.items() if known[0] != key}
        return self._sessions.pop(key)

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
            _give_up(session)
        for loaded in list(self._loaded.values()):
            loaded.close()


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
            self._locks.take(self._lock, "the daemon")
        try:
            park_interrupted(settings)
            self.monitor = Monitor(settings, metrics)
            try:
                self._server = self._hub.serve(
                    lambda link, peer: lambda packet: self.host.handle(peer, packet, link), self.monitor.ready
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
        threading.Thread(target=self._keep_tidy, daemon=True).start()
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

    def _keep_tidy(self) -> None:
        """Housekeeping until the daemon stops."""
        next_expiry = 0.0
        while not self._stopping.wait(TIDY_SECONDS):
            try:
                self.host.tidy()
                if time.monotonic() >= next_expiry:
                    next_expiry = time.monotonic() + EXPIRY_SECONDS
                    for name in expire(self.settings):
                        _LOG.info("job_expired", "the job can no longer be resumed", job=name)
                    end_expired(self.settings)
                    apply_retention(self.settings)
            except Exception as error:  # the disk may be full; the daemon goes on, and tries again
                _LOG.warning("internal_error", f"housekeeping failed: {logs.reason(error)}", error)

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

            def handle(packet: Packet, peer: PeerIdentity = peer, link: Link = link) -> Packet:
                nonlocal received
                received = True
                return self.host.handle(peer, packet, link)

            answer_requests(link, handle)
            link.close()
            pause = FIRST_PAUSE if received else min(2 * pause, LONGEST_PAUSE)
            self._stopping.wait(pause)

    def _reach(self, name: PartyName, seconds: float) -> Link:
        peer = self.settings.peers.get(name)
        if peer is None or peer.address is None:
            raise PeerUnreachable(f"{self.settings.name} has no address for {name}", "name it under [peers]")
        return self._hub.open(name, peer.address, seconds)
