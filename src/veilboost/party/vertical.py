"""A vertical job at its active party, which drives it: rows are aligned, then trees are trained with checkpoints."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import cast

import numpy as np

from veilboost import __version__, logs
from veilboost.align.api import alignment_named
from veilboost.boost.booster import Progress
from veilboost.crypto.csprng import Csprng, JobRandomness
from veilboost.data.table import PartyTable, drawn_places, drawn_rows
from veilboost.durable import keeping
from veilboost.engine.api import lasting_engine
from veilboost.engine.shards import ShardedArray
from veilboost.engine.tables import table_digest, taken
from veilboost.errors import (
    AgainstPolicy,
    DamagedState,
    MissingLabel,
    StaleSession,
    VeilBoostError,
)
from veilboost.model.continued import check_continues
from veilboost.model.share import Skeleton, SplitRecords, TrainingOutcome
from veilboost.party.batches import (
    SALT_BYTES,
    drive_alignment,
    kept_rows,
    known_rows,
)
from veilboost.party.booking import Booking, training_request, with_own_delta
from veilboost.party.checkpoints import StoredCheckpoint, agreed, differ, has
from veilboost.party.continuing import EarlierRun
from veilboost.party.coordinator import Coordinator, Watch
from veilboost.party.job import Job
from veilboost.party.line import measured_line
from veilboost.party.messages import (
    Accepted,
    Checked,
    Checkpoint,
    CheckpointStored,
    Finish,
    Propose,
)
from veilboost.party.policy import TrainRequest
from veilboost.party.precompute import PREPARED, prepared_randomness
from veilboost.party.runs import RunFolder
from veilboost.party.settings import PartySettings, open_table, training_table
from veilboost.party.training import Resumed, TrainingJob, make_share, train_active
from veilboost.protocols.constraints import constrained
from veilboost.protocols.validation import resolve
from veilboost.types import BoolArray, Column, PartyName
from veilboost.wire.channel import Peers, Pending
from veilboost.wire.message import Done
from veilboost.wire.rpc import Caller
from veilboost.wire.transcript import Network

_LOG = logs.EventLogger(__name__)


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
        try:
            self._booking = Booking.of_run(settings, job.name, resume=True)
        except DamagedState:  # the job can begin anew
            self._booking = Booking(settings, job.name)
        if settings.name != job.driver:
            raise MissingLabel(f"{settings.name} is not the active party of {job.name!r}", f"{job.driver} starts it")
        self._table: PartyTable | None = None
        self._earlier: EarlierRun | None = None
        self._own_training = job.training  # with the constraints of this party's columns, which no other party sees
        super().__init__(settings, job, watch)

    @property
    def others(self) -> tuple[PartyName, ...]:
        return who_answers(self.job)

    def _ask_policy(self) -> None:
        rows = None if self._table is None else known_rows(self.settings, self.job, self._table)
        _own_policy(self.settings, self.job, self._booking.consider, rows)

    def _read(self) -> int:
        self.watch.stage("reading the table")
        if self.settings.data is None:
            raise MissingLabel(f"{self.settings.name} has no [data] section")
        name = self.settings.name
        self._table = constrained({name: open_table(self.settings)}, self._own_training)[name]
        return self._table.rows

    def _settle(self) -> None:
        table = cast(PartyTable, self._table)
        earlier = self._earlier = EarlierRun.of(self.settings, self.job)
        job = resolve(
            self.spec,
            self.job.training,
            table,
            engine=self.settings.engine,
            classes=self._classes,
            started=earlier is not None,
        )
        self.job = replace(self.job, training=job.config)
        if earlier is not None:
            owners = self.job.owners
            check_continues(earlier.skeleton, self.spec.name, job.config.objective, job.classes, owners, job.config)
            earlier.margins()

    def _reserve(self, resume: bool) -> None:
        self._booking = Booking.of_run(self.settings, self.job.name, resume)
        _own_policy(self.settings, self.job, self._booking.reserve)  # before an earlier run is replaced

    def _match(
        self, callers: Mapping[PartyName, Caller], answers: Mapping[PartyName, Checked], ready: bool
    ) -> dict[PartyName, VeilBoostError | None]:
        """Compare tables that are aligned already, by the messages of training. PSI runs only in training."""
        found: dict[PartyName, VeilBoostError | None] = {}
        if alignment_named(self.job.alignment).finds_by_id:
            return found
        table = cast(PartyTable, self._table)
        for name in (name for name in answers if name in self.job.owners):
            peer, accepted = {name: callers[name]}, {name: Accepted(__version__, False, answers[name].batches)}
            try:
                if ready:
                    salt = Csprng().bytes(SALT_BYTES)
                    found[name] = None
                    list(drive_alignment(self.settings, self.job, table, peer, accepted, salt))
            except VeilBoostError as error:
                found[name] = error
            with contextlib.suppress(VeilBoostError):
                Peers(peer).ask({name: Finish(completed=False)}, Done)
        return found

    @property
    def _key(self) -> bytes:
        return self._booking.randomness.key

    def _end_run(self, run: RunFolder | None) -> None:
        self._booking.close(run)

    def _train(self, run: RunFolder, callers: Mapping[PartyName, Caller], resume: bool) -> TrainingOutcome:
        self.watch.stage("asking the parties")
        proposal = Propose(self.job.text(), dry_run=False, resume=resume)
        accepted = self._propose(callers, proposal, Accepted)
        trainers = self._trainers(callers)
        if run.status.get("closing") and resume:  # all trees are there: other parties may have finished already
            kept = run.checkpoints.kept()
            return TrainingOutcome(run.load_share(), kept[0].history if kept else [], metric=run.status.get("metric"))
        resumed, earlier = None, self._earlier
        if earlier is not None and not resume:
            earlier.check_digests({name: accepted[name] for name in trainers.names})
        if resume:
            told = {name: accepted[name] for name in trainers.names}
            resumed = _resumed(agreed(self.job.driver, run.checkpoints.kept(), told))
            run.save_key(self._key)
        else:
            self._begin_run(run)
            run.note(earlier_trees=0 if earlier is None else earlier.trees)
        table = cast(PartyTable, self._table)
        if not resume or run.batches is None or not all(accepted[name].aligned for name in trainers.names):
            salt = self._booking.randomness.for_request("salt of batches").bytes(SALT_BYTES)
            run.note(state="aligning")
            run.save_alignment(
                drive_alignment(self.settings, self.job, table, callers, accepted, salt, run, self.watch.stage)
            )
        engine = lasting_engine(self.settings.engine, self.settings.workers)
        aligned = taken(engine, table, kept_rows(run, table.rows), run.rows)
        table = self._table = training_table(self.settings, aligned)  # other rows are released
        if earlier is not None:
            table = earlier.settle(table)
        _own_policy(self.settings, self.job, self._booking.reserve, table.rows)
        run.settle_table(self._booking.job, table_digest(table, self._booking.table_key))
        run.save_table_key(self._booking.table_key)
        run.note(state="training", rows=table.rows)
        self.watch.total(self.spec.completed(self.job.training, table.rows).n_estimators)
        self.watch.stage("training")
        if self.spec.by_line(self.job.training):
            trainers.network = _line(run, trainers)
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
            _Keeper(self.job, self._booking.randomness, run, trainers, table.columns, resumed),
            lambda result: self._after_round(run, result),
            randomness,
            self._booking,
            engine,
            start=None if earlier is None else earlier.margins(),
        )
        return outcome if earlier is None else replace(outcome, share=earlier.with_new(outcome.share))

    def _trainers(self, callers: Mapping[PartyName, Caller]) -> Peers:
        return Peers({name: callers[name] for name in self.job.owners if name != self.job.driver})

    def _finish(self, callers: Mapping[PartyName, Caller], outcome: TrainingOutcome) -> None:
        skeleton, trainers = cast(Skeleton, outcome.share.skeleton), self._trainers(callers)
        trees = len(skeleton.trees)
        trainers.ask({name: Finish(True, trees, skeleton.digest(name)) for name in trainers.names}, Done)

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
    try:
        ask(training_request(settings, job, job.training, dict.fromkeys(job.others), rows))
    except AgainstPolicy as error:
        raise AgainstPolicy(f"{error.what} (this is the policy of {settings.name} itself)", error.remedy) from None


def _resumed(found: StoredCheckpoint | None) -> Resumed:
    if found is None:
        return Resumed(None, SplitRecords.of({}), {})
    progress, share = found.progress()
    return Resumed(progress, share.records, found.peers)


def _line(run: RunFolder, peers: Peers) -> Network:
    """The line that the job adapts to. A resumed job keeps it: another choice would be another release."""
    kept = run.status.get("line")
    network = measured_line(peers) if kept is None else Network(**kept)
    run.note(line=asdict(network))
    return network


class _Keeper:
    """Checkpoints at all parties after every tree, and reconnection of restarted parties."""

    def __init__(
        self,
        job: Job,
        randomness: JobRandomness,
        run: RunFolder,
        peers: Peers,
        columns: Sequence[Column],
        resumed: Resumed | None,
    ) -> None:
        self._job, self._randomness, self._run, self._peers, self._columns = job, randomness, run, peers, columns
        self._resumed = resumed
        self._trees = 0 if resumed is None or resumed.progress is None else len(resumed.progress.trees)
        self.digests: Mapping[PartyName, str] = {} if resumed is None else resumed.digests
        self._stored: Mapping[PartyName, Pending] | None = None  # answers of a checkpoint that was asked for

    def resumed(self) -> Resumed | None:
        return self._resumed

    def store(self, trees: int) -> None:
        self._stored = self._peers.send(dict.fromkeys(self._peers.names, Checkpoint(trees)))

    def chose(self, what: str) -> None:
        self._run.note(layout=what)
        _LOG.info("layout_chosen", what)

    def keep(self, progress: Progress, records: SplitRecords) -> None:
        job, trees = self._job, len(progress.trees)
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
        if self._stored is None:
            self.store(trees)
        pending, self._stored = self._stored or {}, None
        stored = self._peers.collect(pending, CheckpointStored)
        digests = {name: answer.digest for name, answer in stored.items()}
        share = make_share(job.driver, self._columns, records, skeleton)
        with keeping("a checkpoint cannot be written"):
            self._run.checkpoints.save(share, trees, self._randomness, digests, progress)
        self._trees, self.digests = trees, digests

    def bring_back(self, error: VeilBoostError, begin: Callable[[], object]) -> bool:
        """A restarted party does not know the session: propose the job to it again."""
        if not isinstance(error, StaleSession):
            return False
        proposal = Propose(self._job.text(), dry_run=False, resume=True)
        accepted: dict[PartyName, Accepted] = {}
        for name in self._peers.names:
            try:
                accepted |= self._peers.ask({name: proposal}, Accepted)
            except StaleSession:
                return False
        if self._trees and not all(has(each, self._trees, self.digests[name]) for name, each in accepted.items()):
            raise differ(self._job.driver, self._trees, accepted)
        begin()
        return True
