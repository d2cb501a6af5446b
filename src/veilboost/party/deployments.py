"""Standing deployments at the active party: propose, open, score, explain, re-key, withdraw.

A deployment keeps every passive party ready to route rows of a finished model. Ids are looked up once and addressed by
slots afterwards (`align.slots`), so a request takes one exchange whenever all rows wait for another party.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, TypeVar, get_args

import numpy as np

from veilboost.align.ids import canonical_ids
from veilboost.align.slots import SLOT_MESSAGES, UNKNOWN, SlotDirectory
from veilboost.crypto.csprng import Csprng
from veilboost.data.table import PartyTable
from veilboost.errors import (
    DeploymentEnded,
    ImpossibleSetting,
    InvalidParameter,
    RowsDiffer,
    StaleIndex,
    StaleSession,
    UnknownDeployment,
    UnsupportedCombination,
    VeilBoostError,
)
from veilboost.infer.explaining import explain_joint
from veilboost.infer.joint import JointModel
from veilboost.infer.messages import EXPLANATION_MESSAGES, PREDICTION_MESSAGES, BeginScoring
from veilboost.model.explanation import Explanation
from veilboost.party.coordinator import RELEASE_SECONDS, Connections
from veilboost.party.deployment_folder import (
    DAY,
    LIVE,
    WITHDRAWN,
    DeploymentFolder,
    DeploymentStatus,
    deployment_of_run,
    end_expired,
    list_deployments,
)
from veilboost.party.job import run_name
from veilboost.party.messages import CONTROL_MESSAGES, OpenDeployment, ProposeDeployment, WithdrawDeployment
from veilboost.party.predicting import LivePredictor, open_predictor
from veilboost.party.runs import RunFolder
from veilboost.party.settings import PartySettings
from veilboost.types import AnyArray, BoolArray, Float32Array, Float64Array, Int32Array, PartyName
from veilboost.wire.channel import Peers
from veilboost.wire.message import Catalogue, Done
from veilboost.wire.rpc import Caller
from veilboost.wire.transcript import NoTranscript

Unknown = Literal["error", "skip", "default"]
Made = TypeVar("Made")
KNOWN = "known"
CATALOGUE = Catalogue({*CONTROL_MESSAGES, *SLOT_MESSAGES, *PREDICTION_MESSAGES, *EXPLANATION_MESSAGES})
CALL_SECONDS = 3.0  # how long a request waits for a party
DAYS = 90.0  # lifetime of a deployment
_ATTEMPTS = 4  # a request is made again after a party was restarted or its table has changed
_GROWTH = 1.1  # the looked-up ids are stored again when there are this many times more


@dataclass(frozen=True)
class Scored:
    """`scores` as in `Prediction`, NaN for rows that were skipped.

    `status`, for each row: `known`, or `unknown at shop, telecom`.
    """

    ids: AnyArray
    scores: Float64Array
    classes: tuple[str, ...] | None
    status: tuple[str, ...]


@dataclass(frozen=True)
class _Request:
    """One caller's rows: their ids in canonical form, and this party's values."""

    ids: Sequence[bytes]
    values: Float32Array
    unknown: Unknown
    answer: Future[tuple[Float64Array, tuple[str, ...]]]


class Deployment:
    """The active party's open handle of a deployment. Threads may share it: requests that wait are scored together.

    It contacts no party before the first request, and finds a party again that was restarted.
    """

    def __init__(self, settings: PartySettings, folder: DeploymentFolder) -> None:
        self._attach(settings, folder)
        self._predictor = LivePredictor(settings, RunFolder.open(settings.runs, self.status.run))
        self.info, self.version = self._predictor.info, self.status.version
        self.load, self.presence = self._predictor.load, self._predictor.presence
        self._model = JointModel(self._predictor.share)
        self._connections = Connections(settings, self._predictor.job)
        self._callers: dict[PartyName, Caller] = {}
        self._opened = set[PartyName]()
        self._seconds = CALL_SECONDS
        self._queue: list[_Request] = []
        self._adding, self._serving = threading.Lock(), threading.Lock()

    def _attach(self, settings: PartySettings, folder: DeploymentFolder) -> None:
        self.folder, self.status = folder, folder.status
        self._directory = SlotDirectory(folder.key, self.status.parties, settings.policy.max_rows, settings.cores)
        folder.load_index(self._directory.restore)
        self._saved = self._directory.looked_up

    # --- scoring ----------------------------------------------------------------------------------------

    def score(self, table: PartyTable, unknown: Unknown = "error", seconds: float = CALL_SECONDS) -> Scored:
        """Scores of new rows: this party's columns, with ids by which the other parties find theirs.

        Parameters
        ----------
        unknown
            What to do with rows that a party does not know: refuse all (`error`), give them no score (`skip`), or let
            them go the default direction of missing values at the nodes of that party (`default`).
        seconds
            How long to wait for a party that cannot be reached or does not answer.

        Raises
        ------
        PeerUnreachable
            A party cannot be reached; the text names it.
        RowsDiffer
            A party does not know all rows, and `unknown` is `error`.
        DeploymentEnded
            A party, or this one, has withdrawn the deployment, or its time is over.
        """
        _check_unknown(unknown)
        values = self._predictor.share.matrix(table.columns, table.rows)
        request = _Request(canonical_ids(table.ids), values, unknown, Future())
        with self._adding:
            self._queue.append(request)
        with self._serving:  # the first that is free to serve also serves all who wait
            if not request.answer.done():
                self._serve(seconds)
        scores, status = request.answer.result()
        return Scored(table.ids, scores, self._predictor.skeleton.classes, status)

    def _serve(self, seconds: float) -> None:
        with self._adding:
            batch, self._queue = self._queue, []
        try:
            self._timeout(seconds, seconds)
            self._again(lambda peers: self._score(batch, peers))
        except BaseException as error:
            for request in batch:
                if not request.answer.done():
                    request.answer.set_exception(error)
        self._save_growth()

    def _score(self, batch: Sequence[_Request], peers: Peers) -> None:
        """Score the rows of all requests in one walk."""
        slots, known = self._find([text for request in batch for text in request.ids], peers)
        edges = np.cumsum([0, *(len(request.ids) for request in batch)])
        walked = np.zeros(known.shape[1], dtype=np.bool_)
        for request, low, high in zip(batch, edges, edges[1:], strict=False):
            if not request.answer.done():
                try:
                    walked[low:high] = _walked(known[:, low:high], request.unknown)
                except RowsDiffer as error:  # the others are not affected
                    request.answer.set_exception(error)
        values = np.concatenate([request.values for request in batch], axis=1)[:, walked]
        margins = self._model.margins(values, peers, self._begin(slots, walked))
        scores = self._scores(margins, walked)
        for request, low, high in zip(batch, edges, edges[1:], strict=False):
            if not request.answer.done():
                request.answer.set_result((scores[low:high], self._status(known[:, low:high])))

    # --- explaining -------------------------------------------------------------------------------------

    def explain(
        self, table: PartyTable, unknown: Unknown = "error", seconds: float = CALL_SECONDS
    ) -> tuple[Scored, Explanation]:
        """Scores of new rows, and the contributions of the features to them, as far as the other parties show them.

        Parameters and errors are those of `score`. The contributions of rows that were skipped are NaN.
        """
        _check_unknown(unknown)
        ids = canonical_ids(table.ids)
        with self._serving:
            self._timeout(seconds, seconds)
            found = self._again(lambda peers: self._explain(table, ids, unknown, peers))
            self._save_growth()
        return found

    def _explain(
        self, table: PartyTable, ids: Sequence[bytes], unknown: Unknown, peers: Peers
    ) -> tuple[Scored, Explanation]:
        slots, known = self._find(ids, peers)
        walked = _walked(known, unknown)
        classes, rows = self._predictor.skeleton.classes, np.flatnonzero(walked)
        if len(rows):
            begin, columns = self._begin(slots, walked, explain=True), table.take(rows).columns
            found = explain_joint(self._model.share, columns, len(rows), peers, begin, self._connections.settings.cores)
        else:  # nobody is asked
            nothing = np.empty((0, self._predictor.skeleton.trees_per_round, 1))
            found = Explanation.of(nothing, (), (), {}, classes)
        scored = Scored(table.ids, self._scores(found.margins, walked), classes, self._status(known))
        return scored, found.spread(walked)

    # --- rows -------------------------------------------------------------------------------------------

    def _find(self, texts: Sequence[bytes], peers: Peers) -> tuple[Mapping[PartyName, Int32Array], BoolArray]:
        """The slots of ids at each party, and which party (a row of the matrix) knows which id."""
        keys = self._directory.keys(texts)
        self._directory.look_up(dict(zip(keys, texts, strict=True)), peers)
        slots = self._directory.slots(keys)
        return slots, np.stack([slots[name] != UNKNOWN for name in self._directory.parties])

    def _begin(
        self, slots: Mapping[PartyName, Int32Array], walked: BoolArray, explain: bool = False
    ) -> Mapping[PartyName, BeginScoring]:
        generations = self._directory.generations
        return {name: BeginScoring(generations[name], places[walked], explain) for name, places in slots.items()}

    def _scores(self, margins: Float64Array, walked: BoolArray) -> Float64Array:
        """The scores of all rows, from the margins of those that were walked; NaN for the others."""
        found = self._model.skeleton.loss.predict(margins)
        scores = np.full((len(walked), *found.shape[1:]), np.nan)
        scores[walked] = found
        return scores

    def _status(self, known: BoolArray) -> tuple[str, ...]:
        if known.all():
            return (KNOWN,) * known.shape[1]
        names = self._directory.parties
        lost = [", ".join(name for name, there in zip(names, row, strict=True) if not there) for row in known.T]
        return tuple(f"unknown at {where}" if where else KNOWN for where in lost)

    # --- the other parties ------------------------------------------------------------------------------

    def _again(self, act: Callable[[Peers], Made]) -> Made:
        """Do something with all parties; again if one was restarted, its table has changed, or there are new keys."""
        attempts = 0
        while True:
            attempts += 1
            try:
                return self._attempt(act)
            except StaleSession:
                if attempts == _ATTEMPTS:
                    raise
                self._opened.clear()
            except StaleIndex:
                if attempts == _ATTEMPTS:
                    raise
                self._directory.refresh(Peers(dict(self._callers)), *self.status.parties)
                self._saved = 0  # so that the new generation is stored
            except DeploymentEnded:
                if attempts == _ATTEMPTS or not self._replaced():
                    raise

    def _attempt(self, act: Callable[[Peers], Made]) -> Made:
        if self.status.now != LIVE:
            raise DeploymentEnded(f"the deployment {self.status.label} is {self.status.now}")
        peers = Peers(dict(self._callers))
        unopened = [name for name in self._callers if name not in self._opened]
        if unopened:
            peers.ask({name: OpenDeployment(self.folder.id) for name in unopened}, Done)
            self._opened.update(unopened)
            self._directory.refresh(peers, *unopened)
        return act(peers)

    def _replaced(self) -> bool:
        """Whether the deployment was given new keys; from now on this is the new one."""
        settings = self._connections.settings
        for each in _of_name(settings, self.status.name):
            if each.id != self.folder.id and each.status.version == self.version and each.status.now == LIVE:
                timeouts = self._timeouts
                self._hang_up()
                self._attach(settings, each)
                self._timeout(*timeouts)
                return True
        return False

    def _timeout(self, unreachable: float, idle: float) -> None:
        """From now on, wait this long for a party that cannot be reached, and for one that does not answer."""
        if not self._callers or self._timeouts != (unreachable, idle):
            self._hang_up()
            self._timeouts, options = (unreachable, idle), {"seconds": unreachable, "idle_timeout": idle}
            self._callers = {
                name: self._connections.caller(name, CATALOGUE, transcript=NoTranscript(self.info.party), **options)
                for name in self.status.parties
            }

    def _hang_up(self) -> None:
        for caller in self._callers.values():
            caller.close()
        self._callers.clear()
        self._opened.clear()

    def propose(self, days: float) -> None:
        """Ask all parties to accept the deployment, and look up the ids of this party's own table."""
        settings = self._connections.settings
        skeleton, status = self._predictor.skeleton, self.status
        with self._serving:
            self._timeout(settings.limits.connect_seconds, settings.limits.request_seconds)
            proposals = {
                name: ProposeDeployment(
                    self.folder.id,
                    status.name,
                    status.version,
                    status.run,
                    days,
                    len(skeleton.trees),
                    skeleton.digest(name),
                )
                for name in status.parties
            }
            peers, refusals = Peers(dict(self._callers)), list[VeilBoostError]()
            for name, pending in peers.send(proposals).items():
                try:
                    peers.collect({name: pending}, Done)
                except VeilBoostError as error:  # the others must have decided before it is withdrawn
                    refusals.append(error)
            if refusals:
                raise refusals[0]
            self._opened.update(proposals)
            self._directory.refresh(peers, *status.parties)
            texts = canonical_ids(settings.own_data.load().ids)
            self._directory.look_up(dict(zip(self._directory.keys(texts), texts, strict=True)), peers)
            self._hang_up()  # these timeouts are not those of requests
        self.save()

    def known_rows(self) -> dict[PartyName, int]:
        """How many rows each passive party has."""
        return {name: self._directory.rows(name) for name in self.status.parties}

    def save(self) -> None:
        """Store what was looked up: a later process need not ask again."""
        if self.folder.status.now == LIVE:
            self.folder.save_index(self._directory.state())
            self._saved = self._directory.looked_up

    def _save_growth(self) -> None:
        if self._directory.looked_up > _GROWTH * self._saved:
            self.save()

    def close(self) -> None:
        with self._serving:
            if self._directory.looked_up != self._saved:
                self.save()
            self._hang_up()
            self._connections.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_unknown(unknown: str) -> None:
    if unknown not in get_args(Unknown):
        raise InvalidParameter(f"unknown is {unknown!r}", f"use {', '.join(get_args(Unknown))}")


