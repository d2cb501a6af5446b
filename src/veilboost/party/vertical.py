"""A vertical job: the active party drives it; passive parties and helpers of the alignment answer.

Rows are aligned, then trees are trained with checkpoints.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, cast

import numpy as np

from veilboost import __version__, logs
from veilboost.align.api import HelperContext, alignment_named
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
    UnexpectedMessage,
    UnsupportedCombination,
    VeilBoostError,
)
from veilboost.model.continued import check_continues
from veilboost.model.share import ModelShare, Skeleton, SplitRecords, TrainingOutcome
from veilboost.party.approvals import save_approval
from veilboost.party.batches import (
    SALT_BYTES,
    HelperBatches,
    PassiveBatches,
    drive_alignment,
    kept_rows,
    requested_batches,
)
from veilboost.party.booking import Booking, training_request, with_own_delta
from veilboost.party.checkpoints import StoredCheckpoint, agreed, differ, has
from veilboost.party.checks import Checks, check_space
from veilboost.party.continuing import EarlierRun
from veilboost.party.coordinator import Coordinator, Watch
from veilboost.party.identity import PeerIdentity
from veilboost.party.job import Job
from veilboost.party.line import measured_line
from veilboost.party.messages import (
    CONTROL_MESSAGES,
    PROBE_BYTES,
    Accepted,
    BeginAlignment,
    Checked,
    Checkpoint,
    CheckpointStored,
    EndAlignment,
    Finish,
    NextBatch,
    Probe,
    Propose,
)
from veilboost.party.policy import TrainRequest
from veilboost.party.precompute import PREPARED, prepared_randomness, take_key
from veilboost.party.runs import RunFolder
from veilboost.party.session import TrainingSession
from veilboost.party.settings import PartySettings, load_allowed, open_table, training_table
from veilboost.party.training import PassiveSession, Resumed, TrainingJob, make_share, train_active
from veilboost.protocols.constraints import check_constraints, constrained
from veilboost.protocols.validation import resolve
from veilboost.protocols.vertical.messages import ResumeTraining
from veilboost.types import BoolArray, Column, PartyName
from veilboost.wire.channel import Peers, Pending
from veilboost.wire.message import Catalogue, Done, Message
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
        rows = None if self._table is None else _known_rows(self.settings, self.job, self._table)
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


def _known_rows(settings: PartySettings, job: Job, table: PartyTable) -> int | None:
    """The rows of a job before its alignment; None if PSI will find them. A table that is too small stays so."""
    found = alignment_named(job.alignment).finds_by_id and table.rows >= settings.policy.min_rows
    return None if found else table.rows


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


class VerticalSession(TrainingSession):
    """A passive party, or a helper of the alignment."""

    def _open(self) -> None:
        self._table: PartyTable | None = None  # until its common rows are selected
        self._batches: PassiveBatches | None = None
        self._helper: HelperBatches | None = None
        self._training: PassiveSession | None = None
        self._earlier: EarlierRun | None = None  # the run that the job continues
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
            if self.over and self._run is not None:
                self._run.note(state="finished", error=None)
                self._log_end("finished")
            return answer
        self._only_proposer(peer)
        if isinstance(message, Propose):
            return self._accept(peer, message)
        if self._finished and not isinstance(message, Finish):
            self._refuse_finished()
        if isinstance(message, BeginAlignment):
            return self._begin_alignment(message)
        if isinstance(message, NextBatch):
            return self._next_batch(message)
        if isinstance(message, EndAlignment):
            return self._end_alignment(peer, message)
        if isinstance(message, Probe):
            return self._probed(message)
        if isinstance(message, Checkpoint):
            return self._checkpoint(message)
        if isinstance(message, ResumeTraining):
            return self._resume(message)
        if isinstance(message, Finish):
            return self._finish(message)
        if self._training is not None:
            return self._training.side.handle(message)
        if self._batches is not None:
            return self._batches.handle(message)
        raise UnexpectedMessage(f"{message.type_name()} came too early")

    def _accept(self, peer: PeerIdentity, message: Propose) -> Message:
        earlier = self._earlier = EarlierRun.of(self.settings, self.job, peer) if self.uses_table else None
        if self._is_dry(message):
            answer = self._checked(peer)
            # Tables that are aligned already are compared next.
            self.over = any(answer.codes) or not self.uses_table or self._alignment.finds_by_id
            return answer
        if not self.uses_table:
            self._open_helper_run()
            helper = self._alignment.helpers[self.role]
            context = HelperContext(self.job.owners, take_key=lambda: take_key(self.settings, self.job))
            self._helper = HelperBatches(lambda: helper(context))
            return Accepted(__version__, aligned=False)
        batches = requested_batches(self.settings)
        if message.resume:
            run = self._reopen(peer)
        else:
            self._check_run()
            self._require_approval(peer)
            if self._run is not None:  # proposed again in the same session: other rows must not get the same noise
                self._booking.close(None)
                self._booking = Booking.of_run(self.settings, self.job.name, resume=False)
            self._decide(peer, reserve=True)
            run = self._open_run(state="proposed")
        self._new = not message.resume
        if self._new:
            told = Accepted(__version__, aligned=False, batches=batches)
            if earlier is None:
                return told
            return replace(told, trees=np.array([earlier.trees], dtype=np.int32), digests=(earlier.digest,))
        kept = run.checkpoints.kept()
        if run.batches is not None and not self._finished:
            self._start_training(run)
        trees = np.array([each.trees for each in kept], dtype=np.int32)
        return Accepted(__version__, run.batches is not None, batches, trees, tuple(each.digest for each in kept))

    def _load(self) -> PartyTable:
        if self._table is None:
            table = load_allowed(self.settings, in_place=True).without_label()
            check_constraints(self.spec, self._config, table.constraints, table.columns)
            self._table, self._width, self._rows = table, len(table.columns), table.rows
        return self._table

    def _check_columns(self, peer: PeerIdentity) -> tuple[Sequence[str], int]:
        table = self._load()
        self._decide(peer, _known_rows(self.settings, self.job, table))
        return table.names, table.rows

    def _check_table(self, peer: PeerIdentity, checks: Checks) -> dict[str, Any]:
        if not checks.passes("table", self._load):
            return {}
        rows = _known_rows(self.settings, self.job, self._load())
        checks.passes("policy", lambda: self._decide(peer, rows))
        checks.passes("run", lambda: self._check_memory(self._rows, self._width))
        return {"batches": requested_batches(self.settings)}

    def _begin_alignment(self, message: BeginAlignment) -> Done:
        if (self._run is None and not self.dry_run) or self._batches is not None:
            raise UnexpectedMessage("alignment began before the job was accepted, or twice")
        if self._run is not None:
            if self._new:  # all parties have accepted
                approval = self._use_approval()
                self._begin_run(self._run, self._booking.randomness.key)
                save_approval(self._run.path, approval)
                self._new = False
            self._run.note(state="aligning")
            self._load()
            check_space(self.settings.runs, self._rows)
        helpers = self._helpers(self.job)
        self._batches = PassiveBatches(self.settings, self.job, self._load(), helpers, message, self._run)
        self._training = None  # its rows were aligned earlier, but another party lost them
        return Done()

    def _next_batch(self, message: NextBatch) -> Done:
        if self._batches is None:
            raise UnexpectedMessage("alignment has not begun")
        positions = self._batches.next(message)
        if self._run is not None:
            self._run.save_batch(message.number - 1, positions)
        return Done()

    def _end_alignment(self, peer: PeerIdentity, message: EndAlignment) -> Done:
        if self._batches is None:
            raise UnexpectedMessage("alignment has not begun")
        positions, last = self._batches.end(message), self._batches.last
        self._decide(peer, message.rows, reserve=not self.dry_run)
        if self._run is not None:
            self._run.save_batch(last, positions)
            self._run.end_alignment(last + 1)
        self._batches = None
        if self._run is not None:
            self._start_training(self._run)
        return Done()

    def _start_training(self, run: RunFolder) -> None:
        table, engine = self._load(), lasting_engine(self.settings.engine, self.settings.workers)
        aligned = training_table(self.settings, taken(engine, table, kept_rows(run, table.rows), run.rows))
        if self._earlier is not None:
            aligned = self._earlier.settle(aligned)
        self._check_memory(aligned.rows, len(aligned.columns))
        run.settle_table(self._booking.job, table_digest(aligned, self._booking.table_key))
        run.save_table_key(self._booking.table_key)
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
        run.note(state="training")

    def _probed(self, message: Probe) -> Probe:
        if self._training is None or len(message.padding) > PROBE_BYTES:
            raise UnexpectedMessage("a probe of the line is too long, or came before training")
        return message

    def _checkpoint(self, message: Checkpoint) -> CheckpointStored:
        if self._training is None or self._run is None or message.trees != self._training.side.trees:
            raise UnexpectedMessage("there is no such checkpoint to store")
        with keeping("a checkpoint cannot be written"):
            share, randomness = self._training.share(), self._booking.randomness
            digest = self._run.checkpoints.save(share, message.trees, randomness)
            self._transcript.flush()
        self._metrics.rounds.inc()
        return CheckpointStored(digest)

    def _resume(self, message: ResumeTraining) -> Message:
        if self._training is None or self._run is None:
            raise UnexpectedMessage("there is nothing to resume yet")
        records = SplitRecords.of({})
        if message.trees:
            records = self._run.checkpoints.find(message.trees, message.digest).share().records
        answer = self._training.side.handle(message)
        self._training.side.restore(records)
        return answer

    def _finished_share(self, trees: int) -> ModelShare | None:
        earlier = self._earlier
        if self._training is not None and self._training.side.finished:
            share = self._training.share()
        else:
            # A driver that stopped when all trees were stored closes the job without training again.
            kept = self._run.checkpoints.kept() if self._run is not None else []
            new = trees - (0 if earlier is None else earlier.trees)
            if not kept or kept[0].trees < new:
                return None
            share = kept[0].share().first(new)
        return share if earlier is None else earlier.with_new(share)
