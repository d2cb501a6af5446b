"""All parties of a job in one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias, cast

from veilboost.boost.booster import RoundResult, Watcher
from veilboost.boost.objective import CustomLoss
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import Csprng, JobRandomness, unsafe_key
from veilboost.crypto.paillier.keys import PreparedOwner, PreparedRandomness
from veilboost.data.table import PartyTable
from veilboost.engine.api import LOCAL, Engine
from veilboost.errors import (
    DuplicateColumns,
    EmptyTable,
    InvalidParameter,
    MissingLabel,
    RowsDiffer,
    UnsupportedCombination,
)
from veilboost.infer.joint import JointModel, PredictionResponder
from veilboost.infer.messages import PREDICTION_MESSAGES, BeginPrediction
from veilboost.model.continued import check_continues, extended, with_columns_of
from veilboost.model.joined import JoinedModel, join
from veilboost.model.share import ModelShare, Skeleton, TrainingOutcome
from veilboost.party.training import PassiveSession, TrainingJob, train_active
from veilboost.privacy.event import MemoryAccount
from veilboost.privacy.statement import Noise
from veilboost.protocols.constraints import check_constraints, constrained, without_constraints
from veilboost.protocols.horizontal.roles import (
    HelperContext,
    HelperRole,
    ParticipantContext,
    ParticipantRole,
    ServerContext,
    ServerRole,
)
from veilboost.protocols.registry import protocol_named
from veilboost.protocols.spec import ProtocolSpec
from veilboost.protocols.validation import ResolvedJob, check_start, resolve, settle
from veilboost.types import BoolArray, Float64Array, PartyName
from veilboost.wire.channel import Channel, Handler, MemoryChannel, Peers, Reply
from veilboost.wire.message import Catalogue, Message, frame_size
from veilboost.wire.transcript import Record, Transcript

Peek: TypeAlias = Callable[[Callable[[], Mapping[PartyName, ModelShare]]], None]

SERVER = "server"  # the server's name in a simulated horizontal job; helpers are named after their role


@dataclass(frozen=True)
class Simulation:
    """A finished training run of all parties.

    `outcome` is the driver's result. `shares` are those of the parties with a table, as far as each has one. `secrets`
    are the sources of each party's noise, masks and keys.
    """

    driver: PartyName
    outcome: TrainingOutcome
    shares: Mapping[PartyName, ModelShare]
    transcripts: Mapping[PartyName, Transcript]
    accounts: Mapping[PartyName, MemoryAccount]
    secrets: Mapping[PartyName, JobRandomness]
    rounds: int
    engine: str = LOCAL.name
    workers: int = 1  # processes that ran the parties' own computation

    @property
    def history(self) -> Sequence[RoundResult]:
        return self.outcome.history

    @property
    def metric(self) -> str:
        """The metric on validation rows; empty if no rows are held out."""
        return self.outcome.metric or ""

    @property
    def model(self) -> JoinedModel:
        """The joined model of all parties."""
        own = self.outcome.share
        return join(self.shares if self.driver in self.shares else {own.party: own})  # a server has the full model

    def first(self, rounds: int) -> Simulation:
        """The simulation with a model of the first `rounds` rounds."""
        trees = rounds * cast(Skeleton, self.outcome.share.skeleton).trees_per_round
        shares = {name: share.first(trees) for name, share in self.shares.items()}
        return replace(self, outcome=replace(self.outcome, share=self.outcome.share.first(trees)), shares=shares)

    @property
    def bytes_sent(self) -> int:
        return sum(transcript.bytes_sent() for transcript in self.transcripts.values())

    @property
    def messages(self) -> int:
        return sum(transcript.messages_sent() for transcript in self.transcripts.values())


def simulate_training(
    tables: Mapping[PartyName, PartyTable],
    driver: PartyName,
    protocol: str,
    config: TrainingConfig,
    *,
    held_out: BoolArray | Mapping[PartyName, BoolArray] | None = None,
    threads: int = 1,
    watcher: Watcher | None = None,
    custom_loss: CustomLoss | None = None,
    classes: Sequence[str] | None = None,
    record: Record = "types",
    prepared: PreparedOwner | None = None,
    engine: Engine = LOCAL,
    base_margin: Float64Array | None = None,
    earlier: Mapping[PartyName, ModelShare] | None = None,
    rate: Callable[[int], float] | None = None,
    peek: Peek | None = None,
    unsafe_noise_seed: int | None = None,
) -> Simulation:
    """Train with all parties in one process: the same roles and messages as between machines, over memory channels.

    Parameters
    ----------
    tables : mapping of party name to PartyTable
        Vertical protocols: aligned tables, in the job's order of parties. Horizontal protocols: tables with the same
        columns and different records. `load_table` makes them.
    driver : str
        The active party; 'server' (`SERVER`) for a horizontal protocol.
    protocol : str
        Name of the protocol; `veilboost protocols` lists all names.
    config : TrainingConfig
        The parameters of boosting and of the protocol.
    held_out : bool array, or mapping of participant name to bool array, default=None
        Mask of the rows kept for validation: of the aligned rows (vertical), or of each participant's (horizontal).
    threads : int, default=1
        Number of threads of each party.
    watcher : callable, default=None
        Called after each boosting round; if it returns True, training ends.
    custom_loss : callable, default=None
        A loss `(y_true, y_pred) -> (g, h)` that replaces the objective (vertical only).
    classes : sequence of str, default=None
        The names of the label's classes, declared instead of taken from the labels (vertical only).
    record : {'types', 'payload'}, default='types'
        What the transcripts keep of each message; the audit needs 'payload'.
    prepared : PreparedOwner, default=None
        A Paillier key of the active party, generated in advance.
    engine : Engine, default=LOCAL
        Where the parties compute (vertical only).
    base_margin : array of shape (K, rows), default=None
        The active party's margins to start from, instead of the base score (vertical only).
    earlier : mapping of party name to ModelShare, default=None
        The shares of a finished model of the same parties, to which this training adds its trees (vertical only).
    rate : callable, default=None
        Returns the learning rate of a round, by its number (vertical only).
    peek : callable, default=None
        Receives, after each round, a function that returns the shares of the model so far (vertical only).
    unsafe_noise_seed : int, default=None
        For tests that must repeat noise, masks and keys, which otherwise come from the operating system. Anyone who
        knows this number can remove the noise; the model records that it was used.

    Returns
    -------
    Simulation
        The driver's outcome, each party's model share, transcript and privacy account, and the joined `model`.

    Raises
    ------
    VeilBoostError
        If a table, a parameter or the combination of protocol and parameters is invalid.

    Examples
    --------
    >>> from veilboost import TrainingConfig, load_table, make_demo_data, simulate_training
    >>> from veilboost.align.clear import align_by_id
    >>> data = make_demo_data(customers=1000)
    >>> tables = {
    ...     party: load_table(frame, id="customer_id", label="default" if party == "bank" else None)
    ...     for party, frame in data.items()
    ... }
    >>> run = simulate_training(align_by_id(tables), "bank", "plain", TrainingConfig(n_estimators=5, max_depth=3))
    >>> len(run.model.trees)
    5
    """
    spec = protocol_named(protocol)
    if spec.setting == "horizontal":
        if base_margin is not None or earlier is not None:
            check_start(spec, config)
        if rate is not None or peek is not None:
            raise UnsupportedCombination(
                f"{protocol} is horizontal: its learning rate is fixed, and its model is complete at the end only",
                "leave rate and peek out",
            )
        if (custom_loss, classes, prepared, engine.name) != (None, None, None, LOCAL.name):
            raise UnsupportedCombination(
                f"{protocol} is horizontal: its server has no table, and it takes no custom loss, declared classes, "
                "prepared key or engine",
                "leave these out, or use a vertical protocol",
            )
        of_each = cast("Mapping[PartyName, BoolArray] | None", held_out)
        return HorizontalFederation(
            protocol,
            tables,
            config,
            threads=threads,
            watcher=watcher,
            held_out=of_each,
            record=record,
            unsafe_noise_seed=unsafe_noise_seed,
        ).train()
    active = driver
    _check_tables(tables, active)
    tables, config = constrained(tables, config), without_constraints(config)
    for table in tables.values():
        check_constraints(spec, config, table.constraints, table.columns)
    started = base_margin is not None or earlier is not None
    job = resolve(
        spec, config, tables[active], engine=engine.name, custom_loss=custom_loss, classes=classes, started=started
    )
    start = base_margin
    if earlier is not None:
        tables, start = _continued(earlier, active, tables, job, start)
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

    def shares_of(own: ModelShare) -> dict[PartyName, ModelShare]:
        made = {name: own if name == active else sessions[name].share() for name in tables}
        if earlier is None:
            return made
        trees = len(cast(Skeleton, earlier[active].skeleton).trees)
        return {name: extended(earlier[name], share, trees) for name, share in made.items()}

    outcome = train_active(
        TrainingJob(spec, config, tuple(tables), custom_loss, None if classes is None else tuple(classes)),
        active,
        tables[active],
        peers,
        cast("BoolArray | None", held_out),
        threads,
        watcher=watcher,
        randomness=secrets[active],
        account=accounts[active],
        engine=engine,
        start=start,
        rate=rate,
        peek=None if peek is None else lambda own: peek(lambda: shares_of(own())),
    )
    if unsafe_noise_seed is not None:
        outcome = replace(outcome, share=marked_unsafe(outcome.share))
    shares = shares_of(outcome.share)
    outcome = replace(outcome, share=shares[active])
    return Simulation(
        active, outcome, shares, transcripts, accounts, secrets, peers.rounds, engine.name, engine.workers
    )


def _continued(
    earlier: Mapping[PartyName, ModelShare],
    active: PartyName,
    tables: Mapping[PartyName, PartyTable],
    job: ResolvedJob,
    base_margin: Float64Array | None,
) -> tuple[dict[PartyName, PartyTable], Float64Array]:
    """The tables with the categories of the earlier model, and the margins that it gives them."""
    skeleton = None if active not in earlier else earlier[active].skeleton
    if skeleton is None:
        raise MissingLabel(f"the earlier model has no skeleton of {active}", "continue it with the same active party")
    name = job.config.objective if job.custom_loss is None else "custom"
    check_continues(skeleton, job.spec.name, name, job.classes, tuple(tables), job.config)
    known = {party: with_columns_of(earlier[party], table) for party, table in tables.items()}
    margins = simulate_prediction(earlier, active, known)
    if base_margin is not None:
        margins = margins - skeleton.base_margin[:, None] + base_margin
    return known, margins


class HorizontalFederation:
    """The roles of one horizontal job, connected by memory channels; `unsafe_noise_seed` as in `simulate_training`."""

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
        self._unsafe = unsafe_noise_seed is not None
        spec = protocol_named(protocol, "horizontal")
        config = settle(spec, config)
        _check_participants(tables, spec)
        self.participants: dict[PartyName, ParticipantRole] = {}
        self.helpers: dict[str, HelperRole] = {}
        self.accounts = {name: MemoryAccount() for name in tables}
        self.secrets = {name: _randomness(name, unsafe_noise_seed) for name in tables}
        self.transcripts = {who: Transcript(who, record=record) for who in (SERVER, *tables, *spec.helpers)}
        catalogue = Catalogue(spec.messages)

        def channel(caller: str, callee: str, handler: Handler) -> Channel:
            return MemoryChannel(handler, catalogue, self.transcripts[caller], self.transcripts[callee], coded)

        def channels_to_helpers(caller: str) -> Peers:
            return Peers(
                {
                    role: channel(caller, role, partial(self._help, caller, role))
                    for role in spec.helpers
                    if role != caller
                }
            )

        order = tuple(tables)
        for role in spec.helpers:
            context = HelperContext(
                SERVER,
                order,
                {name: name for name in spec.helpers},
                channels_to_helpers(role),
                config,
                Csprng(None if unsafe_noise_seed is None else unsafe_key(unsafe_noise_seed, role)),
            )
            self.helpers[role] = spec.roles[role](context)
        for name, table in tables.items():
            self.participants[name] = spec.roles["participant"](
                ParticipantContext(
                    party=name,
                    participants=order,
                    table=table,
                    helpers=channels_to_helpers(name),
                    config=config,
                    threads=threads,
                    randomness=self.secrets[name],
                    account=self.accounts[name],
                    held_out=None if held_out is None else held_out.get(name),
                )
            )
        self.peers = Peers({name: channel(SERVER, name, partial(self._answer, name)) for name in tables})
        introductions = {name: self._introduce(name) for name in tables}
        self.server: ServerRole = spec.roles["server"](
            ServerContext(SERVER, self.peers, introductions, config, threads, watcher)
        )

    def _introduce(self, name: PartyName) -> Message:
        """A participant's introduction; between organisations it answers the proposal of the job."""
        introduction = self.participants[name].introduce()
        size = frame_size(introduction)
        self.transcripts[name].record("sent", SERVER, introduction, size)
        self.transcripts[SERVER].record("received", name, introduction, size)
        return introduction

    # Handlers look up roles when they are called, so that a test may replace them.

    def _help(self, caller: PartyName, role: str, message: Message) -> Reply:
        return self.helpers[role].handle(caller, message)

    def _answer(self, name: PartyName, message: Message) -> Reply:
        return self.participants[name].handle(message)

    def train(self) -> Simulation:
        outcome = self.server.train()
        shares = {name: role.share for name, role in self.participants.items() if role.share is not None}
        if self._unsafe:
            outcome = replace(outcome, share=marked_unsafe(outcome.share))
            shares = {name: marked_unsafe(share) for name, share in shares.items()}
        return Simulation(SERVER, outcome, shares, self.transcripts, self.accounts, self.secrets, self.peers.rounds)


