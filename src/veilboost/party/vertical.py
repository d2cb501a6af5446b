"""A vertical job: the active party drives it; passive parties and helpers of the alignment answer.

Rows are aligned, then trees are trained with checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from veilboost import __version__
from veilboost.align.api import HelperContext, alignment_named
from veilboost.boost.booster import Progress
from veilboost.data.table import PartyTable, drawn_places, drawn_rows
from veilboost.engine.api import lasting_engine
from veilboost.engine.shards import ShardedArray
from veilboost.engine.tables import taken
from veilboost.errors import (
    JobExists,
    MissingLabel,
    NothingToResume,
    StaleSession,
    UnexpectedMessage,
    UnsupportedCombination,
    VeilBoostError,
)
from veilboost.model.share import ModelShare, Skeleton, SplitRecords, TrainingOutcome
from veilboost.party.batches import (
    SALT_BYTES,
    HelperBatches,
    PassiveBatches,
    drive_alignment,
    kept_rows,
    requested_batches,
)
from veilboost.party.booking import Booking, training_request, with_own_delta
from veilboost.party.coordinator import Coordinator, Watch
from veilboost.party.identity import PeerIdentity
from veilboost.party.job import Job
from veilboost.party.messages import (
    CONTROL_MESSAGES,
    Accepted,
    BeginAlignment,
    Checkpoint,
    EndAlignment,
    Finish,
    NextBatch,
    Propose,
)
from veilboost.party.policy import TrainRequest
from veilboost.party.precompute import PREPARED, prepared_randomness, take_key
from veilboost.party.runs import RunFolder
from veilboost.party.session import TrainingSession
from veilboost.party.settings import PartySettings, load_allowed, open_table
from veilboost.party.training import PassiveSession, TrainingJob, make_share, train_active
from veilboost.protocols.validation import resolve
from veilboost.types import BoolArray, Column, PartyName
from veilboost.wire.channel import Peers
from veilboost.wire.message import Catalogue, Done, Message
from veilboost.wire.rpc import Caller


def who_answers(job: Job) -> tuple[PartyName, ...]:
    """The parties that the active party sends requests to: those with tables, and the helpers of the alignment.

    A job may name other parties, for secure inference with its model.
    """
    helpers = alignment_named(job.alignment).helpers
    return tuple(name for name in job.others if name in job.owners or job.role_of(name) in helpers)


class VerticalCoordinator(Coordinator):
    """A job at its active party, which has the label and may have features."""

    def __init__(self, settings: PartySettings, job: Job, watch: Watch | None = None) -> None:
        self.messages = alignment_named(job.alignment).messages
        job = with_own_delta(job, job.spec, settings.policy)
        self._booking = Booking.of_run(settings, job.name, resume=True)
        _own_policy(settings, job, self._booking.consider)
        super().__init__(settings, job, watch)

    @property
    def others(self) -> tuple[PartyName, ...]:
        return who_answers(self.job)

    def _prepare(self, resume: bool | None) -> None:
        """Read this party's table and resolve the parameters that depend on its labels, before the job is proposed."""
        self.watch.stage("reading the table")
        if self.settings.data is None:
            raise MissingLabel(f"{self.settings.name} has no [data] section")
        self._table = open_table(self.settings)
        job = resolve(self.spec, self.job.training, self._table, engine=self.settings.engine, classes=self._classes)
        self.job = replace(self.job, training=job.config)
        if resume is not None:
            self._booking = Booking.of_run(self.settings, self.job.name, resume)
            _own_policy(self.settings, self.job, self._booking.reserve)  # before an earlier run is replaced

    def _begin_run(self, run: RunFolder) -> None:
        run.save_key(self._booking.randomness.key)

    def _end_run(self, run: RunFolder | None) -> None:
        self._booking.close(run)

    def _train(self, run: RunFolder, callers: Mapping[PartyName, Caller], resume: bool) -> TrainingOutcome:
        self.watch.stage("asking the parties")
        proposal = Propose(self.job.text(), dry_run=False, resume=resume)
        accepted = Peers(callers).ask(dict.fromkeys(callers, proposal), Accepted)
        trainers = Peers({name: callers[name] for name in self.job.owners if name != self.job.driver})
        table = self._table
        if not resume or run.batches is None or not all(accepted[name].aligned for name in trainers.names):
            salt = self._booking.randomness.for_request("salt of batches").bytes(SALT_BYTES)
            run.note(state="aligning")
            run.save_alignment(
                drive_alignment(self.settings, self.job, table, callers, accepted, salt, run, self.watch.stage)
            )
        engine = lasting_engine(self.settings.engine, self.settings.workers)
        table = self._table = taken(engine, table, kept_rows(run, table.rows), run.rows)  # other rows are released
        _own_policy(self.settings, self.job, self._booking.reserve, table.rows)
        run.note(state="training", rows=table.rows)
        self.watch.stage("training")
        randomness = self._booking.randomness
        if (self.settings.runs / PREPARED).is_dir():
            randomness = prepared_randomness(self.settings, self.job, randomness)
        outcome = train_active(
            TrainingJob(self.spec, self.job.training, self.job.owners, classes=self._classes),
            self.settings.name,
            table,
            trainers,
            self._held_out(table),
            self.settings.cores,
            _Keeper(self, run, trainers, table.columns, resume),
            lambda result: self._after_round(run, result),
            randomness,
            self._booking,
            engine,
        )
        trainers.ask({name: Finish(completed=True) for name in trainers.names}, Done)
        return outcome

    def _held_out(self, table: PartyTable) -> BoolArray | None:
        share, random_state = self.job.validation, self.job.training.random_state
        if share <= 0:
            return None
        if isinstance(table.ids, ShardedArray):  # the order of aligned rows is determined by their ids
            return drawn_places(table.rows, share, random_state)
        return drawn_rows(table.ids, share, random_state)


