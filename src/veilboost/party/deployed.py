"""Deployments at a passive party: its share, its columns and its index of ids, loaded once, and the session."""

from __future__ import annotations

import contextlib
import threading
import time
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from veilboost.align.slots import SLOT_MESSAGES, IndexRequest, LookUp, SlotOwner, SlotTable
from veilboost.crypto.csprng import Csprng
from veilboost.errors import (
    AgainstPolicy,
    DeploymentEnded,
    InvalidParameter,
    LimitReached,
    MalformedMessage,
    StaleIndex,
    StateDiffers,
    TableBusy,
    UnexpectedMessage,
    UnknownDeployment,
    UnsupportedCombination,
    VeilBoostError,
)
from veilboost.infer.explaining import ExplanationResponder, explanation_release
from veilboost.infer.joint import PredictionResponder
from veilboost.infer.messages import EXPLANATION_MESSAGES, PREDICTION_MESSAGES, BeginScoring
from veilboost.logs import EventLogger, reason
from veilboost.party.approvals import Proposal as Approval
from veilboost.party.approvals import require_approval, save_approval, stored_approval, use_approval
from veilboost.party.booking import allow_explanation, book_explanation
from veilboost.party.deployment_folder import (
    DAY,
    LIVE,
    WITHDRAWN,
    DeploymentFolder,
    DeploymentStatus,
    Trail,
    list_deployments,
)
from veilboost.party.identity import PeerIdentity
from veilboost.party.job import read_job, run_name
from veilboost.party.messages import (
    CONTROL_MESSAGES,
    Finish,
    OpenDeployment,
    ProposeDeployment,
    WithdrawDeployment,
)
from veilboost.party.policy import DeployRequest, LookUpRequest, decide
from veilboost.party.predicting import LOOKUPS_FILE, PREDICTIONS_FILE, spend_daily, spend_predictions
from veilboost.party.proposals import Subject, digest_of, revealed
from veilboost.party.runs import RunFolder
from veilboost.party.session import Session, SessionContext
from veilboost.party.settings import PartySettings, load_allowed
from veilboost.privacy.event import Adjacency, ExactRelease
from veilboost.privacy.ledger import Ledger
from veilboost.protocols.cost import VALUE
from veilboost.protocols.memory import free_memory
from veilboost.types import Float32Array, Int64Array, PartyName, Role
from veilboost.wire.message import Catalogue, Done, Message
from veilboost.wire.transcript import NoTranscript

_LOG = EventLogger(__name__)
LOOK_SECONDS = 1.0  # between two looks at the files of the table and of the deployment
_SLOT = 96  # bytes of memory for each slot, besides the values
_REKEY_SECONDS = 60.0  # by which the clocks of two parties may differ when keys are replaced
_loading = threading.Lock()  # one table at a time
_accepting = threading.Lock()  # so that proposals that come at once cannot exceed the limit


class _Rows(NamedTuple):
    """The rows of the table as they were loaded: values (columns, rows and one of missing values), row of each slot."""

    slots: SlotTable
    values: Float32Array
    row_of: Int64Array