def _walked(known: BoolArray, unknown: Unknown) -> BoolArray:
    """Which rows of a request are walked, given which party knows which of them. Raises if it is refused."""
    everywhere: BoolArray = np.all(known, axis=0)
    if unknown == "error" and not everywhere.all():
        raise RowsDiffer(
            f"{int((~everywhere).sum())} of the {len(everywhere)} rows are not known to every party",
            "choose rows that all parties have, or skip or default for the others (--unknown)",
        )
    return np.ones_like(everywhere) if unknown == "default" else everywhere


def open_deployment(settings: PartySettings, folder: Path) -> Deployment:
    """The newest live deployment of the run in this folder. Contacts no party yet."""
    found = deployment_of_run(settings, folder)
    if found is None:
        what = f"the run {folder.resolve().name!r} is not deployed"
        raise UnknownDeployment(what, f"run veilboost deploy {folder} --config FILE")
    return Deployment(settings, found)


def deploy(settings: PartySettings, folder: Path, days: float = DAYS, name: str | None = None) -> Deployment:
    """Propose a deployment of a finished run to all passive parties, and return it. Needs all of them.

    If there is one of the same name already, also of another run, this is its next version; earlier ones stay.
    """
    opened = open_predictor(settings, folder)
    name = run_name(name or opened.info.name)
    versions = [each.status.version for each in _of_name(settings, name)]
    return _propose(settings, opened.info.name, name, max(versions, default=0) + 1, days)