def _randomness(party: PartyName, unsafe_noise_seed: int | None) -> JobRandomness:
    return JobRandomness(None if unsafe_noise_seed is None else unsafe_key(unsafe_noise_seed, party))


def marked_unsafe(share: ModelShare) -> ModelShare:
    """Mark the share of a model whose noise a test chose."""
    if share.skeleton is None:
        return share
    return replace(share, skeleton=replace(share.skeleton, noise=Noise.REPRODUCIBLE))


def simulate_prediction(
    shares: Mapping[PartyName, ModelShare], active: PartyName, tables: Mapping[PartyName, PartyTable]
) -> Float64Array:
    """Margins (K, rows) for aligned tables, with the same messages as between real parties."""
    absent = [name for name in shares if name not in tables]
    if absent:
        raise RowsDiffer(f"there are no rows of {', '.join(absent)}")
    model, rows = JointModel(shares[active]), tables[active].rows
    catalogue, depth = Catalogue(PREDICTION_MESSAGES), model.skeleton.config.max_depth
    here = Transcript(active)
    peers = Peers(
        {
            name: MemoryChannel(
                PredictionResponder(share, share.matrix(tables[name].columns, rows), depth).handle,
                catalogue,
                here,
                Transcript(name),
            )
            for name, share in shares.items()
            if name != active
        }
    )
    values = shares[active].matrix(tables[active].columns, rows)
    return model.margins(values, peers, {name: BeginPrediction(rows) for name in peers.names})


def _check_tables(tables: Mapping[PartyName, PartyTable], active: PartyName) -> None:
    if active not in tables:
        raise MissingLabel(f"there is no party {active!r}, which should be the active party")
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


def _check_participants(tables: Mapping[PartyName, PartyTable], spec: ProtocolSpec) -> None:
    if not tables:
        raise EmptyTable("there is no participant", "give at least one participant's rows")
    for name, table in tables.items():
        if name in spec.roles:
            raise InvalidParameter(f"a participant has the name of a role, {name!r}", "give it another name")
        if not table.columns or not table.rows:
            raise EmptyTable(f"participant {name} has no feature or no row")