class Deployed:
    """One deployment in the memory of a daemon. Threads may share it."""

    def __init__(self, settings: PartySettings, folder: DeploymentFolder) -> None:
        self._settings, self._folder = settings, folder
        self.status = folder.status
        run = RunFolder.open(settings.runs, self.status.run)
        self._share, job = run.load_share(), read_job(run.job_text)
        self._protocol, self._max_depth = job.protocol, job.training.max_depth
        if self._share.records.digest(self.status.trees) != self.status.digest:
            raise StateDiffers(
                f"the share of the run {self.status.run!r} is not the one that was deployed",
                "deploy the run again",
                public=True,
            )
        self._owner = SlotOwner(folder.key, settings.cores)
        self._trail, self._predictions = Trail(folder), _Blocks(settings, self.status.active)
        self._lock, self._refreshing = threading.Lock(), False
        self._looked, self._booked = time.monotonic(), set[str]()
        self._stamp, self._rows = _stamp_of(settings), self._load(folder.load_index(SlotTable.of) or SlotTable.of(None))

    # --- the table --------------------------------------------------------------------------------------

    def _load(self, old: SlotTable) -> _Rows:
        if self._settings.own_data.id is None:
            raise UnsupportedCombination(
                f"the table of {self._settings.name} has no id column",
                "name it: id under [data] in its settings",
                public=True,
            )
        table = load_allowed(self._settings).without_label()
        free, needed = free_memory(), table.rows * (VALUE * len(self._share.columns) + _SLOT)
        if free is not None and needed > free:
            raise TableBusy(
                f"the deployment needs about {needed / 1e6:.0f} MB of memory, and {free / 1e6:.0f} MB are free",
                "withdraw other deployments, or wait until jobs have ended",
                public="the party has too little free memory for the deployment",
            )
        values = self._share.matrix(table.columns, table.rows)
        slots, row_of = self._owner.updated(old, table.ids)
        if slots.generation != old.generation:
            self._folder.save_index(vars(slots))
        missing = np.full((len(values), 1), np.nan, dtype=np.float32)  # the last row, which -1 means
        return _Rows(slots, np.concatenate((values, missing), axis=1), row_of)

    def look(self) -> None:
        """Raise if the deployment has ended. If the table has changed, load it while the old one is used."""
        if time.monotonic() - self._looked >= LOOK_SECONDS:
            with self._lock:
                self._looked = time.monotonic()
                self.status = self._folder.status
                stamp = _stamp_of(self._settings)
                changed = stamp != self._stamp and not self._refreshing
                if changed:
                    self._stamp, self._refreshing = stamp, True
            if changed:
                threading.Thread(target=self._refresh, name="refresh", daemon=True).start()
        refuse_ended(self.status)

    def _refresh(self) -> None:
        try:
            with _loading:
                self._rows = self._load(self._rows.slots)
            _LOG.info("deployment_refreshed", f"{self.status.label} uses the changed table")
        except Exception as error:  # the owner may be writing it; the rows that were loaded before stay
            _LOG.warning("deployment_outdated", f"the changed table cannot be used: {reason(error)}", error)
        finally:
            self._refreshing = False

    # --- requests ---------------------------------------------------------------------------------------

    def part(self, request: IndexRequest) -> Message:
        return self._rows.slots.part(request)

    def look_up(self, peer: PeerIdentity, request: LookUp) -> Message:
        number, peers = len(request.points), {peer.party: peer.fingerprint or None}
        if not number:  # it would fill the trail, and count towards no limit
            raise MalformedMessage("a request looks up no ids", public=True)
        spend_daily(self._settings, LOOKUPS_FILE, peer.party, number, lambda spent: LookUpRequest(peers, number, spent))
        self._book("looked up", "which of the ids that are looked up it knows", peer)
        self._trail.add(peer=peer.party, what="looked up", rows=number)
        return self._owner.looked_up(request)

    def begin(self, peer: PeerIdentity, message: BeginScoring) -> PredictionResponder | ExplanationResponder:
        """The responder for these slots. They count towards the daily limit and stand in the trail."""
        rows = self._rows
        if message.generation != rows.slots.generation:
            raise StaleIndex(f"the rows have changed since generation {message.generation}", public=True)
        slots = message.slots
        if not len(slots):
            raise MalformedMessage("a request has no rows", public=True)
        if not -1 <= slots.min() <= slots.max() < len(rows.row_of):
            raise MalformedMessage("a slot does not exist", public=True)
        places = np.where(slots >= 0, rows.row_of[slots], -1)
        if (places[slots >= 0] < 0).any():
            raise MalformedMessage("a slot was removed", public=True)
        if message.explain:  # before anything is spent
            allow_explanation(self._settings, peer, self._share.records.count)
        self._predictions.take(peer, len(slots))  # before the values of the rows take memory
        values = rows.values.take(places, axis=1)
        asked = {"peer": peer.party, "rows": len(slots), "slots": slots.tolist()}
        if message.explain:
            return self._explain(peer, values, asked)
        self._book("scored", "the left/right assignments of scored rows at the splits that they reach", peer)
        self._trail.add(what="scored", **asked)
        return PredictionResponder(self._share, values, self._max_depth)

    def _explain(self, peer: PeerIdentity, values: Float32Array, asked: dict[str, Any]) -> ExplanationResponder:
        """The responder for an explanation. Each is booked: it releases the assignments at all splits."""
        request = Csprng().bytes(16).hex()
        release = explanation_release(self._share, self._protocol, peer.party, request, asked["rows"])
        book_explanation(self._settings, self._entry, peer, release)
        self._trail.add(what="explained", **asked)
        return ExplanationResponder(self._share, values, self._settings.policy.explanations)

    def _book(self, release: str, what: str, peer: PeerIdentity) -> None:
        """Book the releases of a day, before the first of them is sent; the trail has the details."""
        name = f"{release} on {time.strftime('%Y-%m-%d')}"
        if name in self._booked:
            return
        event = ExactRelease(
            what=what,
            adjacency=Adjacency.PASSIVE_RECORD,
            adversary=peer.party,
            protocol=self._protocol,
            release=name,
            counted=False,
        )
        Ledger(self._settings.ledger_file).append(self._entry, event)
        self._booked.add(name)

    @property
    def _entry(self) -> str:
        """The name of the deployment in the ledger."""
        return f"deployment {self.status.name} {self.status.version}/{self._folder.id[:12]}"

    @property
    def over(self) -> bool:
        """Whether the deployment has ended, also by another process."""
        try:
            return self._folder.status.now != LIVE
        except UnknownDeployment:  # its folder was deleted
            return True
        except VeilBoostError:
            return False

    def close(self) -> None:
        self._predictions.give_back()
        self._trail.close()


