"""The active party drives a job: proposes it, aligns, trains with checkpoints, and closes it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from veilboost.align.api import AlignContext
from veilboost.align.hashing import Hashing
from veilboost.align.registry import alignment_named
from veilboost.boost.booster import Progress, RoundResult
from veilboost.crypto.csprng import Csprng
from veilboost.data.table import PartyTable, drawn_places, drawn_rows
from veilboost.engine.opening import lasting_engine
from veilboost.engine.shards import ShardedArray
from veilboost.engine.taking import taken
from veilboost.errors import (
    JobCancelled,
    JobExists,
    MissingLabel,
    NothingToResume,
    StaleSession,
    VeilBoostError,
)
from veilboost.model.part import ColumnInfo, Part, Skeleton, SplitRecords
from veilboost.party.booking import Booking, planned, stated_delta, with_own_delta
from veilboost.party.commented import commented_toml
from veilboost.party.daemon import listen_for
from veilboost.party.hub import LinkHub, own_identity
from veilboost.party.job_session import read_job
from veilboost.party.lots import SALT_BYTES, DrivenLots, agreed_lots, kept_rows, lots_of
from veilboost.party.messages import CONTROL_MESSAGES, Accepted, Checkpoint, Finish, Propose
from veilboost.party.own_table import open_table
from veilboost.party.policy import TrainRequest
from veilboost.party.precompute import PREPARED, prepared_hashing, prepared_randomness
from veilboost.party.runs import RunFolder
from veilboost.party.session import TrainingJob, TrainingOutcome, train_active
from veilboost.party.settings import JobSettings, PartySettings
from veilboost.protocols.api import ProtocolSpec
from veilboost.protocols.registry import protocol_named
from veilboost.protocols.validation import resolve
from veilboost.types import BoolArray, PartyName, Role
from veilboost.wire.channel import Channel, Peers
from veilboost.wire.codec import Catalogue
from veilboost.wire.message import Done
from veilboost.wire.rpc import Caller, Waiting
from veilboost.wire.transcript import Transcript

RELEASE_SECONDS = 2.0  # how long to try to tell a party that a job stops
LAST_NUMBER = 1 << 62  # of a request that comes after all others of its session


@dataclass(frozen=True)
class Watch:
    """Who is told of progress: a stage begins, a round ends, a peer is waited for."""

    stage: Callable[[str], None] = lambda stage: None
    round: Callable[[RoundResult], None] = lambda result: None
    waiting: Callable[[PartyName, str], None] | None = None


class Connections:
    """The active party's ways to the other parties of a job."""

    def __init__(self, settings: PartySettings, job: JobSettings) -> None:
        self.settings = settings
        self.job = job
        self._hub = LinkHub(own_identity(settings), settings.limits)
        dialled = any(job.parties[name].connect == "in" for name in self.others)
        self._server = listen_for(settings, self._hub) if dialled else None
        self._callers: list[Caller] = []

    @property
    def others(self) -> list[PartyName]:
        return [name for name in self.job.parties if name != self.job.active]

    def caller(
        self,
        name: PartyName,
        session: bytes,
        catalogue: Catalogue,
        transcript: Transcript,
        seconds: float,
        waiting: Waiting | None = None,
        first_number: int = 1,
    ) -> Caller:
        """A channel to one party, whose requests are answered within so many seconds or fail."""
        party = self.job.parties[name]
        address = party.address if party.connect == "out" else None
        caller = Caller(
            name,
            lambda left: self._hub.open(name, address, left),
            session,
            catalogue,
            transcript,
            seconds,
            waiting=waiting,
            first_number=first_number,
            silence=self.settings.limits.request_seconds,
        )
        self._callers.append(caller)
        return caller

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


def who_answers(job: JobSettings) -> list[PartyName]:
    """The parties that the active one asks: those with tables, and third parties if rows are aligned with their help.

    A job may name others, for secure inference with its model.
    """
    helpers = alignment_named(job.alignment).helpers
    return [
        name
        for name, party in job.parties.items()
        if name != job.active and (party.role == "data" or party.role in helpers)
    ]


