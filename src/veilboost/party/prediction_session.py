"""One prediction at a party that answers: which of the asked rows go left at its own splits."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

from veilboost.align.api import AlignContext, alignment_named
from veilboost.engine.api import lasting_engine
from veilboost.engine.tables import gathered, taken
from veilboost.errors import AgainstPolicy, CheckpointFailed, UnexpectedMessage
from veilboost.infer.messages import PREDICTION_MESSAGES
from veilboost.infer.responder import PredictionResponder
from veilboost.party.hub import Reach
from veilboost.party.identity import PeerIdentity
from veilboost.party.job import read_job
from veilboost.party.messages import (
    CONTROL_MESSAGES,
    Accepted,
    BeginAlignment,
    EndAlignment,
    Finish,
    NextLot,
    ProposePrediction,
)
from veilboost.party.own_table import open_allowed, wished_lots
from veilboost.party.policy import PredictRequest, decide
from veilboost.party.runs import RunFolder
from veilboost.party.session import Session
from veilboost.party.settings import PartySettings
from veilboost.party.vertical.lots import AnsweredLots, lots_of
from veilboost.types import Int64Array
from veilboost.version import release
from veilboost.wire.message import Catalogue, Done, Message
from veilboost.wire.transcript import Transcript

_COUNTING = threading.Lock()


class PredictionSession(Session):
    """Checked by the policy, aligned, answered."""

    def __init__(
        self,
        settings: PartySettings,
        threads: int,
        reach: Reach,
        session: bytes,
        proposal: ProposePrediction,
        peer: PeerIdentity,
    ) -> None:
        super().__init__(settings, threads, reach, session, peer)
        self._job = read_job(proposal.job)
        self._rows = proposal.rows
        self._run = RunFolder.open(settings.runs, proposal.run)
        if self._run.status.get("active") != peer.party or self._run.status.get("state") != "finished":
            raise AgainstPolicy(
                f"{peer.party} has no finished model {proposal.run!r} here",
                "predict with a model it trained with us",
                public=True,
            )
        self._alignment = alignment_named(self._job.alignment)
        self.catalogue = Catalogue({*CONTROL_MESSAGES, *self._alignment.messages, *PREDICTION_MESSAGES})
        self._transcript = Transcript(settings.name, self._run.path / "predictions")
        self._lots: AnsweredLots | None = None
        self._found: list[Int64Array] = []
        self._responder: PredictionResponder | None = None

    def _act(self, peer: PeerIdentity, message: Message) -> Message:
        self._only_proposer(peer)
        if isinstance(message, ProposePrediction):
            spend_predictions(self.settings, peer, self._rows)
            return Accepted(release(), aligned=False, lots=wished_lots(self.settings))
        if isinstance(message, BeginAlignment):
            return self._begin_alignment(message)
        if isinstance(message, NextLot):
            self._found.append(self._begun().next(message))
            return Done()
        if isinstance(message, EndAlignment):
            return self._end_alignment(message)
        if isinstance(message, Finish):
            self.over = True
            return Done()
        if self._responder is not None:
            return self._responder.handle(message)
        if self._lots is not None:
            return self._lots.handle(message)
        raise UnexpectedMessage(f"{message.type_name()} came before its turn")

    def _begin_alignment(self, message: BeginAlignment) -> Done:
        if self._lots is not None:
            raise UnexpectedMessage("alignment has begun already")
        self._table = open_allowed(self.settings).without_label()
        context = AlignContext(
            self.settings.name, self._job.owners, self._table.ids, self._helpers(self._job), threads=self._threads
        )
        self._lots = AnsweredLots(self._alignment, context, message, lots_of(self._table))
        return Done()

    def _begun(self) -> AnsweredLots:
        if self._lots is None:
            raise UnexpectedMessage("alignment has not begun")
        return self._lots

    def _end_alignment(self, message: EndAlignment) -> Done:
        if message.rows > self._rows:
            raise UnexpectedMessage("more rows are common than were to be predicted")
        positions = [*self._found, self._begun().end(message)]
        engine = lasting_engine(self.settings.engine, self.settings.workers)
        rows = gathered(taken(engine, self._table, positions, message.rows))
        self._responder = PredictionResponder(self._run.load_part(), rows.columns, rows.rows)
        self._lots = None
        return Done()


def spend_predictions(settings: PartySettings, peer: PeerIdentity, rows: int) -> None:
    """Count the rows of the day, for all peers together, before anything is read."""
    ledger, today = settings.runs / "predictions.json", time.strftime("%Y-%m-%d")
    with _COUNTING:
        spent = _read_count(ledger, today)
        decide(settings.policy, PredictRequest({peer.party: peer.fingerprint or None}, rows, predicted_today=spent))
        try:
            ledger.write_text(json.dumps({"day": today, "rows": spent + rows}))
        except OSError as error:
            raise CheckpointFailed(f"the count of predictions cannot be kept ({error.strerror})") from None


def _read_count(ledger: Path, today: str) -> int:
    try:
        found = json.loads(ledger.read_text())
        return int(found["rows"]) if found["day"] == today else 0
    except (OSError, ValueError, KeyError, TypeError):
        return 0
