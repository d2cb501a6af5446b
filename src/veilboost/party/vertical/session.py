"""One job at a party that answers: proposed, aligned, trained, finished."""

from __future__ import annotations

from veilboost import __version__
from veilboost.align.api import HelperContext, alignment_named
from veilboost.data.table import PartyTable, drawn_places
from veilboost.engine.api import lasting_engine
from veilboost.engine.tables import taken
from veilboost.errors import (
    JobExists,
    NothingToResume,
    UnexpectedMessage,
    UnsupportedCombination,
)
from veilboost.model.part import Part
from veilboost.party.booking import Booking
from veilboost.party.identity import PeerIdentity
from veilboost.party.messages import (
    CONTROL_MESSAGES,
    Accepted,
    BeginAlignment,
    Checkpoint,
    EndAlignment,
    Finish,
    NextLot,
    Propose,
)
from veilboost.party.precompute import take_key
from veilboost.party.runs import RunFolder
from veilboost.party.session import TrainingSession
from veilboost.party.settings import open_allowed
from veilboost.party.vertical.lots import AnsweredLots, HelpedLots, kept_rows, wished_lots
from veilboost.party.vertical.training import PassiveSession
from veilboost.wire.message import Catalogue, Done, Message


class VerticalSession(TrainingSession):
    """A party with columns, or a helper of the alignment."""

    def _open(self) -> None:
        self._table: PartyTable | None = None  # until its common rows are taken
        self._lots: AnsweredLots | None = None
        self._helper: HelpedLots | None = None
        self._training: PassiveSession | None = None
        self._alignment = alignment_named(self.job.alignment)
        if not self.uses_table and self.role not in self._alignment.helpers:
            raise UnsupportedCombination(
                f"rows are aligned by {self._alignment.name}, which needs no {self.role}",
                "ask those whom the alignment needs",
                public=True,
            )
        self.catalogue = Catalogue({*CONTROL_MESSAGES, *self._alignment.messages, *self.spec.messages})

    # --- requests ---------------------------------------------------------------------------------------

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
        if isinstance(message, NextLot):
            return self._next_lot(message)
        if isinstance(message, EndAlignment):
            return self._end_alignment(peer, message)
        if isinstance(message, Checkpoint):
            return self._checkpoint()
        if isinstance(message, Finish):
            return self._finish(message)
        if self._training is not None:
            return self._training.side.handle(message)
        if self._lots is not None:
            return self._lots.handle(message)
        raise UnexpectedMessage(f"{message.type_name()} came before its turn")

    def _accept(self, peer: PeerIdentity, message: Propose) -> Accepted:
        if message.dry_run:
            self.over = True
            return Accepted(__version__, aligned=False)
        if not self.uses_table:
            helper = self._alignment.helpers[self.role]
            context = HelperContext(self.job.owners, take_key=lambda: take_key(self.settings, self.job))
            self._helper = HelpedLots(lambda: helper(context))
            return Accepted(__version__, aligned=False)
        lots, runs = wished_lots(self.settings), self.settings.runs
        known = (runs / self.job.name / "status.json").exists()
        if known and RunFolder(runs / self.job.name).status.get("active") != self.job.driver:
            raise JobExists(f"{self.settings.name} has a run {self.job.name!r} with another active party")
        if message.resume:
            if not known:
                raise NothingToResume(f"{self.settings.name} has no run {self.job.name!r}", public=True)
            self._decide(peer, reserve=True)
            run = RunFolder.open(runs, self.job.name)
        else:
            self._refuse_finished()
            if self._run is not None:  # proposed anew in the same session: other rows must not meet the same noise
                self._booking.close(None)
                self._booking = Booking.of_run(self.settings, self.job.name, resume=False)
            self._decide(peer, reserve=True)
            run = self._new_run()
        run.save_key(self._booking.randomness.key)
        self._begin_run(run, state="proposed")
        aligned = message.resume and run.lots is not None
        if aligned:
            self._start_training(run)
        return Accepted(__version__, aligned, lots)

    def _load(self) -> PartyTable:
        if self._table is None:
            self._table = open_allowed(self.settings).without_label()
            self._width = len(self._table.columns)
        return self._table

    def _begin_alignment(self, message: BeginAlignment) -> Done:
        if self._run is None or self._lots is not None:
            raise UnexpectedMessage("alignment came before the job was accepted, or once more")
        self._run.note(state="aligning")
        helpers = self._helpers(self.job)
        self._lots = AnsweredLots(self.settings, self.job, self._load(), helpers, message, self._run)
        self._training = None  # of rows that this party knew, and another has forgotten
        return Done()

    def _next_lot(self, message: NextLot) -> Done:
        if self._lots is None or self._run is None:
            raise UnexpectedMessage("alignment has not begun")
        self._run.save_lot(message.number - 1, self._lots.next(message))
        return Done()

    def _end_alignment(self, peer: PeerIdentity, message: EndAlignment) -> Done:
        if self._lots is None or self._run is None:
            raise UnexpectedMessage("alignment has not begun")
        positions = self._lots.end(message)
        self._decide(peer, message.rows, reserve=True)
        self._run.save_lot(self._lots.last, positions)
        self._run.end_alignment(self._lots.last + 1)
        self._lots = None
        self._start_training(self._run)
        return Done()

    def _start_training(self, run: RunFolder) -> None:
        table, engine = self._load(), lasting_engine(self.settings.engine, self.settings.workers)
        aligned = taken(engine, table, kept_rows(run, table.rows), run.rows)
        share, seed = self.job.validation, self.job.training.seed
        held_out = int(drawn_places(aligned.rows, share, seed).sum()) if share > 0 else 0
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
            raise UnexpectedMessage("there is nothing to keep yet")
        self._run.save_checkpoint(self._training.part())
        self._transcript.flush()
        return Done()

    def _finished_part(self) -> Part | None:
        if self._training is None or not self._training.side.finished:
            return None
        return self._training.part()
