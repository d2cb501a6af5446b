"""Predict with a finished run: jointly with the other parties, or alone if this party has the full model."""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from veilboost import __version__
from veilboost.align.api import alignment_named
from veilboost.crypto.csprng import Csprng
from veilboost.data.columns import id_values
from veilboost.data.load import load_table, read_source
from veilboost.data.schema import SchemaRules, Selection, check_size
from veilboost.data.table import PartyTable
from veilboost.durable import keeping, reading, replace_file
from veilboost.engine.api import lasting_engine
from veilboost.engine.tables import gathered, taken
from veilboost.errors import (
    DamagedState,
    EmptyIntersection,
    ImpossibleSetting,
    MalformedMessage,
    MissingShare,
    PeerUnreachable,
    RowsDiffer,
    UnexpectedMessage,
    UnsupportedCombination,
    VeilBoostError,
)
from veilboost.infer.explaining import ExplanationResponder, explain_joint, explanation_release
from veilboost.infer.joint import PredictionResponder, predict_joint
from veilboost.infer.messages import EXPLANATION_MESSAGES, PREDICTION_MESSAGES
from veilboost.infer.scores import ModelInfo
from veilboost.logs import EventLogger
from veilboost.model.explanation import Explanation
from veilboost.model.joined import join
from veilboost.model.share import ColumnInfo, ModelShare, Skeleton
from veilboost.party.batches import SALT_BYTES, PassiveBatches, drive_alignment, requested_batches
from veilboost.party.booking import allow_explanation, book_explanation
from veilboost.party.coordinator import Connections
from veilboost.party.hub import LinkHub, caller_to
from veilboost.party.identity import PeerIdentity
from veilboost.party.job import read_job, run_name, with_addresses
from veilboost.party.messages import (
    CONTROL_MESSAGES,
    Accepted,
    BeginAlignment,
    EndAlignment,
    Finish,
    NextBatch,
    Ping,
    Propose,
    ProposePrediction,
)
from veilboost.party.policy import PredictRequest, Request, SpentToday, decide
from veilboost.party.runs import RunFolder
from veilboost.party.session import Session, SessionContext
from veilboost.party.settings import PartySettings, load_allowed
from veilboost.party.vertical import who_answers
from veilboost.types import AnyArray, Column, Float64Array, Int64Array, PartyName
from veilboost.wire.channel import Channel, Peers
from veilboost.wire.message import Catalogue, Done, Message
from veilboost.wire.rpc import Caller, Link
from veilboost.wire.transcript import Transcript

Made = TypeVar("Made")
Presence = Mapping[PartyName, bool | None]  # None: it dials this party, so it cannot be checked
_GRACE = 0.5  # extra time for the threads beyond the deadline of the requests
KEEP = SchemaRules(constant="keep")  # a few new rows may have equal values in a column


@dataclass(frozen=True)
class Prediction:
    """`scores` as the objective returns them: probabilities (a column per class for more than two) or values."""

    ids: AnyArray
    scores: Float64Array
    classes: tuple[str, ...] | None


def open_predictor(settings: PartySettings, folder: Path) -> Predictor:
    """The predictor of a run whose training has finished. Contacts no party yet."""
    folder = folder.resolve()  # the run is named after the folder, which `.` does not show
    run = RunFolder.open(folder.parent, folder.name)
    state = run.status.get("state")
    if state != "finished":
        raise MissingShare(f"the run {folder.name!r} is not finished but {state}", "end or resume its training first")
    share = run.load_share()
    whole = share.skeleton is not None and share.skeleton.parties == (share.party,)
    return (Predictor if whole else LivePredictor)(settings, run)


class Predictor:
    """A full model: this party predicts its own rows alone."""

    def __init__(self, settings: PartySettings, run: RunFolder) -> None:
        self.settings, self.run, self.share = settings, run, run.load_share()
        if self.share.skeleton is None:
            raise MissingShare(f"the share of {self.share.party} has no skeleton: only the active party can predict")
        self.skeleton: Skeleton = self.share.skeleton
        id_name = None if settings.data is None else settings.data.id
        self.info = ModelInfo.of(run.path.name, settings.name, self.share, self.skeleton, id_name)

    def load(self, source: object) -> PartyTable:
        """Load new rows from a file or frame: the id, if the settings name one, and the trained columns."""
        data = self.settings.data
        return load_rows(source, data and data.id, self.share.columns, data.missing_values if data else ())

    def predict(self, table: PartyTable) -> Prediction:
        return self._prediction(table, join({self.share.party: self.share}).margins(table.columns))

    def explain(self, table: PartyTable) -> tuple[Prediction, Explanation]:
        """Scores, and the contributions of the features to them."""
        found = join({self.share.party: self.share}).explain(table.columns, self.settings.cores)
        return self._prediction(table, found.margins), found

    def _prediction(self, table: PartyTable, margins: Float64Array) -> Prediction:
        return Prediction(table.ids, self.skeleton.loss.predict(margins), self.skeleton.classes)