class _Blocks:
    """Counts predicted rows towards the daily limit in blocks, so that few requests wait for the disk."""

    def __init__(self, settings: PartySettings, peer: PartyName) -> None:
        self._settings, self._peer = settings, peer
        most, by_peer = settings.policy.predictions_per_day, settings.policy.predictions_per_peer
        self._block = (most if by_peer is None else min(most, by_peer)) // 100
        self._left, self._day, self._lock = 0, "", threading.Lock()

    def take(self, peer: PeerIdentity, rows: int) -> None:
        with self._lock:
            today = time.strftime("%Y-%m-%d")
            if today != self._day:
                self._left, self._day = 0, today
            short = rows - self._left
            if short > 0:
                try:
                    spend_predictions(self._settings, peer, short + self._block)
                    self._left += short + self._block
                except AgainstPolicy:  # the last rows of the day
                    spend_predictions(self._settings, peer, short)
                    self._left += short
            self._left -= rows

    def give_back(self) -> None:
        """Rows that were counted and not predicted are free again."""
        with self._lock, contextlib.suppress(VeilBoostError):
            if self._left and self._day == time.strftime("%Y-%m-%d"):
                spend_daily(self._settings, PREDICTIONS_FILE, self._peer, -self._left)
            self._left = 0


def _stamp_of(settings: PartySettings) -> tuple[Any, ...]:
    """What changes with the files of the table, without reading them; nothing for a table without files."""
    path = settings.own_data.path
    if path is None:
        return ()
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    found: list[tuple[str, int, int, int] | None] = []
    for file in files:
        try:
            about = file.stat()
        except OSError:
            found.append(None)
        else:
            found.append((file.name, about.st_mtime_ns, about.st_size, about.st_ino))
    return tuple(found)


def refuse_ended(status: DeploymentStatus) -> None:
    if status.now != LIVE:
        raise DeploymentEnded(f"the deployment {status.label} is {status.now}", public=True)


# --- what was asked, for the owner ----------------------------------------------------------------------------------


def asked_by_day(folder: DeploymentFolder) -> list[dict[str, Any]]:
    """The number of requests and of rows, by day, peer and kind."""
    found = dict[tuple[str, str, str], list[int]]()
    for each in folder.read_trail():
        day = datetime.fromtimestamp(each["when"], UTC).strftime("%Y-%m-%d")
        total = found.setdefault((day, each["peer"], each["what"]), [0, 0])
        total[0] += 1
        total[1] += each["rows"]
    names = ("day", "peer", "what", "requests", "rows")
    return [dict(zip(names, (*key, *total), strict=True)) for key, total in found.items()]


