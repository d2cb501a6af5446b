"""The driver of a job: proposes it, trains with the other parties, and closes it; vertical and horizontal."""

from __future__ import annotations

import contextlib
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from veilboost import logs
from veilboost.boost.booster import RoundResult
from veilboost.crypto.csprng import Csprng
from veilboost.durable import Locks, keeping
from veilboost.errors import ApprovalPending, JobCancelled, JobExists, NothingToResume, VeilBoostError
from veilboost.model.share import TrainingOutcome
from veilboost.party.checks import Checks, Finding, Readiness, check_space, expiry, finding, of_answer, of_error
from veilboost.party.hub import LinkHub, caller_to
from veilboost.party.job import Job, read_job, without_addresses
from veilboost.party.messages import CONTROL_MESSAGES, Checked, Finish, Propose
from veilboost.party.runs import JOB, RunFolder
from veilboost.party.settings import PartySettings
from veilboost.protocols.horizontal.roles import LOST
from veilboost.types import PartyName
from veilboost.wire.channel import Peers, Pending
from veilboost.wire.message import Catalogue, Done, Message
from veilboost.wire.rpc import Caller
from veilboost.wire.transcript import Transcript

RELEASE_SECONDS = 2.0  # how long to try to notify a party that a job stops
_LOG = logs.EventLogger(__name__)
Answer = TypeVar("Answer", bound=Message)
FIRST_LOOK, LONGEST_LOOK = 1.0, 15.0  # seconds between two looks at a pending approval; each pause doubles
LAST_NUMBER = 1 << 62  # number of a request after all others of its session


@dataclass(frozen=True)
class Watch:
    """Progress callbacks: a stage begins, a round ends, the driver waits for a peer, the number of rounds is known."""

    stage: Callable[[str], None] = lambda stage: None
    round: Callable[[RoundResult], None] = lambda result: None
    waiting: Callable[[PartyName, str], None] | None = None
    total: Callable[[int], None] = lambda rounds: None