def names_of(parties: Sequence[PartyName]) -> str:
    """`shop`, `shop and telecom`, `a, b and c`."""
    return parties[0] if len(parties) == 1 else f"{', '.join(parties[:-1])} and {parties[-1]}"


class LivePredictor(Predictor):
    """The active party's share, with connections to the parties that have the others."""

    def __init__(self, settings: PartySettings, run: RunFolder) -> None:
        super().__init__(settings, run)
        if self.share.party != settings.name:
            raise UnsupportedCombination(
                f"the run belongs to {self.share.party}, but the settings to {settings.name}",
                f"name the settings of {self.share.party} with --config",
            )
        if settings.data is None:
            raise ImpossibleSetting(f"{settings.name} has no [data] section", "which names the id column")
        self._text = run.job_text
        self.job = with_addresses(read_job(self._text), settings.peers)
        self._checking, self._known, self._when = threading.Lock(), dict[PartyName, bool | None](), -math.inf

    def predict(self, table: PartyTable, seconds: float | None = None) -> Prediction:
        """Scores for every row of the table, which every party must have. Raises what a party refuses with.

        A health check of `seconds` comes first: if a party is unreachable, no other spends its daily predictions.
        """
        margin, positions = self._jointly(table, predict_joint, seconds)
        back = np.empty_like(margin)
        back[:, positions] = margin
        return self._prediction(table, back)

    def explain(self, table: PartyTable, seconds: float | None = None) -> tuple[Prediction, Explanation]:
        """Scores, and the contributions of the features to them, as far as the other parties' policies show them."""
        explain = partial(explain_joint, threads=self.settings.cores)
        found, positions = self._jointly(table, explain, seconds, explain=True)
        found = found.take(np.argsort(positions))
        return self._prediction(table, found.margins), found

    def _jointly(
        self,
        table: PartyTable,
        work: Callable[[ModelShare, Sequence[Column], int, Peers], Made],
        seconds: float | None,
        explain: bool = False,
    ) -> tuple[Made, Int64Array]:
        """What `work` makes of the rows in the common order, and their positions in the table."""
        wanted = self.settings.limits.connect_seconds if seconds is None else seconds
        unreachable = [name for name, reached in self.presence(wanted).items() if reached is False]
        if unreachable:
            raise PeerUnreachable(f"{names_of(unreachable)} cannot be reached")
        transcript = Transcript(self.settings.name, self.run.path / "predictions")
        with Connections(self.settings, self.job) as connections:
            try:
                return self._in_session(table, work, connections, transcript, explain)
            finally:
                transcript.close()

    def presence(self, seconds: float, age: float = 0.0) -> Presence:
        """Health check: which parties answer within `seconds`, or the result of the last `age` seconds.

        All parties that a prediction needs and that can be dialled are sent a ping at once.
        """
        with self._checking:
            if time.monotonic() - self._when >= age:
                self._known, self._when = self._check_health(seconds), time.monotonic()
            return self._known

    def _check_health(self, seconds: float) -> dict[PartyName, bool | None]:
        parties = {name: self.job.parties[name] for name in who_answers(self.job)}
        found: dict[PartyName, bool | None] = dict.fromkeys(parties)
        hub = LinkHub(self.settings)

        def reach(name: PartyName, left: float) -> Link:
            return hub.open(name, parties[name].address, left)

        callers = {
            name: caller_to(
                name, self.settings, reach, Catalogue(CONTROL_MESSAGES), seconds=seconds, idle_timeout=seconds
            )
            for name, party in parties.items()
            if party.connect == "out"
        }
        with ThreadPoolExecutor(max(1, len(callers)), thread_name_prefix="health-check") as pool:
            answers = {name: pool.submit(self._is_there, caller) for name, caller in callers.items()}
            wait(answers.values(), seconds + _GRACE)
            for name, answer in answers.items():
                found[name] = answer.done() and answer.result()
                callers[name].close()  # also ends the wait for a party that does not answer
        hub.close()
        return found

    def _is_there(self, caller: Caller) -> bool:
        try:
            caller.send(Ping())()
        except PeerUnreachable:
            return False
        except VeilBoostError:
            return True  # it refuses, but it answers
        return True

    def _in_session(
        self,
        table: PartyTable,
        work: Callable[[ModelShare, Sequence[Column], int, Peers], Made],
        connections: Connections,
        transcript: Transcript,
        explain: bool,
    ) -> tuple[Made, Int64Array]:
        messages = {*CONTROL_MESSAGES, *alignment_named(self.job.alignment).messages, *_messages(explain)}
        options = {
            "session": Csprng().bytes(16),
            "transcript": transcript,
            "seconds": self.settings.limits.connect_seconds,
        }
        callers: dict[PartyName, Channel] = {
            name: connections.caller(name, Catalogue(messages), **options) for name in who_answers(self.job)
        }
        owners = [name for name in self.job.owners if name != self.settings.name]
        everyone, peers = Peers(callers), Peers({name: callers[name] for name in owners})
        to_owner = ProposePrediction(self.run.path.name, self._text, table.rows, explain)
        to_helper = Propose(self._text, dry_run=False, resume=False)
        accepted = everyone.ask({name: to_owner if name in owners else to_helper for name in callers}, Accepted)
        completed = False
        try:
            positions = self._common_rows(table, callers, accepted)
            aligned = table.take(positions)
            made = work(self.share, aligned.columns, aligned.rows, peers)
            completed = True
        finally:  # in any case, no party keeps its session open
            with contextlib.suppress(VeilBoostError):
                peers.ask({other: Finish(completed) for other in owners}, Done)
        return made, positions

    def _common_rows(
        self, table: PartyTable, callers: Mapping[PartyName, Channel], accepted: Mapping[PartyName, Accepted]
    ) -> Int64Array:
        """The positions of the rows in the common order. Raises unless all rows are common."""
        found: list[Int64Array] = []
        with contextlib.suppress(EmptyIntersection):
            salt = Csprng().bytes(SALT_BYTES)
            found.extend(drive_alignment(self.settings, self.job, table, callers, accepted, salt))
        lost = table.rows - sum(map(len, found))
        if lost:
            raise RowsDiffer(
                f"{lost} of the {table.rows} rows are not known to every party", "predict rows that all parties have"
            )
        return np.concatenate(found)


