"""All parties in one process: the same roles, the same messages, a channel of memory between them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from veilboost.boost.booster import RoundResult, Watcher
from veilboost.boost.objective import CustomLoss
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import JobRandomness
from veilboost.data.table import PartyTable
from veilboost.engine.api import LOCAL, Engine, check_job
from veilboost.errors import DuplicateColumns, EmptyTable, ImpossibleParameter, MissingLabel, RowsDiffer
from veilboost.infer.joint import predict_joint
from veilboost.infer.messages import PREDICTION_MESSAGES
from veilboost.infer.oneshot import predict_oneshot
from veilboost.infer.responder import PredictionResponder
from veilboost.model.part import Part
from veilboost.party.session import PassiveSession, TrainingJob, train_active
from veilboost.privacy.account import MemoryAccount
from veilboost.protocols.registry import protocol_named
from veilboost.types import BoolArray, Float64Array, PartyName
from veilboost.wire.channel import Peers
from veilboost.wire.codec import Catalogue
from veilboost.wire.memory import MemoryChannel
from veilboost.wire.transcript import Record, Transcript


@dataclass(frozen=True)
class Simulation:
    """A finished training run of all parties."""

    active: PartyName
    parts: Mapping[PartyName, Part]
    metric: str
    history: Sequence[RoundResult]
    transcripts: Mapping[PartyName, Transcript]
    rounds: int
    accounts: Mapping[PartyName, MemoryAccount]
    engine: str = LOCAL.name
    workers: int = 1  # processes that did the parties' own arithmetic

    @property
    def bytes_sent(self) -> int:
        return sum(transcript.bytes_sent() for transcript in self.transcripts.values())

    @property
    def messages(self) -> int:
        return sum(transcript.messages_sent() for transcript in self.transcripts.values())


def simulate_training(
    tables: Mapping[PartyName, PartyTable],
    active: PartyName,
    protocol: str,
    config: TrainingConfig,
    *,
    held_out: BoolArray | None = None,
    threads: int = 1,
    watcher: Watcher | None = None,
    custom_loss: CustomLoss | None = None,
    record: Record = "types",
    randomness: Mapping[PartyName, JobRandomness] | None = None,
    engine: Engine = LOCAL,
) -> Simulation:
    """Train on aligned tables; the order of `tables` is the job's order of parties.

    `record="payload"` keeps all messages in the transcripts, for the audit. Secrets come from the seed, so that a
    simulation can be repeated, unless `randomness` brings others. All parties' own arithmetic runs on `engine`.
    """
    spec = protocol_named(protocol)
    spec.check(config)
    check_job(engine.name, spec.name, spec.engines, config, custom_loss is not None)
    _check_tables(tables, active)
    transcripts = {name: Transcript(name, record=record) for name in tables}
    accounts = {name: MemoryAccount() for name in tables}
    secrets = randomness or {name: simulated_randomness(config, name) for name in tables}
    sessions = {
        name: PassiveSession(spec, name, table, threads, None, secrets[name], accounts[name], engine)
        for name, table in tables.items()
        if name != active
    }
    catalogue = Catalogue(spec.messages)
    peers = Peers(
        {
            name: MemoryChannel(session.side.handle, catalogue, transcripts[active], transcripts[name])
            for name, session in sessions.items()
        }
    )
    job = TrainingJob(spec, config, tuple(tables), custom_loss)
    outcome = train_active(
        job,
        active,
        tables[active],
        peers,
        held_out,
        threads,
        watcher=watcher,
        randomness=secrets[active],
        account=accounts[active],
        engine=engine,
    )
    parts = {name: outcome.part if name == active else sessions[name].part() for name in tables}
    return Simulation(
        active,
        parts,
        outcome.metric,
        outcome.history,
        transcripts,
        peers.rounds,
        accounts,
        engine.name,
        engine.workers,
    )


def simulated_randomness(config: TrainingConfig, party: PartyName) -> JobRandomness:
    """In one process nobody hides from anybody: the seed gives the noise too, so that a simulation can be repeated."""
    return JobRandomness(hashlib.sha256(f"simulation {config.seed} {party}".encode()).digest())


def simulate_prediction(
    parts: Mapping[PartyName, Part],
    active: PartyName,
    tables: Mapping[PartyName, PartyTable],
    method: str = "routed",
) -> Float64Array:
    """Margins (K, rows) for aligned tables, by the same messages as between real parties."""
    predict = {"routed": predict_joint, "oneshot": predict_oneshot}.get(method)
    if predict is None:
        raise ImpossibleParameter(f"there is no prediction method {method!r}", "use routed or oneshot")
    absent = [name for name in parts if name not in tables]
    if absent:
        raise RowsDiffer(f"there are no rows of {', '.join(absent)}")
    rows = tables[active].rows
    catalogue = Catalogue(PREDICTION_MESSAGES)
    here = Transcript(active)
    peers = Peers(
        {
            name: MemoryChannel(
                PredictionResponder(part, tables[name].columns, rows).handle,
                catalogue,
                here,
                Transcript(name),
            )
            for name, part in parts.items()
            if name != active
        }
    )
    return predict(parts[active], tables[active].columns, rows, peers)


def _check_tables(tables: Mapping[PartyName, PartyTable], active: PartyName) -> None:
    if active not in tables:
        raise MissingLabel(f"there is no party {active!r} to be the active one")
    seen: set[str] = set()
    for name, table in tables.items():
        if name != active and not table.columns:
            raise EmptyTable(f"passive party {name} has no feature")
        if table.rows != tables[active].rows:
            raise RowsDiffer(f"{name} has {table.rows} rows, {active} has {tables[active].rows}")
        for column in table.names:
            if column in seen:
                raise DuplicateColumns(f"two parties have a column {column!r}")
            seen.add(column)
    if not seen:
        raise EmptyTable("no party has a feature")
