"""Sessions at a party that answers: policy checks, transcript, and cleanup, for all sessions and for training jobs."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from veilboost import __version__, logs
from veilboost.config import TrainingConfig
from veilboost.durable import Locks, keeping
from veilboost.errors import AgainstPolicy, JobExists, NothingToResume, StateDiffers, TableBusy, UnexpectedMessage
from veilboost.model.share import ModelShare
from veilboost.party.approvals import Proposal, require_approval, use_approval
from veilboost.party.booking import Booking, training_request
from veilboost.party.checks import Checks, check_space
from veilboost.party.hub import Reach, caller_to, own_identity
from veilboost.party.identity import PeerIdentity
from veilboost.party.job import Job, read_job, without_addresses
from veilboost.party.lifecycle import end, park, refuse_ended
from veilboost.party.messages import Checked, Finish, Propose
from veilboost.party.metrics import Metrics
from veilboost.party.policy import TrainRequest
from veilboost.party.proposals import Subject, job_digest, training_subject
from veilboost.party.runs import JOB, RunFolder
from veilboost.party.settings import PartySettings
from veilboost.protocols.cost import TABLE_ROW, VALUE, PlannedJob
from veilboost.protocols.memory import PROGRAM, free_memory, memory_of
from veilboost.protocols.validation import ResolvedJob, validate
from veilboost.wire.channel import Channel, Peers, Reply
from veilboost.wire.message import Catalogue, Done, Message, encode, join_frames
from veilboost.wire.rpc import Caller, Link
from veilboost.wire.transcript import Transcript

_LOG = logs.EventLogger(__name__)


class Closing(Protocol):
    """Something that a daemon keeps in memory between sessions, and closes when it stops."""

    @property
    def over(self) -> bool:
        """Whether no session can use it any more: its memory is freed."""
        ...

    def close(self) -> None: ...


class SessionContext(NamedTuple):
    """The input of a session: the owner's settings, connections, its id, the opening peer, locks, metrics.

    `loaded`: what sessions leave in memory for later ones, by its folder.
    """

    settings: PartySettings
    reach: Reach
    session: bytes
    peer: PeerIdentity
    locks: Locks
    metrics: Metrics
    loaded: dict[Path, Closing]


class Session(ABC):
    """One session at a party that answers, request by request. `proposer` is the peer that opened it."""

    catalogue: Catalogue

    def __init__(self, context: SessionContext, job: str | None = None) -> None:
        """`job`: the name of the job or model that it concerns."""
        self.settings, self._reach, self._session, peer, self._locks, self._metrics, self._loaded = context
        self.concerns: Mapping[str, str] = {} if job is None else {"job": job}
        logs.bind(**self.concerns)
        self.proposer = peer.party
        self.last_request = time.monotonic()
        self.last_link = -math.inf  # when the proposer was last seen to have a link open
        self.link: Link | None = None  # of the proposer's last request
        self.over = False
        self._transcript = Transcript(self.settings.name)
        self._callers: list[Caller] = []

    def handle(self, peer: PeerIdentity, requests: Sequence[tuple[Message, bytes]]) -> bytes:
        """Handle the requests of a packet, given with their frames, and return the frames of the answers.

        All are recorded in the transcript. If one is refused, so is the packet.
        """
        self.last_request = time.monotonic()
        answers: list[Message] = []
        for message, frame in requests:
            if self.over:
                raise UnexpectedMessage(f"{message.type_name()} came after the end of the session")
            with self._metrics.exchange(peer.party, message):
                reply = self._act(peer, message)
                answers.append(reply if isinstance(reply, Message) else reply())  # this may wait for other parties
            self._transcript.record("received", peer.party, message, len(frame), frame)
        frames = [encode(answer) for answer in answers]
        for answer, frame in zip(answers, frames, strict=True):
            self._transcript.record("sent", peer.party, answer, len(frame), frame)
        if self.over:
            self.give_up()
        return join_frames(frames)

    def silence(self) -> float:
        """Seconds since the proposer was last there: in this moment if its link is open."""
        now = time.monotonic()
        if self.link is not None and not self.link.closed:
            self.last_link = now
        return now - max(self.last_request, self.last_link)

    @property
    def cancelled(self) -> bool:
        """Whether the owner has asked to end this session."""
        return False

    @abstractmethod
    def _act(self, peer: PeerIdentity, message: Message) -> Reply: ...

    def note_error(self, reason: str) -> None:  # noqa: B027 - some have no run
        """Record why a request failed where its owner finds it: the peer receives little, and the log no data."""

    def _count_predicted(self, rows: int) -> None:
        _LOG.info("prediction_answered", f"predicted {rows} rows", rows=rows)
        self._metrics.predicted_rows.inc(rows)

    def _only_proposer(self, peer: PeerIdentity) -> None:
        if peer.party != self.proposer:
            raise UnexpectedMessage(f"{peer.party} does not drive this session")

    def _helpers(self, job: Job) -> Peers:
        """This party's own channels to the helpers of a job, by role."""
        callers = {
            role: caller_to(
                name, self.settings, self._reach, self.catalogue, session=self._session, transcript=self._transcript
            )
            for role, name in job.helpers.items()
            if name != self.settings.name
        }
        self._callers.extend(callers.values())
        return Peers(dict[str, Channel](callers))

    def give_up(self) -> None:
        """End the session: it has finished, another one replaces it, or the party stops."""
        self.over = True
        try:
            self._transcript.close()
        finally:
            for caller in self._callers:
                caller.close()