def _own_policy(
    settings: PartySettings, job: Job, ask: Callable[[TrainRequest], None], rows: int | None = None
) -> None:
    """`ask` this party's own policy about the job."""
    if settings.name != job.driver:
        raise MissingLabel(f"{settings.name} is not the active party of {job.name!r}", f"{job.driver} starts the job")
    ask(training_request(settings, job, job.training, dict.fromkeys(job.others), rows))


@dataclass(frozen=True)
class _Keeper:
    """Checkpoints at all parties after every tree, and reconnection of restarted parties."""

    driver: VerticalCoordinator
    run: RunFolder
    peers: Peers
    columns: Sequence[Column]
    resume: bool

    def kept(self) -> tuple[Progress, SplitRecords] | None:
        found = self.run.load_progress() if self.resume else None
        return None if found is None else (found[0], found[1].records)

    def keep(self, progress: Progress, records: SplitRecords) -> None:
        job = self.driver.job
        skeleton = Skeleton(
            protocol=job.protocol,
            objective=job.training.objective,
            classes=None,
            parties=job.owners,
            trees_per_round=int(progress.margin.shape[0]),
            trees=tuple(progress.trees),
            base_margin=np.zeros(int(progress.margin.shape[0])),
            config=job.training,
        )
        # This party's checkpoint comes last: a job resumes from it, and every other party must have all of its trees.
        self.peers.ask({name: Checkpoint(len(progress.trees)) for name in self.peers.names}, Done)
        self.run.save_checkpoint(make_share(job.driver, self.columns, records, skeleton), progress)

    def bring_back(self, error: VeilBoostError, begin: Callable[[], object]) -> bool:
        """A restarted party does not know the session: propose the job to it again."""
        if not isinstance(error, StaleSession):
            return False
        job = self.driver.job.text()
        for name in self.peers.names:
            try:
                self.peers.ask({name: Propose(job, dry_run=False, resume=True)}, Accepted)
            except StaleSession:
                return False
        begin()
        return True


