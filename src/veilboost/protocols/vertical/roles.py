"""The two roles of a vertical job: what they are given, and what they do.

The active side is the `SplitFinder` of a growing tree: it is asked for candidates, selects, splits and weighs
leaves, each a method that a protocol may replace. The passive side is driven by requests, a message in and a
message out, and holds no sockets; so the same code runs in a test, a simulation and a daemon.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from veilboost.boost.columns import ColumnBlock
from veilboost.boost.grower import SplitFinder
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import JobRandomness
from veilboost.engine.api import LOCAL, Engine
from veilboost.model.part import SplitRecords
from veilboost.privacy.account import Account, MemoryAccount
from veilboost.privacy.event import Adjacency, ExactRelease
from veilboost.protocols.spec import ProtocolSpec
from veilboost.types import BoolArray, Column, Float64Array, PartyName, Role
from veilboost.wire.channel import Peers
from veilboost.wire.message import Message


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
    bounded: bool = False  # whether the loss keeps every gradient within [-1, 1], whatever the labels
    exact: ExactReleases | None = None


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
    exact: ExactReleases | None = None


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


class ExactReleases:
    """Books what a protocol's rounds show exactly, before they show it.

    Rounds are booked in groups of 1, 2, 4, ... rounds, in one transaction each: a commit for every round would take
    longer than a quick round. So a job that stops early has booked less than twice the rounds that it showed. A job
    that resumes books the same groups, which costs nothing.
    """

    def __init__(self, spec: ProtocolSpec, role: Role, account: Account, peers: Sequence[str]) -> None:
        self._spec, self._role, self._account, self._peers = spec, role, account, peers
        self._booked = -1

    def before_round(self, config: TrainingConfig, number: int, rows: int, bins: int) -> None:
        """Book the group of rounds that this one is in. `bins`: of all columns of this party."""
        group = (number + 1).bit_length() - 1
        if group == self._booked:
            return
        first = (1 << group) - 1
        last = min(2 * first, config.n_estimators - 1)
        plan = () if self._spec.plan is None else self._spec.plan(config, rows, self._role)
        counted = any(isinstance(event, ExactRelease) for event in plan)
        receiver = Role.ACTIVE if self._role is Role.PASSIVE else Role.PASSIVE
        events = [
            ExactRelease(
                what=shown.what,
                adjacency=Adjacency.LABEL if self._role is Role.ACTIVE else Adjacency.PASSIVE_RECORD,
                adversary=peer,
                protocol=self._spec.name,
                release=f"rounds {first} to {last}, to {peer}: {shown.what}",
                count=last - first + 1,
                rows=rows,
                bins=bins if shown.per_bin else None,
                counted=counted,
            )
            for peer in self._peers
            for message in self._spec.exact_messages(config, first)
            for shown in message.reveals
            if shown.exact and shown.to == receiver
        ]
        if events:
            self._account.spend(*events)
        self._booked = group