class Driver(Connections):
    """One training job at its active party."""

    def __init__(self, settings: PartySettings, job: JobSettings, watch: Watch | None = None) -> None:
        self.watch = watch or Watch()
        self.spec = protocol_named(job.protocol.name)
        job = with_own_delta(job, self.spec, settings.policy)
        self.alignment = alignment_named(job.alignment)
        _own_policy(settings, job, self.spec, Booking.of_run(settings, job.name, resume=True).consider)
        super().__init__(settings, job.shared())
        self._classes = job.classes

    @property
    def others(self) -> list[PartyName]:
        return who_answers(self.job)

    # --- what a person asks for -------------------------------------------------------------------------

    def check(self) -> dict[PartyName, str | None]:
        """Would every party take part? None if so, else its own words. Only the own table is read; nothing is spent
        or kept.

        Raises
        ------
        VeilBoostError
            This party's own labels or parameters do not fit, as `train` would say.
        """
        self._resolved()
        answers: dict[PartyName, str | None] = {}
        for name in self.others:
            caller = self._caller(name, Csprng().bytes(16), Transcript(self.settings.name), patient=False)
            try:
                Peers({name: caller}).ask({name: Propose(self.job_text(), dry_run=True, resume=False)}, Accepted)
                answers[name] = None
            except VeilBoostError as error:
                answers[name] = str(error)
        return answers

    def train(self, resume: bool = False) -> tuple[RunFolder, TrainingOutcome]:
        """Train, or go on with an interrupted run of the same name."""
        self.watch.stage("reading the table")
        table = self._resolved()
        booking = Booking.of_run(self.settings, self.job.name, resume)
        _own_policy(self.settings, self.job, self.spec, booking.reserve)  # before an earlier run is replaced
        run: RunFolder | None = None
        try:
            run, session = self._run_folder(resume)
            run.save_key(booking.randomness.key)
            return run, self._train_in(run, session, resume, booking, table)
        finally:
            booking.close(run)

    def _resolved(self) -> PartyTable:
        """Read the own table and settle what its labels decide: what is proposed from here on says it."""
        if self.settings.data is None:
            raise MissingLabel(f"{self.settings.name} has no [data] section")
        table = open_table(self.settings)
        job = resolve(self.spec, self.job.training, table, engine=self.settings.engine, classes=self._classes)
        self.job = replace(self.job, training=job.config)
        return table

    def _train_in(
        self, run: RunFolder, session: bytes, resume: bool, booking: Booking, table: PartyTable
    ) -> TrainingOutcome:
        record = "payload" if self.job.record == "payload" else "types"
        folder = None if self.job.record == "none" else run.path / "transcript"
        transcript = Transcript(self.settings.name, folder, record)
        peers = {name: self._caller(name, session, transcript) for name in self.others}
        try:
            return self._train(run, peers, resume, booking, table)
        except BaseException as error:
            state = "cancelled" if isinstance(error, (JobCancelled, KeyboardInterrupt)) else "failed"
            run.note(state=state, error=str(error) if isinstance(error, VeilBoostError) else type(error).__name__)
            self._release(peers, session, transcript)
            raise
        finally:
            transcript.close()

    def _release(self, callers: Mapping[PartyName, Caller], session: bytes, transcript: Transcript) -> None:
        """Tell the parties that are still there that the job stops for now: other jobs may use their tables."""
        catalogue = Catalogue(CONTROL_MESSAGES)
        for name, caller in callers.items():
            if caller.connected:
                caller.close()  # an answer may be on its way that nobody waits for any more
                last = self.caller(name, session, catalogue, transcript, RELEASE_SECONDS, first_number=LAST_NUMBER)
                with contextlib.suppress(VeilBoostError):
                    Peers({name: last}).ask({name: Finish(completed=False)}, Done)

    # --- parts of training ------------------------------------------------------------------------------

    def _train(
        self,
        run: RunFolder,
        callers: Mapping[PartyName, Caller],
        resume: bool,
        booking: Booking,
        table: PartyTable,
    ) -> TrainingOutcome:
        self.watch.stage("asking the parties")
        everyone = Peers(dict[PartyName, Channel](callers))
        accepted = everyone.ask(
            {name: Propose(self.job_text(), dry_run=False, resume=resume) for name in self.others}, Accepted
        )
        trainers = Peers({name: callers[name] for name in self.job.order if name != self.job.active})
        if not resume or run.lots is None or not all(accepted[name].aligned for name in trainers.names):
            lots = agreed_lots(lots_of(table), accepted)
            salt = booking.randomness.for_request("salt of lots").bytes(SALT_BYTES)
            self._align(run, table, callers, everyone, trainers, lots, salt)
        engine = lasting_engine(self.settings.engine, self.settings.workers)
        table = taken(engine, table, kept_rows(run, table.rows), run.rows)  # the others are let go
        _own_policy(self.settings, self.job, self.spec, booking.reserve, table.rows)
        run.note(state="training", rows=table.rows)
        self.watch.stage("training")
        job = TrainingJob(self.spec, self.job.training, self.job.order, classes=self._classes)
        keeper = _Keeper(self, run, trainers, table, resume)
        randomness = booking.randomness
        if (self.settings.runs / PREPARED).is_dir():
            randomness = prepared_randomness(self.settings, self.job, randomness)
        outcome = train_active(
            job,
            self.settings.name,
            table,
            trainers,
            self._held_out(table),
            self.settings.threads or os.cpu_count() or 1,
            keeper,
            lambda result: self._after_round(run, result),
            randomness,
            booking,
            engine,
        )
        trainers.ask({name: Finish(completed=True) for name in trainers.names}, Done)
        run.save_part(outcome.part)
        run.forget_key()
        run.note(state="finished", trees=len(outcome.part.skeleton.trees) if outcome.part.skeleton else 0)
        return outcome

    def _align(
        self,
        run: RunFolder,
        table: PartyTable,
        callers: Mapping[PartyName, Caller],
        everyone: Peers,
        trainers: Peers,
        lots: int,
        salt: bytes,
    ) -> None:
        run.note(state="aligning")
        helpers: dict[str, Channel] = {
            party.role: callers[name]
            for name, party in self.job.parties.items()
            if name in callers and party.role != "data"
        }
        hashing = Hashing()
        if self.alignment.hashes_ids or (self.settings.runs / PREPARED).is_dir():
            hashing = prepared_hashing(self.settings, self.job, run)
        context = AlignContext(
            self.settings.name,
            self.job.order,
            table.ids,
            Peers(helpers),
            threads=self.settings.threads or 1,
            hashing=hashing,
        )
        driven = DrivenLots(self.alignment, context, trainers, everyone, lots, salt, self.watch.stage)
        run.save_alignment(driven.rows())

    def _held_out(self, table: PartyTable) -> BoolArray | None:
        share, seed = self.job.validation, self.job.training.seed
        if share <= 0:
            return None
        if isinstance(table.ids, ShardedArray):  # aligned rows stand in an order that follows from their ids
            return drawn_places(table.rows, share, seed)
        return drawn_rows(table.ids, share, seed)

    def _after_round(self, run: RunFolder, result: RoundResult) -> None:
        run.add_metric(result)
        self.watch.round(result)
        if run.cancelled:
            raise JobCancelled(f"the job {self.job.name!r} was cancelled after {result.number + 1} rounds")

    def _run_folder(self, resume: bool) -> tuple[RunFolder, bytes]:
        runs, name = self.settings.runs, self.job.name
        if resume:
            run = RunFolder.open(runs, name)
            if run.status.get("state") == "finished":
                raise NothingToResume(f"the run {name!r} is finished")
            same_classes = run.status.get("classes") == _listed(self._classes)
            if not same_classes or _without_addresses(read_job(run.job_text)) != _without_addresses(self.job):
                raise NothingToResume(f"the job {name!r} has changed since it began", "start it under another name")
            run.clear_cancel()
        else:
            if (runs / name / "status.json").exists() and RunFolder(runs / name).status.get("state") == "finished":
                raise JobExists(f"there is a finished run {name!r} already")
            run = RunFolder.create(runs, name, replace=True)
            run.clear_cancel()
            run.save_job(self.job_text())  # as others may read it: predictions propose it again
            run.note(classes=_listed(self._classes))
        session = Csprng().bytes(16)
        about = {"party": self.settings.name, "role": "active", "session": session.hex(), "pid": os.getpid()}
        run.note(state="proposed", error=None, **about)
        return run, session

    def job_text(self) -> str:
        return commented_toml(self.job, f"The job {self.job.name}.")

    def _caller(self, name: PartyName, session: bytes, transcript: Transcript, patient: bool = True) -> Caller:
        limits = self.settings.limits
        return self.caller(
            name,
            session,
            Catalogue({*CONTROL_MESSAGES, *self.alignment.messages, *self.spec.messages}),
            transcript,
            limits.wait_seconds if patient else limits.connect_seconds,
            self.watch.waiting,
        )