class VerticalSession(TrainingSession):
    """A passive party, or a helper of the alignment."""

    def _open(self) -> None:
        self._table: PartyTable | None = None  # until its common rows are selected
        self._batches: PassiveBatches | None = None
        self._helper: HelperBatches | None = None
        self._training: PassiveSession | None = None
        self._alignment = alignment_named(self.job.alignment)
        if not self.uses_table and self.role not in self._alignment.helpers:
            raise UnsupportedCombination(
                f"alignment {self._alignment.name} needs no {self.role}",
                "send the job only to the parties that the alignment needs",
                public=True,
            )
        self.catalogue = Catalogue({*CONTROL_MESSAGES, *self._alignment.messages, *self.spec.messages})

    def _act(self, peer: PeerIdentity, message: Message) -> Message:
        drives = peer.party == self.proposer
        if self._helper is not None and not (drives and isinstance(message, Propose | Finish)):
            answer = self._helper.handle(peer.party, message, drives)
            self.over = self._helper.over
            return answer
        self._only_proposer(peer)
        if isinstance(message, Propose):
            return self._accept(peer, message)
        if isinstance(message, BeginAlignment):
            return self._begin_alignment(message)
        if isinstance(message, NextBatch):
            return self._next_batch(message)
        if isinstance(message, EndAlignment):
            return self._end_alignment(peer, message)
        if isinstance(message, Checkpoint):
            return self._checkpoint()
        if isinstance(message, Finish):
            return self._finish(message)
        if self._training is not None:
            return self._training.side.handle(message)
        if self._batches is not None:
            return self._batches.handle(message)
        raise UnexpectedMessage(f"{message.type_name()} came too early")

    def _accept(self, peer: PeerIdentity, message: Propose) -> Accepted:
        if message.dry_run:
            self.over = True
            return Accepted(__version__, aligned=False)
        if not self.uses_table:
            helper = self._alignment.helpers[self.role]
            context = HelperContext(self.job.owners, take_key=lambda: take_key(self.settings, self.job))
            self._helper = HelperBatches(lambda: helper(context))
            return Accepted(__version__, aligned=False)
        batches, runs = requested_batches(self.settings), self.settings.runs
        known = (runs / self.job.name / "status.json").exists()
        if known and RunFolder(runs / self.job.name).status.get("active") != self.job.driver:
            raise JobExists(
                f"{self.settings.name} has a run {self.job.name!r} with another active party",
                "change name in the job file",
                public="the party already has a run with this name; change name in the job file",
            )
        if message.resume:
            if not known:
                raise NothingToResume(
                    f"{self.settings.name} has no run {self.job.name!r}",
                    f"run train without --resume at {self.job.driver}: the same job starts again at the first round",
                    public=True,
                )
            self._decide(peer, reserve=True)
            run = RunFolder.open(runs, self.job.name)
        else:
            self._refuse_finished()
            if self._run is not None:  # proposed again in the same session: other rows must not get the same noise
                self._booking.close(None)
                self._booking = Booking.of_run(self.settings, self.job.name, resume=False)
            self._decide(peer, reserve=True)
            run = self._new_run()
        run.save_key(self._booking.randomness.key)
        self._begin_run(run, state="proposed")
        aligned = message.resume and run.batches is not None
        if aligned:
            self._start_training(run)
        return Accepted(__version__, aligned, batches)

    def _load(self) -> PartyTable:
        if self._table is None:
            self._table = load_allowed(self.settings, in_place=True).without_label()
            self._width = len(self._table.columns)
        return self._table

    def _begin_alignment(self, message: BeginAlignment) -> Done:
        if self._run is None or self._batches is not None:
            raise UnexpectedMessage("alignment began before the job was accepted, or twice")
        self._run.note(state="aligning")
        helpers = self._helpers(self.job)
        self._batches = PassiveBatches(self.settings, self.job, self._load(), helpers, message, self._run)
        self._training = None  # its rows were aligned earlier, but another party lost them
        return Done()

    def _next_batch(self, message: NextBatch) -> Done:
        if self._batches is None or self._run is None:
            raise UnexpectedMessage("alignment has not begun")
        self._run.save_batch(message.number - 1, self._batches.next(message))
        return Done()

    def _end_alignment(self, peer: PeerIdentity, message: EndAlignment) -> Done:
        if self._batches is None or self._run is None:
            raise UnexpectedMessage("alignment has not begun")
        positions = self._batches.end(message)
        self._decide(peer, message.rows, reserve=True)
        self._run.save_batch(self._batches.last, positions)
        self._run.end_alignment(self._batches.last + 1)
        self._batches = None
        self._start_training(self._run)
        return Done()

    def _start_training(self, run: RunFolder) -> None:
        table, engine = self._load(), lasting_engine(self.settings.engine, self.settings.workers)
        aligned = taken(engine, table, kept_rows(run, table.rows), run.rows)
        share, random_state = self.job.validation, self.job.training.random_state
        held_out = int(drawn_places(aligned.rows, share, random_state).sum()) if share > 0 else 0
        self._training = PassiveSession(
            self.spec,
            self.settings.name,
            aligned,
            self.settings.cores,
            self._config,
            self._booking.randomness,
            self._booking,
            engine,
            held_out,
            self.job.driver,
        )
        self._table = None
        kept = run.load_checkpoint()
        if kept is not None:
            self._training.side.restore(kept.records)
        run.note(state="training")

    def _checkpoint(self) -> Done:
        if self._training is None or self._run is None:
            raise UnexpectedMessage("there is no checkpoint to store yet")
        self._run.save_checkpoint(self._training.share())
        self._transcript.flush()
        return Done()

    def _finished_share(self) -> ModelShare | None:
        if self._training is None or not self._training.side.finished:
            return None
        return self._training.share()