def rekey(settings: PartySettings, folder: DeploymentFolder) -> Deployment:
    """Replace a deployment by one with new secrets and new slots, for the rest of its lifetime."""
    status = folder.status
    if status.now != LIVE:
        raise DeploymentEnded(f"the deployment {status.label} is {status.now}")
    made = _propose(settings, status.run, status.name, status.version, (status.until - time.time()) / DAY)
    withdraw(settings, folder)
    return made


def withdraw(settings: PartySettings, folder: DeploymentFolder) -> list[PartyName]:
    """End a deployment at this party. The active party also tells the others; returns those it could not tell.

    They are told when this party deploys or withdraws a model the next time.
    """
    status = folder.status
    if status.active != settings.name:
        folder.end(WITHDRAWN)
        return []
    _finish_earlier(settings)
    untold = _tell(settings, folder, status.parties)
    folder.end(WITHDRAWN, untold)
    return untold


def _tell(settings: PartySettings, folder: DeploymentFolder, parties: Sequence[PartyName]) -> list[PartyName]:
    """Tell parties that a deployment ends; returns those that could not be told."""
    untold = list[PartyName]()
    job = LivePredictor(settings, RunFolder.open(settings.runs, folder.status.run)).job
    with Connections(settings, job) as connections:
        for name in parties:
            caller = connections.caller(name, CATALOGUE, seconds=RELEASE_SECONDS)
            try:
                Peers({name: caller}).ask({name: WithdrawDeployment(folder.id)}, Done)
            except VeilBoostError:
                untold.append(name)
    return untold


