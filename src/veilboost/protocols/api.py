"""What a protocol is: its spec, and the two sides of a vertical job.

The active side is the `SplitFinder` of a growing tree: it is asked for candidates, selects, splits and weighs
leaves, each a method that a protocol may replace. The passive side is driven by requests, a message in and a
message out, and holds no sockets; so the same code runs in a test, a simulation and a daemon.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from veilboost.boost.columns import ColumnBlock
from veilboost.boost.grower import SplitFinder
from veilboost.config import ProtocolOptions, TrainingConfig
from veilboost.crypto.csprng import JobRandomness
from veilboost.engine.api import LOCAL, Engine
from veilboost.model.part import SplitRecords
from veilboost.privacy.account import Account, MemoryAccount
from veilboost.privacy.event import Event
from veilboost.privacy.statement import Statement
from veilboost.types import BoolArray, Column, Float64Array, PartyName, Role
from veilboost.wire.channel import Peers
from veilboost.wire.message import Message

if TYPE_CHECKING:
    from veilboost.privacy.calibrate import CalibrationRequest


@dataclass(frozen=True)
class ActiveContext:
    """What an active side is given: its own binned columns, the job's order of parties, the way to the others.

    Noise is drawn from `randomness`, and booked in `account` before what it protects leaves.
    """

    party: PartyName
    order: tuple[PartyName, ...]
    block: ColumnBlock
    rows: int
    peers: Peers
    config: TrainingConfig
    trees_per_round: int
    threads: int
    randomness: JobRandomness = field(default_factory=JobRandomness)
    account: Account = field(default_factory=MemoryAccount)
    largest_weight: float = 1.0  # of a row, where rows have weights


@dataclass(frozen=True)
class PassiveContext:
    """What a passive side is given: its own aligned columns, and what its owner agreed to, if anything.

    That is the parameters, and how many rows are kept for validation.
    """

    party: PartyName
    columns: tuple[Column, ...]
    rows: int
    threads: int
    agreed: TrainingConfig | None = None
    randomness: JobRandomness = field(default_factory=JobRandomness)
    account: Account = field(default_factory=MemoryAccount)
    engine: Engine = LOCAL
    held_out: int | None = None


class ActiveSide(SplitFinder, ABC):
    """The label side of a vertical protocol."""

    @abstractmethod
    def begin_training(self, held_out: BoolArray | None, bin_weights: Float64Array | None) -> Sequence[int]:
        """Open the job at all passive parties; returns how many columns each owner has, in the job's order.

        Rows of `held_out` are kept for validation and shape no cuts; quantiles count `bin_weights`.
        """

    @abstractmethod
    def resume(self, records: SplitRecords, trees: int) -> None:
        """Go on after `trees` trees: every passive party forgets what came later, `records` are our own until there."""

    @abstractmethod
    def records(self) -> SplitRecords:
        """The active party's own split records so far."""

    @abstractmethod
    def end_training(self, trees: int) -> SplitRecords:
        """Close the job: the first `trees` trees are kept. Returns the active party's own split records."""


class PassiveSide(ABC):
    """The feature side of a vertical protocol."""

    @abstractmethod
    def handle(self, message: Message) -> Message:
        """Answer a request, or raise a coded error and stay as before."""

    @abstractmethod
    def records(self) -> SplitRecords:
        """The split records so far; when the job has ended, those of the model."""

    @abstractmethod
    def restore(self, records: SplitRecords) -> None:
        """Take back the split records of an earlier part of the same job, after it began anew here."""

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Has the job ended?"""


class Plan(Protocol):
    """What a party of a role would release of so many rows and columns of its own, before the job starts."""

    def __call__(self, config: TrainingConfig, rows: int, role: Role, columns: int = 1) -> Sequence[Event]: ...


@dataclass(frozen=True)
class ProtocolSpec:
    """A protocol: its name, what it claims, and how to make its sides.

    `exact`: the model equals that of `plain` bit for bit under the same parameters. `options` are its own
    parameters; `refuse` raises where a configuration does not fit it. `plan` tells what a job will release, before it
    starts; `calibrate` turns budgets into options; `delta_option` names the option with the delta of all releases of a
    role's data together, if there is one; `complete` fills in what depends on the number of rows;
    `security_bits` is the strength of its encryption, where it encrypts; `sets`: it can send sets of categories left;
    `engines` are those that a party's own arithmetic may run on.
    """

    name: str
    setting: Literal["vertical", "horizontal"]
    summary: str
    source: str
    exact: bool
    statement: Statement
    messages: tuple[type[Message], ...]
    active: Callable[[ActiveContext], ActiveSide]
    passive: Callable[[PassiveContext], PassiveSide]
    options: type[ProtocolOptions] = ProtocolOptions
    refuse: Callable[[TrainingConfig], None] | None = None
    plan: Plan | None = None
    calibrate: Callable[[CalibrationRequest], Mapping[str, Any]] | None = None
    delta_option: Callable[[TrainingConfig, Role], str | None] = lambda config, role: None
    complete: Callable[[TrainingConfig, int], TrainingConfig] | None = None
    security_bits: Callable[[TrainingConfig], int] | None = None
    sets: bool = True
    engines: tuple[str, ...] = ("local",)

    def settled(self, config: TrainingConfig) -> TrainingConfig:
        """The configuration with what follows from the protocol alone."""
        if config.categories != "auto":
            return config
        return replace(config, categories="sets" if self.sets else "onehot")

    def completed(self, config: TrainingConfig, rows: int) -> TrainingConfig:
        """The configuration with what the protocol chooses for so many rows; all parties choose alike."""
        config = self.settled(config)
        return config if self.complete is None else self.complete(config, rows)

    def delta(self, config: TrainingConfig, role: Role) -> float | None:
        """The delta for which a job's noise on this role's data is made; None where no option says so."""
        name = self.delta_option(config, role)
        return None if name is None else float(getattr(self.options.from_dict(config.options), name))

    def check(self, config: TrainingConfig) -> None:
        """Refuse what this protocol cannot do, at the door: unknown or impossible options, combinations."""
        self.options.from_dict(config.options)
        if self.refuse is not None:
            self.refuse(config)