class TrainingSession(Session):
    """One training job at a party that answers. Subclasses implement vertical and horizontal jobs."""

    def __init__(self, context: SessionContext, job: Job, proposal: Propose) -> None:
        super().__init__(context, job.name)
        self._driver = context.peer
        settings, peer = context.settings, context.peer
        (_LOG.debug if proposal.dry_run else _LOG.info)(
            "job_proposed", f"a job of the protocol {job.protocol}{', as a dry run' if proposal.dry_run else ''}"
        )
        self.job = job
        self.spec = job.spec
        self.dry_run = proposal.dry_run
        self._proposal = proposal
        self._run: RunFolder | None = None
        self._rows = 0  # of the table, once it is read
        self._locked = self._new = False  # `_new`: accepted, but what an earlier attempt left is still there
        self._finished = False  # whether the run was finished in an earlier session
        self._failed = False
        self._approval: Proposal | None = None  # of this job, if the policy asks a person
        self._check_place(peer)
        self._booking = Booking.of_run(settings, job.name, proposal.resume, job.driver)
        self._config = self._checked_config()
        self._width = len(settings.data.features or ()) or 1 if settings.data else 1  # until the table is read
        self._open()
        self._decide(peer)

    @property
    def role(self) -> str:
        return self.job.role_of(self.settings.name)

    @property
    def uses_table(self) -> bool:
        return self.role in self.spec.data_roles

    def _checked_config(self) -> TrainingConfig:
        """The job's parameters, if the protocol supports them here."""
        validate(ResolvedJob(self.spec, self.job.training, self.settings.engine))
        return self.job.training

    @abstractmethod
    def _open(self) -> None:
        """Set up what the setting needs, at least `catalogue`, before the policy is asked."""

    def _check_place(self, peer: PeerIdentity) -> None:
        """Refuse a job in which this party has no role, before any data is read or sent."""
        job, me = self.job, self.settings.name
        if peer.party != job.driver:
            raise AgainstPolicy(
                f"{peer.party} proposes a job that {job.driver} would drive",
                "the driver of a job must propose it",
                public=True,
            )
        if me not in job.parties or me == job.driver:
            raise AgainstPolicy(f"{me} has no role in this job", "add it under [parties], by its own name", public=True)
        if self.uses_table and self.settings.data is None:
            raise AgainstPolicy(f"{me} has no table", "give it a helper's role, or a [data] section", public=True)

    def _decide(self, peer: PeerIdentity, rows: int | None = None, reserve: bool = False) -> None:
        """Ask the owner's policy, and again when the rows and columns are known."""
        (self._booking.reserve if reserve else self._booking.consider)(self._request(peer, rows))

    def _request(self, peer: PeerIdentity, rows: int | None) -> TrainRequest:
        others = (name for name in self.job.parties if name != self.settings.name)
        peers = {name: (peer.fingerprint or None) if name == peer.party else None for name in others}
        return training_request(self.settings, self.job, self._config, peers, rows, self._width)

    def _require_approval(self, peer: PeerIdentity) -> None:
        """Hold a new job until a person has decided, if the policy asks one. The policy has allowed the job."""
        self._approval = require_approval(
            self.settings, peer, job_digest(self.job), lambda: self._describe(peer, *self._check_columns(peer))
        )

    def _describe(self, peer: PeerIdentity, columns: Sequence[str], rows: int) -> Subject:
        return training_subject(self.settings, self.job, self._request(peer, rows), columns, rows)

    def _use_approval(self) -> Proposal | None:
        """The job begins: its approval allows no other start. Store it with the run."""
        if self._approval is not None and self._approval.used_at is None:
            self._approval = use_approval(self.settings, self._approval)
        return self._approval

    def _checked(self, peer: PeerIdentity) -> Checked:
        """Make the checks of a dry run, by the functions that training uses. Nothing is stored or spent."""
        checks, about = Checks(self.job.name), dict[str, Any]()
        checks.passes("policy", lambda: self._decide(peer))
        checks.passes("certificate", lambda: own_identity(self.settings))
        if checks.passes("run", self._check_run) and self.uses_table:
            about = self._check_table(peer, checks)
        checks.passes("disk", lambda: check_space(self.settings.runs, self._rows))
        days = 0 if checks.errors["certificate"] else own_identity(self.settings).days_left
        return checks.answer(__version__, days, **about)

    def _is_dry(self, message: Propose) -> bool:
        """Whether a proposal is a dry run. A session is either one or a job."""
        if message.dry_run != self.dry_run:
            raise UnexpectedMessage("a dry run needs a session of its own")
        return message.dry_run

    def _check_columns(self, peer: PeerIdentity) -> tuple[Sequence[str], int]:
        """Read the table, and ask the policy about it. Returns the names of its columns, and the number of its rows."""
        raise NotImplementedError

    def _check_table(self, peer: PeerIdentity, checks: Checks) -> dict[str, Any]:
        """Read the table and check what depends on it. Returns fields of the answer."""
        raise NotImplementedError

    def _check_run(self) -> None:
        """Refuse a new job if the run folder is finished, of another driver, or in use by another process."""
        self._refuse_other_driver()
        if self.uses_table:
            self._refuse_finished()
        with keeping("the run folder cannot be locked"):
            self._locks.take(self._folder.lock, f"checking {self.job.name} for {self.proposer}")
        self._locks.release(self._folder.lock)

    def _refuse_other_driver(self) -> None:
        if self._folder.exists and self._folder.status.get("active") != self.job.driver:
            raise JobExists(
                f"{self.settings.name} has a run {self.job.name!r} of another driver",
                "change name in the job file",
                public="the party already has a run with this name; change name in the job file",
            )

    def note_error(self, reason: str) -> None:
        self._failed = True
        if self._run is not None:
            self._run.note(error=reason)

    def _refuse_finished(self) -> None:
        if self._folder.status.get("state") == "finished":
            raise JobExists(
                f"{self.settings.name} has finished the run {self.job.name!r}",
                f"change name in the job file; or ask the owner of {self.settings.name} to delete the run folder "
                f"{self.job.name!r} there, which deletes that party's share of the old model, and run train again",
                public=True,
            )

    @property
    def _folder(self) -> RunFolder:
        return RunFolder(self.settings.runs / self.job.name)

    def _check_memory(self, rows: int, columns: int) -> None:
        """Refuse to train if the machine has too little memory for it, with other jobs in it."""
        free = free_memory()
        if self.settings.engine != "local" or free is None:
            return
        config, people = self._config, len(self.job.owners) if self.spec.setting == "horizontal" else 0
        planned = PlannedJob(
            rows * (people or 1),
            (columns,) if people else (1, columns),
            trees=1,
            depth=max(config.max_depth, 1),
            bins=max(config.max_bin, 2),
            participants=people,
        )
        loaded = PROGRAM + rows * (TABLE_ROW + VALUE * columns)
        needed = memory_of(self.spec.name, planned, 0.0).others - loaded
        if needed > free:
            raise TableBusy(
                f"the job needs about {needed / 1e6:.0f} MB of memory, and {free / 1e6:.0f} MB are free",
                'wait until other jobs have ended; or set engine = "disk", which needs less memory',
                public="the party has too little free memory for the job; try again when other jobs have ended",
            )

    def _open_run(self, *, new: bool = True, **noted: Any) -> RunFolder:
        """Record the job in its folder from now on: its driver, and every message. Earlier trees stay.

        `new`: messages of an earlier attempt do not belong to this one.
        """
        if not self._locked:
            with keeping("the run folder cannot be locked"):
                self._locks.take(self._folder.lock, f"the job {self.job.name} of {self.proposer}")
            self._locked = True
        run = self._run = RunFolder.create(self.settings.runs, self.job.name, again=True)
        if self.uses_table:  # a helper may serve several alignments of a job at once
            run.claim()
        self._log_accepted()
        run.note(**self._about, **noted)
        self._transcript.close()  # of the same session, if the job was proposed again after another party was lost
        self._transcript = run.transcript(self.settings.name, self.job.record, new)
        for caller in self._callers:  # to helpers, if they were made before the job was accepted
            caller.record_in(self._transcript)
        return run

    def _reopen(self, peer: PeerIdentity) -> RunFolder:
        """Record a job that resumes in its folder. Raises if it cannot resume here."""
        folder = self._folder
        self._refuse_other_driver()
        if not (folder.exists and (folder.path / JOB).exists()):
            raise NothingToResume(
                f"{self.settings.name} has no run {self.job.name!r}",
                f"run train without --resume at {self.job.driver}: the same job starts again at the first round",
                public=True,
            )
        if without_addresses(read_job(folder.job_text)) != without_addresses(self.job):
            raise StateDiffers("the job has changed since it began")
        refuse_ended(folder, self.settings)
        self._finished = folder.status.get("state") == "finished"
        if self._finished:  # the driver stopped before it noted that the job is complete
            return self._open_run(new=False)
        self._decide(peer, reserve=True)
        run = self._open_run(new=False, state="proposed")
        run.save_key(self._booking.randomness.key)
        return run

    def _open_helper_run(self) -> None:
        """A helper records the job, too. Its transcript holds all alignments of the job, also those of predictions."""
        self._refuse_other_driver()
        if self._proposal.resume:
            refuse_ended(self._folder, self.settings)
        check_space(self.settings.runs)
        self._open_run(new=False, state="training").save_job(self._proposal.job)

    def _begin_run(self, run: RunFolder, key: bytes | None, **noted: Any) -> None:
        """A new job begins: what an earlier attempt left is removed. `key`: for a job that may resume."""
        run.begin(self._proposal.job, key, **self._about, **noted)
        _LOG.info("job_begun", "all parties have accepted")

    def _log_accepted(self) -> None:
        _LOG.info("job_resumed" if self._proposal.resume else "job_accepted", f"takes part as {self.role}")

    def _log_end(self, state: str) -> None:
        (_LOG.warning if state == "failed" else _LOG.info)(f"job_{state}", f"the job has ended: {state}")

    @property
    def _about(self) -> dict[str, Any]:
        about = {"party": self.settings.name, "role": self.role, "active": self.job.driver}
        until = self._driver.not_after.timestamp()  # of its certificate
        return {**about, "active_until": until, "session": self._session.hex(), "since": time.time(), "error": None}

    @property
    def cancelled(self) -> bool:
        return self._run is not None and self._run.cancelled

    def end(self) -> None:
        """End the job for good, because the owner asked for it."""
        try:
            end(self._folder, "ended")
            self._log_stop("job_ended", "the owner ended the job")
        finally:
            self.give_up()

    def _log_stop(self, event: str, text: str) -> None:
        """Log an end that no request of a peer brought about."""
        _LOG.info(event, text, job=self.job.name, peer=self.proposer, session=self._session.hex()[:8])

    def _finish(self, message: Finish) -> Done:
        if self._finished and self._run is not None:
            if message.completed:
                self._check_splits(self._run.load_share(), message)
                self._run.forget_key()
        elif self._run is not None:
            share = self._finished_share(message.trees) if message.completed else None
            if share is not None:
                self._check_splits(share, message)
                self._run.save_share(share)
                self._run.note(state="finished", error=None, trees=message.trees)
                self._run.forget_key()
            elif message.completed and not self.uses_table:
                self._run.note(state="finished", error=None)
            else:
                self._run.note(state="failed" if message.completed or self._failed else "cancelled")
            if self.uses_table:
                self._booking.close(None if self._new else self._run)
            self._log_end(str(self._run.status.get("state")))
        self.over = True
        return Done()

    def _check_splits(self, share: ModelShare, message: Finish) -> None:
        if share.records.digest(message.trees) != message.digest:
            raise StateDiffers(
                f"the splits that {self.settings.name} stored are not those of the model of {self.job.driver}",
                "run train without --resume at the driver: training starts at the first round",
                public=True,
            )

    def _finished_share(self, trees: int) -> ModelShare | None:
        """This party's share of a model of this many trees, if training finished."""
        return None

    def give_up(self) -> None:
        """End the session. Stored data stays, and so does the spent budget."""
        try:
            if self.over or self.dry_run:
                return
            if self.uses_table:
                self._booking.close(None if self._new else self._run)
            if self._run is not None and park(self._run, self._session.hex()):
                self._log_stop("job_parked", "the session ended without its driver")
        finally:
            if self._locked:
                self._locks.release(self._folder.lock)
                self._locked = False
            super().give_up()