def _listed(classes: tuple[str, ...] | None) -> list[str] | None:
    return None if classes is None else list(classes)


def _without_addresses(job: JobSettings) -> JobSettings:
    """A job as far as its model depends on it: parties may have moved."""
    parties = {name: replace(party, address=None, connect="in") for name, party in job.parties.items()}
    parties[job.active] = replace(job.parties[job.active], address="127.0.0.1:1")
    return replace(job, parties=parties, record="types")


def _own_policy(
    settings: PartySettings,
    job: JobSettings,
    spec: ProtocolSpec,
    ask: Callable[[TrainRequest], None],
    rows: int | None = None,
) -> None:
    """`ask` our own owner's policy about the job."""
    if settings.name != job.active:
        raise MissingLabel(f"{settings.name} is not the active party of {job.name!r}", f"{job.active} starts the job")
    data, policy = settings.data, settings.policy
    ask(
        TrainRequest(
            peers={name: None for name in job.parties if name != job.active},
            protocol=spec,
            role=Role.ACTIVE,
            table=None if data is None else data.table,
            columns=tuple((data.features or ()) if data is not None else ()),
            trees=job.training.n_estimators,
            depth=job.training.max_depth,
            min_node_rows=job.training.min_node_rows,
            rows=rows,
            epsilon=planned(spec, job.training, rows, Role.ACTIVE, policy),
            **stated_delta(spec, job.training, Role.ACTIVE, policy),
        ),
    )


