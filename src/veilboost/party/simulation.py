"""All parties in one process: the same roles, the same messages, a channel of memory between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from veilboost.boost.booster import RoundResult, Watcher
from veilboost.boost.objective import CustomLoss
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import JobRandomness, unsafe_key
from veilboost.crypto.paillier.prepared import PreparedOwner, PreparedRandomness
from veilboost.data.table import PartyTable
from veilboost.engine.api import LOCAL, Engine
from veilboost.errors import DuplicateColumns, EmptyTable, ImpossibleParameter, MissingLabel, RowsDiffer
from veilboost.infer.joint import predict_joint, predict_oneshot
from veilboost.infer.messages import PREDICTION_MESSAGES
from veilboost.infer.responder import PredictionResponder
from veilboost.model.part import Part
from veilboost.party.session import PassiveSession, TrainingJob, train_active
from veilboost.privacy.account import MemoryAccount
from veilboost.privacy.statement import Noise
from veilboost.protocols.registry import protocol_named
from veilboost.protocols.validation import resolve
from veilboost.types import BoolArray, Float64Array, PartyName
from veilboost.wire.channel import Peers
from veilboost.wire.codec import Catalogue
from veilboost.wire.memory import MemoryChannel
from veilboost.wire.transcript import Record, Transcript


@dataclass(frozen=True)
class Simulation:
    """A finished training run of all parties. `secrets` is what each drew its noise, masks and keys from."""

    active: PartyName
    parts: Mapping[PartyName, Part]
    metric: str
    history: Sequence[RoundResult]
    transcripts: Mapping[PartyName, Transcript]
    rounds: int
    accounts: Mapping[PartyName, MemoryAccount]
    secrets: Mapping[PartyName, JobRandomness]
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
    classes: Sequence[str] | None = None,
    record: Record = "types",
    prepared: PreparedOwner | None = None,
    engine: Engine = LOCAL,
    unsafe_noise_seed: int | None = None,
) -> Simulation:
    """Train on aligned tables; the order of `tables` is the job's order of parties.

    `classes` declares the names of the label's classes, where they may not come from the labels.
    `record="payload"` keeps all messages in the transcripts, for the audit. `prepared` is a Paillier key of the active
    party, made beforehand. All parties' own arithmetic runs on `engine`.

    Noise, masks and keys come from the operating system. `unsafe_noise_seed` is for tests that must repeat them: anyone
    who knows the number can take the noise off again, and the model says so.
    """
    spec = protocol_named(protocol)
    _check_tables(tables, active)
    resolve(spec, config, tables[active], engine=engine.name, custom_loss=custom_loss, classes=classes)
    transcripts = {name: Transcript(name, record=record) for name in tables}
    accounts = {name: MemoryAccount() for name in tables}
    secrets = {name: _randomness(name, unsafe_noise_seed) for name in tables}
    if prepared is not None:
        secrets[active] = PreparedRandomness(secrets[active].key, prepared)
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
    job = TrainingJob(spec, config, tuple(tables), custom_loss, None if classes is None else tuple(classes))
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
    own = outcome.part if unsafe_noise_seed is None else marked_unsafe(outcome.part)
    parts = {name: own if name == active else sessions[name].part() for name in tables}
    return Simulation(
        active,
        parts,
        outcome.metric,
        outcome.history,
        transcripts,
        peers.rounds,
        accounts,
        secrets,
        engine.name,
        engine.workers,
    )


def _randomness(party: PartyName, unsafe_noise_seed: int | None) -> JobRandomness:
    return JobRandomness(None if unsafe_noise_seed is None else unsafe_key(unsafe_noise_seed, party))


def marked_unsafe(part: Part) -> Part:
    """The part of a model whose noise a test chose: it says so wherever it goes."""
    if part.skeleton is None:
        return part
    return replace(part, skeleton=replace(part.skeleton, noise=Noise.REPRODUCIBLE))


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