class Connections:
    """The driver's connections to the other parties of a job."""

    def __init__(self, settings: PartySettings, job: Job) -> None:
        self.settings = settings
        self.job = job
        self._hub = LinkHub(settings)
        dialled = any(job.parties[name].connect == "in" for name in self.others)
        self._server = self._hub.serve(lambda link, peer: self._hub.offer(peer.party, link)) if dialled else None
        self._callers: list[Caller] = []

    @property
    def others(self) -> tuple[PartyName, ...]:
        """The parties that the driver sends requests to."""
        return self.job.others

    def caller(self, name: PartyName, catalogue: Catalogue, **options: Any) -> Caller:
        """A channel to one party; `options` as in `caller_to`."""
        party = self.job.parties[name]
        address = party.address if party.connect == "out" else None
        caller = caller_to(
            name, self.settings, lambda name, left: self._hub.open(name, address, left), catalogue, **options
        )
        self._callers.append(caller)
        return caller

    def release(self, names: Iterable[PartyName], session: bytes, transcript: Transcript | None = None) -> None:
        """Tell parties that a job stops for now, as far as they can be reached."""
        helpers = self.job.helpers.values()  # first, because others may wait for their answers
        for name in sorted(names, key=lambda name: name not in helpers):
            caller = self.caller(
                name,
                Catalogue(CONTROL_MESSAGES),
                session=session,
                transcript=transcript,
                seconds=RELEASE_SECONDS,
                first_number=LAST_NUMBER,
            )
            with contextlib.suppress(VeilBoostError, OSError):
                Peers({name: caller}).ask({name: Finish(completed=False)}, Done)

    def close(self) -> None:
        for caller in self._callers:
            caller.close()
        self._hub.close()
        if self._server is not None:
            self._server.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Coordinator(Connections, ABC):
    """One training job at its driver. Subclasses define what a driver of their setting reads, requests and trains."""

    messages: tuple[type[Message], ...] = ()  # in addition to those of the protocol

    def __init__(self, settings: PartySettings, job: Job, watch: Watch | None = None) -> None:
        super().__init__(settings, job.shared())
        self.watch = watch or Watch()
        self.spec = job.spec
        self._classes = job.classes
        self._begun = False  # whether the run folder is this attempt's
        self.undecided: tuple[PartyName, ...] = ()  # the parties whose approval was pending at the last proposal

    # --- specific to vertical or horizontal jobs --------------------------------------------------------

    @abstractmethod
    def _ask_policy(self) -> None:
        """Ask this party's own policy about the job; also about the rows, once the table is read."""

    @abstractmethod
    def _read(self) -> int:
        """Read this party's table, if it has one, and return its number of rows."""

    @abstractmethod
    def _settle(self) -> None:
        """Resolve the parameters that depend on this party's labels."""

    @abstractmethod
    def _reserve(self, resume: bool) -> None:
        """Reserve the job's privacy budget."""

    @abstractmethod
    def _match(
        self, callers: Mapping[PartyName, Caller], answers: Mapping[PartyName, Checked], ready: bool
    ) -> dict[PartyName, VeilBoostError | None]:
        """In a dry run: whether the tables of the parties that passed their own checks fit the job; None if so.

        `ready`: this party passed, too. Raises if the job cannot start for another reason. Ends sessions that are open.
        """

    @abstractmethod
    def _train(self, run: RunFolder, callers: Mapping[PartyName, Caller], resume: bool) -> TrainingOutcome:
        """Propose the job, call `_begin_run` once all parties have accepted, and train."""

    @abstractmethod
    def _finish(self, callers: Mapping[PartyName, Caller], outcome: TrainingOutcome) -> None:
        """Tell the other parties that the job is complete. This party's share is stored by then."""

    @property
    def _key(self) -> bytes | None:
        """The key of this party in this job, if its role has one."""
        return None

    def _end_run(self, run: RunFolder | None) -> None:
        """Called when the job has ended or stopped; with the run folder if the job had begun."""

    # --- commands ---------------------------------------------------------------------------------------

    def check(self) -> Readiness:
        """Check at all parties whether training could start. Every party reads its table, as in training.

        Nothing is spent or stored. Raises only errors of this party's settings and certificate.
        """
        own, rows = Checks(self.job.name), 0

        def read() -> None:
            nonlocal rows
            rows = self._read()

        if own.passes("policy", self._ask_policy):
            if self.spec.driver in self.spec.data_roles and own.passes("table", read):
                own.passes("label", self._settle)
                own.passes("policy", self._ask_policy)
            own.passes("run", self._check_run)
            own.passes("disk", lambda: check_space(self.settings.runs, rows))
        callers: dict[PartyName, Caller] = {}
        if not any(own.errors.get(name) for name in ("policy", "table", "label")):  # else there is nothing to propose
            seconds = self.settings.limits.connect_seconds
            callers = {name: self._caller(name, seconds=seconds) for name in self.others}
        with ThreadPoolExecutor(max(1, len(callers))) as pool:  # all parties read their tables at the same time
            asked = dict(zip(callers, pool.map(self._ask, callers.values()), strict=True))
        found = {name: asked[name][0] if name in asked else {} for name in self.others}
        passed = {name: answer for name, (_, answer) in asked.items() if answer and not any(answer.codes)}
        matched: dict[PartyName, VeilBoostError | None] = {}
        ready = not any(own.errors.values())
        if not own.passes("match", lambda: matched.update(self._match(callers, passed, ready))) or matched:
            found |= {name: found[name] | {"match": finding(error)} for name, error in matched.items()}
        else:  # there was nothing to compare
            own.errors.pop("match")
        mine = {"certificate": expiry(self._hub.identity.days_left)} | own.findings
        return Readiness(self.job.name, {self.settings.name: mine, **found})

    def _ask(self, caller: Caller) -> tuple[dict[str, Finding], Checked | None]:
        """The findings of another party, and its answer."""
        sent = time.time()
        try:
            proposal = Propose(self.job.text(), dry_run=True, resume=False)
            answer = Peers({caller.peer: caller}).ask({caller.peer: proposal}, Checked)[caller.peer]
        except VeilBoostError as error:
            return of_error(error), None
        return of_answer(caller.peer, self.settings.name, answer, sent), answer

    def _check_run(self) -> None:
        """Refuse a new job if the run folder is in use, or has a finished model."""
        run, locks = RunFolder(self.settings.runs / self.job.name), Locks()
        with keeping("the run folder cannot be locked"):
            locks.take(run.lock, f"checking {self.job.name}")
        locks.release(run.lock)
        self._refuse_finished(run)

    def train(self, resume: bool = False, wait: bool = False) -> tuple[RunFolder, TrainingOutcome]:
        """Train, or continue an interrupted run of the same name. Only one process at a time does so.

        `wait`: if persons at other parties must approve the job, wait until they have decided.
        """
        with logs.bound(job=self.job.name):
            try:
                while True:
                    try:
                        return self._run_job(resume)
                    except ApprovalPending:
                        if not wait:
                            raise
                    self._wait_for_approvals()
            except BaseException as error:
                # The caller reports the error; `train` would show a warning and the same text below it.
                _LOG.info(f"job_{_state_after(error)}", logs.reason(error), error)
                raise

    def _wait_for_approvals(self) -> None:
        """Wait until no party's approval is pending. Raises if one refuses, or the job is cancelled here."""
        self.watch.stage("waiting for approval")
        pause = FIRST_LOOK
        while self.undecided:
            for name in self.undecided:
                if self.watch.waiting is not None:
                    self.watch.waiting(name, "a person there has not decided yet")
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_LOOK)
            if RunFolder(self.settings.runs / self.job.name).status.get("state") == "cancelled":
                raise JobCancelled(f"the job {self.job.name!r} was cancelled", "run train again to propose it again")
            self.undecided = tuple(name for name in self.undecided if self._is_undecided(name))

    def _is_undecided(self, name: PartyName) -> bool:
        """Propose the job in a session of its own, which ends if the party accepts."""
        session = Csprng().bytes(16)
        caller = self._caller(name, session=session)
        try:
            proposal = Propose(self.job.text(), dry_run=False, resume=False)
            Peers({name: caller}).ask({name: proposal}, Message)
        except ApprovalPending:
            return True
        finally:
            caller.close()
            self._callers.remove(caller)
        self.release([name], session)
        return False

    def _run_job(self, resume: bool) -> tuple[RunFolder, TrainingOutcome]:
        self._ask_policy()
        run, locks = RunFolder(self.settings.runs / self.job.name), Locks()
        with keeping("the run folder cannot be locked"):
            locks.take(run.lock, f"training {self.job.name}")
        try:
            check_space(self.settings.runs, self._read())
            self._settle()
            self._ask_policy()
            self._reserve(resume)
            try:
                outcome = self._train_in(run, self._open_run(run, resume), resume)
            except BaseException:
                with contextlib.suppress(VeilBoostError):  # the first error is the one to report
                    self._end_run(run if self._begun else None)
                raise
            self._end_run(run)
            return run, outcome
        finally:
            locks.release(run.lock)

    def _train_in(self, run: RunFolder, session: bytes, resume: bool) -> TrainingOutcome:
        transcript = run.transcript(self.settings.name, self.job.record, new=not resume)
        callers = {name: self._caller(name, session=session, transcript=transcript) for name in self.others}
        try:
            with keeping("the run folder cannot be written"):
                outcome = self._train(run, callers, resume)
                trees = len(outcome.share.skeleton.trees) if outcome.share.skeleton else 0
                if not run.status.get("closing"):
                    run.save_share(outcome.share)
                    # A job that stops from here on resumes by telling the other parties again.
                    reports = {name: dict(report) for name, report in outcome.reports.items()}
                    noted = {"dropped": dict(outcome.dropped), "metric": outcome.metric, "reports": reports}
                    run.note(closing=True, trees=trees, **noted)
                self._finish(callers, outcome)
                run.forget_key()
                run.note(state="finished", error=None)
            _LOG.info("job_finished", f"the job is finished, with {trees} trees", trees=trees)
            return outcome
        except BaseException as error:
            reason = str(error) if isinstance(error, VeilBoostError) else type(error).__name__
            with contextlib.suppress(VeilBoostError):  # the disk may be the cause
                run.note(state=_state_after(error), error=reason)
            connected = [name for name, caller in callers.items() if caller.connected]
            for name in connected:
                callers[name].close()  # an answer may be in transit that is no longer awaited
            self.release(connected, session, transcript)
            raise
        finally:
            with contextlib.suppress(VeilBoostError):
                transcript.close()

    def _after_round(self, run: RunFolder, result: RoundResult) -> None:
        run.add_metric(result)
        _LOG.debug("round_finished", f"round {result.number + 1} is finished", round=result.number + 1)
        self.watch.round(result)
        if run.cancelled:
            raise JobCancelled(f"the job {self.job.name!r} was cancelled after {result.number + 1} rounds")

    def _open_run(self, run: RunFolder, resume: bool) -> bytes:
        """Check that the run may begin or resume, and return the id of a new session. Earlier trees stay."""
        runs, name = self.settings.runs, self.job.name
        self._begun = resume
        if resume:
            RunFolder.open(runs, name)
            if run.status.get("state") == "finished":
                raise NothingToResume(
                    f"the run {name!r} is finished, and its model is in {run.path}",
                    "use this model; to train another one, change name in the job file and run train without --resume",
                )
            if not (run.path / JOB).exists():
                raise NothingToResume(f"the run {name!r} stopped before all parties had accepted it")
            same_classes = run.status.get("classes") == self._declared
            if not same_classes or without_addresses(read_job(run.job_text)) != without_addresses(self.job):
                raise NothingToResume(
                    f"the job {name!r} has changed since it began",
                    "restore the job file to continue; or change its name and run train without --resume, which starts "
                    "a new run at the first round",
                )
        else:
            self._refuse_finished(run)
            RunFolder.create(runs, name, again=True)
        run.claim()
        session = Csprng().bytes(16)
        about = {"party": self.settings.name, "role": self.spec.driver, "session": session.hex(), "pid": os.getpid()}
        self._about = {"state": "proposed", "since": time.time(), "error": None, **about}
        run.note(**self._about)
        logs.bind(session=session.hex()[:8])
        _LOG.info("job_resumed" if resume else "job_proposed", f"asks {', '.join(self.others)}")
        return session

    def _refuse_finished(self, run: RunFolder) -> None:
        if run.status.get("state") == "finished":
            raise JobExists(
                f"the run {self.job.name!r} is finished, and its model is in {run.path}",
                "change name in the job file to train another model; or delete this run folder at every party and "
                "run train again, which replaces the model",
            )

    def _begin_run(self, run: RunFolder) -> None:
        """All parties have accepted a new job: what an earlier attempt left is removed."""
        # The job in the form that others may read: predictions propose it again.
        run.begin(self.job.text(), self._key, **self._about, classes=self._declared)
        self._begun = True
        _LOG.info("job_begun", "all parties have accepted")

    def _propose(
        self,
        callers: Mapping[PartyName, Caller],
        proposal: Propose,
        kind: type[Answer],
        dropped: dict[PartyName, str] | None = None,
    ) -> dict[PartyName, Answer]:
        """Propose the job to all parties at once. Raises `ApprovalPending` if persons at some of them still decide.

        With `dropped`, owners of rows that cannot be reached are added to it, with the reason.
        """
        peers, waits = Peers(callers), dict[PartyName, Pending]()
        answers, undecided = dict[PartyName, Answer](), list[PartyName]()

        @contextlib.contextmanager
        def without(name: PartyName) -> Generator[None]:
            try:
                yield
            except ApprovalPending:
                undecided.append(name)
            except LOST as error:
                if dropped is None or name not in self.job.owners:
                    raise
                dropped[name] = str(error)

        for name in callers:
            with without(name):
                waits[name] = peers.request(name, proposal)
        for name, wait in waits.items():
            with without(name):
                answers |= peers.collect({name: wait}, kind)
        if undecided:
            self.undecided = tuple(undecided)
            raise ApprovalPending(
                f"the job {self.job.name!r} waits for the approval of {', '.join(undecided)}: a person decides there"
            )
        return answers

    @property
    def _declared(self) -> list[str] | None:
        return None if self._classes is None else list(self._classes)

    def _caller(self, name: PartyName, **options: Any) -> Caller:
        catalogue = Catalogue({*CONTROL_MESSAGES, *self.messages, *self.spec.messages})
        return self.caller(name, catalogue, waiting=self.watch.waiting, **options)


def _state_after(error: BaseException) -> str:
    if isinstance(error, ApprovalPending):
        return "proposed"
    return "cancelled" if isinstance(error, (JobCancelled, KeyboardInterrupt)) else "failed"