def read_trail(settings: PartySettings, folder: DeploymentFolder, id: str | None = None) -> list[dict[str, Any]]:
    """The trail of a passive party, with the ids of the rows while the deployment lives.

    With `id`: the requests for this row, without the other rows of these requests.
    """
    found, kept = list(folder.read_trail()), folder.load_index(SlotTable.of)
    if kept is None:
        if id is not None:
            raise DeploymentEnded("the ids of a deployment that has ended are not known any more")
        return found
    ids = load_allowed(settings).ids
    _, rows = SlotOwner(folder.key, settings.cores).updated(kept, ids)
    names = [None if row < 0 else ids[row].item() for row in rows.tolist()]
    if id is not None:
        place = {str(name): slot for slot, name in enumerate(names) if name is not None}.get(id)
        if place is None:
            raise InvalidParameter("no row of the table has this id", "rows that were removed are known by slots only")
        return [{**each, "slots": [place], "ids": [id]} for each in found if place in each.get("slots", ())]
    for each in found:
        if "slots" in each:
            each["ids"] = [names[slot] for slot in each["slots"] if slot >= 0]
    return found


def _digest(message: ProposeDeployment) -> str:
    """The digest for an approval. The id is random, and every attempt has another version."""
    return digest_of("deployment", message.name, message.run, repr(message.days), str(message.trees), message.digest)


def _subject(settings: PartySettings, run: RunFolder, message: ProposeDeployment) -> Subject:
    """What a person reads before approving a deployment."""
    share, table = run.load_share(), load_allowed(settings).without_label()
    return Subject(
        kind="deployment",
        role=Role.PASSIVE,
        job=message.name,
        protocol=read_job(run.job_text).protocol,
        settings={"run": run.path.name, "days": f"{message.days:g}", "trees": str(message.trees)},
        table=settings.own_data.table,
        columns=tuple(column.name for column in share.columns),
        rows=table.rows,
        reveals=revealed((*SLOT_MESSAGES, *PREDICTION_MESSAGES), (Role.ACTIVE, Role.PASSIVE), Role.PASSIVE),
    )


Proposal = ProposeDeployment | OpenDeployment | WithdrawDeployment


