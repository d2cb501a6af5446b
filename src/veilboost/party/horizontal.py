"""All sides of a horizontal job in one process: the same roles, the same messages, channels of memory between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from veilboost.boost.booster import Watcher
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import Csprng, JobRandomness, unsafe_key
from veilboost.data.table import PartyTable
from veilboost.errors import EmptyTable, ImpossibleParameter
from veilboost.model.joined import JoinedModel, join
from veilboost.model.part import Part
from veilboost.party.simulation import marked_unsafe
from veilboost.privacy.account import MemoryAccount
from veilboost.protocols.horizontal.roles import (
    HelperContext,
    HelperSide,
    HorizontalOutcome,
    ParticipantContext,
    ParticipantSide,
    ServerContext,
    ServerSide,
)
from veilboost.protocols.registry import protocol_named
from veilboost.protocols.validation import settle
from veilboost.types import BoolArray, PartyName
from veilboost.wire.channel import Channel, Peers, Reply
from veilboost.wire.codec import Catalogue, frame_size
from veilboost.wire.memory import Handler, MemoryChannel
from veilboost.wire.message import Message
from veilboost.wire.transcript import Record, Transcript

SERVER = "server"


@dataclass(frozen=True)
class HorizontalSimulation:
    """A finished horizontal run."""

    outcome: HorizontalOutcome
    parts: Mapping[PartyName, Part | None]
    transcripts: Mapping[PartyName, Transcript]
    accounts: Mapping[PartyName, MemoryAccount]
    rounds: int

    @property
    def model(self) -> JoinedModel:
        return join({self.outcome.part.party: self.outcome.part})

    @property
    def bytes_sent(self) -> int:
        return sum(transcript.bytes_sent() for transcript in self.transcripts.values())

    @property
    def messages(self) -> int:
        return sum(transcript.messages_sent() for transcript in self.transcripts.values())


class HorizontalFederation:
    """The sides of one job, wired by memory channels; `unsafe_noise_seed` as in `simulate_horizontal`."""

    def __init__(
        self,
        protocol: str,
        tables: Mapping[PartyName, PartyTable],
        config: TrainingConfig,
        *,
        threads: int = 1,
        watcher: Watcher | None = None,
        held_out: Mapping[PartyName, BoolArray] | None = None,
        coded: bool = False,
        record: Record = "types",
        unsafe_noise_seed: int | None = None,
    ) -> None:
        def key_of(who: str) -> bytes | None:
            return None if unsafe_noise_seed is None else unsafe_key(unsafe_noise_seed, who)

        self._unsafe = unsafe_noise_seed is not None
        spec = protocol_named(protocol, "horizontal")
        config = settle(spec, config)
        _check_tables(tables, tuple(spec.roles))
        self.participants: dict[PartyName, ParticipantSide] = {}
        self.helpers: dict[str, HelperSide] = {}
        self.accounts = {name: MemoryAccount() for name in tables}
        self.transcripts = {who: Transcript(who, record=record) for who in (SERVER, *tables, *spec.helpers)}
        catalogue = Catalogue(spec.messages)

        def channel(caller: str, callee: str, handler: Handler) -> Channel:
            return MemoryChannel(handler, catalogue, self.transcripts[caller], self.transcripts[callee], coded)

        def ways_to_helpers(caller: str) -> Peers:
            return Peers(
                {role: channel(caller, role, self._asked_by(caller, role)) for role in spec.helpers if role != caller}
            )

        order = tuple(tables)
        for role in spec.helpers:
            context = HelperContext(
                SERVER,
                order,
                {name: name for name in spec.helpers},
                ways_to_helpers(role),
                config,
                Csprng(key_of(role)),
            )
            self.helpers[role] = spec.roles[role](context)
        for name, table in tables.items():
            self.participants[name] = spec.roles["participant"](
                ParticipantContext(
                    party=name,
                    table=table,
                    helpers=ways_to_helpers(name),
                    config=config,
                    threads=threads,
                    randomness=JobRandomness(key_of(name)),
                    account=self.accounts[name],
                    held_out=None if held_out is None else held_out.get(name),
                )
            )
        self.peers = Peers({name: channel(SERVER, name, self._answered_by(name)) for name in tables})
        told = {name: self._introduced(name) for name in tables}
        self.server: ServerSide = spec.roles["server"](
            ServerContext(SERVER, self.peers, told, config, threads, watcher)
        )

    def _introduced(self, name: PartyName) -> Message:
        """What a participant tells when it agrees; between organisations its answer to the proposal of the job."""
        told = self.participants[name].introduce()
        size = frame_size(told)
        self.transcripts[name].record("sent", SERVER, told, size)
        self.transcripts[SERVER].record("received", name, told, size)
        return told

    # Handlers look sides up when they are called, so that a test may put others in their place.

    def _asked_by(self, caller: PartyName, role: str) -> Handler:
        def handle(message: Message) -> Reply:
            return self.helpers[role].handle(caller, message)

        return handle

    def _answered_by(self, name: PartyName) -> Handler:
        def handle(message: Message) -> Reply:
            return self.participants[name].handle(message)

        return handle

    def train(self) -> HorizontalSimulation:
        outcome = self.server.train()
        parts = {name: side.part for name, side in self.participants.items()}
        if self._unsafe:
            outcome = replace(outcome, part=marked_unsafe(outcome.part))
            parts = {name: None if part is None else marked_unsafe(part) for name, part in parts.items()}
        return HorizontalSimulation(outcome, parts, self.transcripts, self.accounts, self.peers.rounds)


def simulate_horizontal(
    tables: Mapping[PartyName, PartyTable],
    protocol: str,
    config: TrainingConfig,
    *,
    threads: int = 1,
    watcher: Watcher | None = None,
    held_out: Mapping[PartyName, BoolArray] | None = None,
    record: Record = "types",
    unsafe_noise_seed: int | None = None,
) -> HorizontalSimulation:
    """Train on tables with the same columns and different people; the rows of `held_out` are kept for validation.

    Noise, masks and keys come from the operating system; `unsafe_noise_seed` is for tests, as in `simulate_training`.
    """
    return HorizontalFederation(
        protocol,
        tables,
        config,
        threads=threads,
        watcher=watcher,
        held_out=held_out,
        record=record,
        unsafe_noise_seed=unsafe_noise_seed,
    ).train()


def _check_tables(tables: Mapping[PartyName, PartyTable], roles: tuple[str, ...]) -> None:
    if not tables:
        raise EmptyTable("there is no participant", "give at least one participant's rows")
    for name, table in tables.items():
        if name in roles:
            raise ImpossibleParameter(f"a participant is called {name!r}, as a role is", "give it another name")
        if not table.columns or not table.rows:
            raise EmptyTable(f"participant {name} has no feature or no row")
