"""What a protocol is: its spec, and the two sides of a vertical job.

The active side is the `SplitFinder` of a growing tree: it is asked for candidates, selects, splits and weighs
leaves, each a method that a protocol may replace. The passive side is driven by requests, a message in and a
message out, and holds no sockets; so the same code runs in a test, a simulation and a daemon.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from veilboost.boost.columns import ColumnBlock
from veilboost.boost.grower import SplitFinder
from veilboost.config import TrainingConfig
from veilboost.model.part import SplitRecords
from veilboost.privacy.statement import Statement
from veilboost.types import BoolArray, Column, Float64Array, PartyName
from veilboost.wire.channel import Peers
from veilboost.wire.message import Message


@dataclass(frozen=True)
class ActiveContext:
    """What an active side is given: its own binned columns, the job's order of parties, the way to the others."""

    party: PartyName
    order: tuple[PartyName, ...]
    block: ColumnBlock
    rows: int
    peers: Peers
    config: TrainingConfig
    trees_per_round: int
    threads: int


@dataclass(frozen=True)
class PassiveContext:
    """What a passive side is given: its own aligned columns, and the parameters that its owner agreed to, if any."""

    party: PartyName
    columns: tuple[Column, ...]
    rows: int
    threads: int
    agreed: TrainingConfig | None = None


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


@dataclass(frozen=True)
class ProtocolSpec:
    """A protocol: its name, what it claims, and how to make its sides.

    `exact`: the model equals that of `plain` bit for bit under the same parameters.
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