def _finish_earlier(settings: PartySettings) -> None:
    """Do what earlier commands could not: remove secrets, and tell parties that could not be reached of an end."""
    end_expired(settings)
    for each in list_deployments(settings):
        status = each.status
        if status.untold and time.time() < status.until:
            with contextlib.suppress(VeilBoostError):  # its run may be deleted
                each.end(WITHDRAWN, _tell(settings, each, status.untold))


def _of_name(settings: PartySettings, name: str) -> list[DeploymentFolder]:
    return [
        each for each in list_deployments(settings) if (each.status.name, each.status.active) == (name, settings.name)
    ]


def _propose(settings: PartySettings, run: str, name: str, version: int, days: float) -> Deployment:
    opened = open_predictor(settings, settings.runs / run)
    if not isinstance(opened, LivePredictor):
        raise UnsupportedCombination(
            "this run is of a horizontal job: every participant has the full model and predicts without other parties",
            "use veilboost predict, or veilboost export for XGBoost",
        )
    if settings.own_data.id is None:
        raise ImpossibleSetting("rows are found by their ids, and the table has none", "name it: id under [data]")
    _finish_earlier(settings)
    now = time.time()
    status = DeploymentStatus(
        name=name,
        version=version,
        run=run,
        active=settings.name,
        parties=tuple(party for party in opened.skeleton.parties if party != settings.name),
        created=now,
        until=now + days * DAY,
        trees=len(opened.skeleton.trees),
    )
    folder = DeploymentFolder.create(settings, Csprng().bytes(16).hex(), status)
    made = Deployment(settings, folder)
    try:
        made.propose(days)
    except BaseException:
        with contextlib.suppress(VeilBoostError):
            made.close()
        withdraw(settings, folder)
        raise
    return made