class DeploymentSession(Session):
    """A peer's session with one deployment. It lasts as long as the peer likes."""

    catalogue = Catalogue({*CONTROL_MESSAGES, *SLOT_MESSAGES, *PREDICTION_MESSAGES, *EXPLANATION_MESSAGES})

    def __init__(self, context: SessionContext, opening: Proposal) -> None:
        super().__init__(context)
        self._transcript = NoTranscript(self.settings.name)
        self._folder = DeploymentFolder.at(self.settings, opening.id)
        self._deployed: Deployed | None = None
        self._responder: PredictionResponder | ExplanationResponder | None = None
        self._approved = False  # whether its approval is used, if it needs one

    def _act(self, peer: PeerIdentity, message: Message) -> Message:
        self._only_proposer(peer)
        if isinstance(message, ProposeDeployment):
            return self._accept(peer, message)
        if isinstance(message, OpenDeployment):
            return self._open(peer, message)
        if isinstance(message, WithdrawDeployment):
            return self._withdraw(peer, message)
        if isinstance(message, Finish):
            self.over = True
            return Done()
        if self._deployed is None:
            raise UnexpectedMessage(f"{message.type_name()} came too early")
        self._use_approval()
        self._look(self._deployed)
        return self._answer(self._deployed, peer, message)

    def _answer(self, deployed: Deployed, peer: PeerIdentity, message: Message) -> Message:
        if isinstance(message, IndexRequest):
            return deployed.part(message)
        if isinstance(message, LookUp):
            return deployed.look_up(peer, message)
        if isinstance(message, BeginScoring):
            self._responder = deployed.begin(peer, message)
            self._metrics.predicted_rows.inc(len(message.slots))
            return Done()
        if self._responder is None:
            raise UnexpectedMessage(f"{message.type_name()} came before the rows to score")
        return self._responder.handle(message)

    def _accept(self, peer: PeerIdentity, message: ProposeDeployment) -> Done:
        self._decide(peer, message.days)
        if message.version < 1:
            raise MalformedMessage("a deployment has no version", public=True)
        settings, name = self.settings, run_name(message.name)
        run = RunFolder.finished_with(settings.runs, run_name(message.run), peer)
        if run.load_share().records.digest(message.trees) != message.digest:
            raise StateDiffers(
                f"the splits of {settings.name} are not those of the model of {peer.party}",
                "deploy a run whose training has finished at both parties",
                public=True,
            )
        with _accepting:
            if self._folder.exists:
                raise UnexpectedMessage("there is already a deployment with this id")
            live = sum(each.status.now == LIVE for each in list_deployments(settings))
            if live >= settings.limits.max_deployments:
                raise LimitReached(
                    f"there are {live} live deployments",
                    "withdraw one of them, or raise max_deployments under [limits]",
                    public="the party has as many deployments as it allows",
                )
            until, approval = self._approved_until(peer, run, message)
            status = DeploymentStatus(
                name=name,
                version=message.version,
                run=run.path.name,
                active=peer.party,
                parties=(settings.name,),
                created=time.time(),
                until=until,
                trees=message.trees,
                digest=message.digest,
            )
            folder = DeploymentFolder.create(settings, message.id, status)
        save_approval(folder.path, approval)
        try:
            self._deployed = self._load()
        except BaseException:
            folder.end(WITHDRAWN)
            raise
        _LOG.info("deployment_accepted", f"{status.label}, for {message.days:g} days")
        return Done()

    def _approved_until(
        self, peer: PeerIdentity, run: RunFolder, message: ProposeDeployment
    ) -> tuple[float, Approval | None]:
        """Until when the deployment may last, and its approval. Raises if a person must approve it and has not.

        New keys for a live deployment of the same share need no approval, but do not prolong it.
        """
        until, settings = time.time() + message.days * DAY, self.settings
        if settings.policy.approval == "ask":
            same = peer.party, message.name, message.run, message.digest
            for each in (folder.status for folder in list_deployments(settings)):
                replaces = each.now == LIVE and (each.active, each.name, each.run, each.digest) == same
                if replaces and until <= each.until + _REKEY_SECONDS:
                    return min(until, each.until), None
        return until, require_approval(settings, peer, _digest(message), partial(_subject, settings, run, message))

    def _use_approval(self) -> None:
        """The first message after all parties have accepted: the approval allows no other deployment."""
        if not self._approved:
            approval = stored_approval(self._folder.path)
            if approval is not None and approval.used_at is None:
                save_approval(self._folder.path, use_approval(self.settings, approval))
            self._approved = True

    def _open(self, peer: PeerIdentity, message: OpenDeployment) -> Done:
        status = self._own(peer, message.id)
        self._decide(peer, (status.until - status.created) / DAY)
        refuse_ended(status)
        self._deployed = self._load()
        return Done()

    def _withdraw(self, peer: PeerIdentity, message: WithdrawDeployment) -> Done:
        if self._folder.exists:  # otherwise it was never accepted here, and nothing is left to end
            self._own(peer, message.id)
            self._folder.end(WITHDRAWN)
            self._unload()
        self.over = True
        return Done()

    def _own(self, peer: PeerIdentity, id: str) -> DeploymentStatus:
        """The status of the session's deployment, if it is this peer's."""
        if id != self._folder.id or not self._folder.exists or self._folder.status.active != peer.party:
            raise UnknownDeployment(f"{peer.party} has no such deployment here", "deploy the run again", public=True)
        return self._folder.status

    def _decide(self, peer: PeerIdentity, days: float) -> None:
        decide(self.settings.policy, DeployRequest({peer.party: peer.fingerprint or None}, peer.party, days))

    def _load(self) -> Deployed:
        """The deployment in memory, which the first session after a start of the daemon loads."""
        with _loading:
            found = self._loaded.get(self._folder.path)
            if not isinstance(found, Deployed):
                found = self._loaded[self._folder.path] = Deployed(self.settings, self._folder)
            return found

    def _look(self, deployed: Deployed) -> None:
        try:
            deployed.look()
        except DeploymentEnded:
            self._unload()
            raise

    def _unload(self) -> None:
        if (loaded := self._loaded.pop(self._folder.path, None)) is not None:
            loaded.close()