def load_rows(
    source: object, id: str | None, columns: tuple[ColumnInfo, ...], missing_values: Sequence[str] = ()
) -> PartyTable:
    """The rows of a file or frame as the columns of a trained party; the label may be absent."""
    if columns:
        return load_table(
            source,
            id=id,
            features=[column.name for column in columns],
            categorical=[column.name for column in columns if column.categories is not None],
            missing_values=missing_values,
            rules=KEEP,
        ).without_label()
    # A party with labels only: its new rows consist of ids.
    if id is None:
        raise ImpossibleSetting("new rows have neither an id nor a column", "name the id under [data]")
    selection = Selection(id=id, features=())
    read = read_source(source, selection)
    check_size(read.rows, 0, has_label=True)
    return PartyTable(id_values(id, read.columns[id], typed=read.typed), ())


def _messages(explain: bool) -> tuple[type[Message], ...]:
    """Assignments at all splits at once can be requested only in a session that explains."""
    return EXPLANATION_MESSAGES if explain else PREDICTION_MESSAGES


_COUNTING = threading.Lock()
PREDICTIONS_FILE, LOOKUPS_FILE = "predictions.json", "lookups.json"
_LOG = EventLogger(__name__)


class PredictionSession(Session):
    """A passive party's session of a joint prediction: policy check, alignment, answers."""

    def __init__(self, context: SessionContext, proposal: ProposePrediction) -> None:
        name, settings = run_name(proposal.run), context.settings
        super().__init__(context, name)
        self._job = read_job(proposal.job)
        self._rows = proposal.rows
        if self._rows < 1:
            raise MalformedMessage("a prediction has no rows")
        self._run = RunFolder.finished_with(settings.runs, name, context.peer)
        self._alignment = alignment_named(self._job.alignment)
        self._explains = proposal.explain
        messages = _messages(self._explains)
        self.catalogue = Catalogue({*CONTROL_MESSAGES, *self._alignment.messages, *messages})
        self._transcript = Transcript(settings.name, self._run.path / "predictions")
        self._batches: PassiveBatches | None = None
        self._found: list[Int64Array] = []
        self._responder: PredictionResponder | ExplanationResponder | None = None

    def _act(self, peer: PeerIdentity, message: Message) -> Message:
        self._only_proposer(peer)
        if isinstance(message, ProposePrediction):
            if self._explains:
                allow_explanation(self.settings, peer, self._run.load_share().records.count)
            spend_predictions(self.settings, peer, self._rows)
            _LOG.info("prediction_accepted", f"predicts {self._rows} rows", rows=self._rows)
            return Accepted(__version__, aligned=False, batches=requested_batches(self.settings))
        if isinstance(message, BeginAlignment):
            return self._begin_alignment(message)
        if isinstance(message, NextBatch):
            self._found.append(self._begun().next(message))
            return Done()
        if isinstance(message, EndAlignment):
            return self._end_alignment(peer, message)
        if isinstance(message, Finish):
            self.over = True
            if message.completed:
                self._count_predicted(self._rows)
            return Done()
        if self._responder is not None:
            return self._responder.handle(message)
        if self._batches is not None:
            return self._batches.handle(message)
        raise UnexpectedMessage(f"{message.type_name()} came too early")

    def note_error(self, reason: str) -> None:
        self._run.note(error=reason)

    def _begin_alignment(self, message: BeginAlignment) -> Done:
        if self._batches is not None:
            raise UnexpectedMessage("alignment has begun already")
        self._table = load_allowed(self.settings, in_place=True).without_label()
        self._batches = PassiveBatches(self.settings, self._job, self._table, self._helpers(self._job), message)
        return Done()

    def _begun(self) -> PassiveBatches:
        if self._batches is None:
            raise UnexpectedMessage("alignment has not begun")
        return self._batches

    def _end_alignment(self, peer: PeerIdentity, message: EndAlignment) -> Done:
        if message.rows > self._rows:
            raise UnexpectedMessage("more rows are common than the prediction has")
        positions = [*self._found, self._begun().end(message)]
        engine = lasting_engine(self.settings.engine, self.settings.workers)
        rows = gathered(taken(engine, self._table, positions, message.rows))
        share = self._run.load_share()
        values = share.matrix(rows.columns, rows.rows)
        if self._explains:
            protocol, request = self._job.protocol, self._session.hex()
            release = explanation_release(share, protocol, peer.party, request, rows.rows)
            book_explanation(self.settings, f"{self._run.path.name}/explanations", peer, release)
            self._responder = ExplanationResponder(share, values, self.settings.policy.explanations)
        else:
            depth = read_job(self._run.job_text).training.max_depth  # of the job as it was trained
            self._responder = PredictionResponder(share, values, depth)
        self._batches = None
        return Done()