class _Keeper:
    """Checkpoints at all parties after every tree, and parties that come back."""

    def __init__(self, driver: Driver, run: RunFolder, peers: Peers, table: PartyTable, resume: bool) -> None:
        self._driver = driver
        self._run = run
        self._peers = peers
        self._resume = resume
        self._columns = tuple(ColumnInfo(column.name, column.categories) for column in table.columns)

    def kept(self) -> tuple[Progress, SplitRecords] | None:
        if not self._resume:
            return None
        found = self._run.load_progress()
        return None if found is None else (found[0], found[1].records)

    def keep(self, progress: Progress, records: SplitRecords) -> None:
        job = self._driver.job
        skeleton = Skeleton(
            protocol=self._driver.spec.name,
            objective=job.training.objective,
            classes=None,
            parties=job.order,
            trees_per_round=int(progress.margin.shape[0]),
            trees=tuple(progress.trees),
            base_margin=np.zeros(int(progress.margin.shape[0])),
            config=replace(job.training),
        )
        trees = len(progress.trees)
        # Ours last: a job resumes from our checkpoint, and every other party must know all of its trees.
        self._peers.ask({name: Checkpoint(trees) for name in self._peers.names}, Done)
        self._run.save_checkpoint(Part(self._driver.settings.name, self._columns, records, skeleton), progress)

    def bring_back(self, error: VeilBoostError, begin: Callable[[], object]) -> bool:
        """A party that was started anew does not know the session: propose the job to it again."""
        if not isinstance(error, StaleSession):
            return False
        job = self._driver.job_text()
        for name in self._peers.names:
            try:
                self._peers.ask({name: Propose(job, dry_run=False, resume=True)}, Accepted)
            except StaleSession:
                return False
        begin()
        return True
