"""What a passive party and the helpers of the alignment answer in a vertical job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from veilboost import __version__
from veilboost.align.api import HelperContext, alignment_named
from veilboost.data.table import PartyTable, drawn_places
from veilboost.durable import keeping
from veilboost.engine.api import lasting_engine
from veilboost.engine.tables import table_digest, taken
from veilboost.errors import (
    UnexpectedMessage,
    UnsupportedCombination,
)
from veilboost.model.share import ModelShare, SplitRecords
from veilboost.party.approvals import save_approval
from veilboost.party.batches import (
    HelperBatches,
    PassiveBatches,
    kept_rows,
    known_rows,
    requested_batches,
)
from veilboost.party.booking import Booking
from veilboost.party.checks import Checks, check_space
from veilboost.party.continuing import EarlierRun
from veilboost.party.identity import PeerIdentity
from veilboost.party.messages import (
    CONTROL_MESSAGES,
    PROBE_BYTES,
    Accepted,
    BeginAlignment,
    Checkpoint,
    CheckpointStored,
    EndAlignment,
    Finish,
    NextBatch,
    Probe,
    Propose,
)
from veilboost.party.precompute import take_key
from veilboost.party.runs import RunFolder
from veilboost.party.session import TrainingSession
from veilboost.party.settings import load_allowed, training_table
from veilboost.party.training import PassiveSession
from veilboost.protocols.constraints import check_constraints
from veilboost.protocols.vertical.messages import ResumeTraining
from veilboost.wire.message import Catalogue, Done, Message


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
                self._booking = Booking.of_run(self.settings, self.job.name, resume=False, driver=self.job.driver)
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
        self._decide(peer, known_rows(self.settings, self.job, table))
        return table.names, table.rows

    def _check_table(self, peer: PeerIdentity, checks: Checks) -> dict[str, Any]:
        if not checks.passes("table", self._load):
            return {}
        rows = known_rows(self.settings, self.job, self._load())
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