def spend_predictions(settings: PartySettings, peer: PeerIdentity, rows: int) -> None:
    """Count the rows of the day, of all peers and of this one, before any data is read."""
    peers = {peer.party: peer.fingerprint or None}
    spend_daily(settings, PREDICTIONS_FILE, peer.party, rows, lambda spent: PredictRequest(peers, rows, spent))


def spend_daily(
    settings: PartySettings,
    name: str,
    peer: PartyName,
    number: int,
    request: Callable[[SpentToday], Request] | None = None,
) -> None:
    """Add to today's counts in a file of the runs folder, if the policy allows the request, given the counts so far."""
    ledger, today = settings.runs / name, time.strftime("%Y-%m-%d")
    with _COUNTING:
        spent, by_peer = spent_today(settings, name)
        own = by_peer.get(peer, 0)
        if request is not None:
            decide(settings.policy, request(SpentToday(spent, own)))
        by_peer[peer] = max(own + number, 0)
        with keeping("the count of today's requests cannot be stored"):
            count = {"day": today, "rows": max(spent + number, 0), "peers": by_peer}
            replace_file(ledger, json.dumps(count).encode())


def spent_today(settings: PartySettings, name: str) -> tuple[int, dict[PartyName, int]]:
    """Today's counts in a file of the runs folder: of all peers, and of each."""
    ledger = settings.runs / name
    try:
        with reading(ledger):
            found = json.loads(ledger.read_text())
        if found["day"] != time.strftime("%Y-%m-%d"):
            return 0, {}
        by_peer = {str(peer): int(rows) for peer, rows in dict(found.get("peers", {})).items()}
        return int(found["rows"]), by_peer
    except FileNotFoundError:
        return 0, {}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DamagedState(
            f"{ledger} cannot be read, so the requests of today cannot be counted",
            "restore it from a backup; or delete it, which starts the count of today at 0",
        ) from error
