"""The two roles of a vertical job: what they are given, and what a protocol supplies.

There is one active side (`active.py`) and one passive side (`passive.py`). A protocol gives them the two halves of its
cipher: how gradients go out and how statistics come back. The active side has a selector, which scores and chooses, and
leaves, which weigh; a protocol may replace both. Halves of a cipher are message in, message out, and hold no sockets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from veilboost.boost.bins import BinLayout
from veilboost.boost.columns import ColumnBlock, CutProposal, Rule, in_all_columns
from veilboost.boost.grower import Choices, Level, Round, best_choices
from veilboost.boost.rows import Assignments, RowGroups
from veilboost.boost.split import Candidates, candidates_from_sums, leaf_weights
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import JobRandomness
from veilboost.engine.api import LOCAL, Engine
from veilboost.errors import UnexpectedMessage
from veilboost.fixedpoint import Scale
from veilboost.model.share import SplitRecords
from veilboost.privacy.event import Account, Adjacency, ExactRelease, MemoryAccount
from veilboost.protocols.spec import ProtocolSpec, RoleFactory
from veilboost.protocols.vertical.messages import BeginRound, SplitRequest, StatisticsRequest
from veilboost.protocols.vertical.round_state import RoundState
from veilboost.types import Column, Float64Array, Int32Array, Int64Array, PartyName, Role
from veilboost.wire.channel import Peers, Pending
from veilboost.wire.message import Message


@dataclass(frozen=True)
class ActiveContext:
    """What an active side is given. Noise is drawn from `randomness`, and booked in `account` before it leaves."""

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
    """What a passive side is given. Its owner `agreed` to these parameters and rows held out, if to anything."""

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


Openings: TypeAlias = Mapping[PartyName, BeginRound]
Requests: TypeAlias = Mapping[PartyName, StatisticsRequest]
Waiting: TypeAlias = Mapping[PartyName, Pending]
Statistics: TypeAlias = Mapping[PartyName, Int64Array | Candidates]


@dataclass(frozen=True)
class ActiveRound:
    """A round at the active party. `start` has the gradients as they are shown; `columns`: own ones, None for all."""

    start: Round
    block: ColumnBlock
    columns: Int32Array | None
    layouts: Mapping[PartyName, BinLayout]


class StatisticsCipher(ABC):
    """The active half: sends gradients out and reads the statistics that come back.

    `derives_siblings`: sums of a node give those of its sibling. `shuffled`: passive parties show their columns in
    another order each round, so all handles that tie are named. `checks_totals`: the bins of every column that come
    back must add up to the node's own sums.
    """

    shuffled: bool = False
    checks_totals: bool = False

    def __init__(self, context: ActiveContext) -> None:
        self.context, self.config = context, context.config
        self.derives_siblings = context.config.proposal == "global"

    def begin_training(self, layouts: Mapping[PartyName, BinLayout]) -> None:  # noqa: B027 - few need it
        """The job is open at all passive parties, whose bins lie so."""

    def shown(self, start: Round) -> Round:
        """The round as it is grown: its gradients with noise, clipped or as they are. Noise is booked here."""
        return start

    def openings(self, current: ActiveRound, openings: Openings) -> Openings:
        """What opens a round at the passive parties: `openings` with the protocol's own content, if it has any."""
        return openings

    def opened(self, current: ActiveRound) -> None:  # noqa: B027 - few need it
        """All passive parties have the round's opening; what did not fit into it follows here."""

    def totals(self, level: Level) -> Int64Array:
        """What the bins of a column add up to, (nodes, 2)."""
        return level.totals

    def enter(self, current: ActiveRound, level: Level) -> tuple[ActiveRound, Level]:
        """The round and the level as they are summed and scored."""
        return current, level

    def ask(self, current: ActiveRound, level: Level, requests: Requests) -> Waiting:
        """Send a level's requests."""
        return self.context.peers.send(requests)

    @abstractmethod
    def read(self, current: ActiveRound, level: Level, waiting: Waiting) -> Statistics:
        """Of each party with an offer: sums (nodes of `level.build`, slots, 2), or candidates, a row per open node."""

    def tolerance(self, current: ActiveRound, name: PartyName, bins: Int64Array) -> Int64Array | int:
        """How far sums over so many bins may be off, (candidates, 2): not at all where they are exact."""
        return 0

    def route(
        self, current: ActiveRound, level: Level, requests: Mapping[PartyName, SplitRequest]
    ) -> Mapping[PartyName, tuple[Assignments, Assignments]] | None:
        """Where rows go by passive parties' splits, where that is known here; None: the owners are asked."""
        return None


class Selector:
    """Scores candidates and chooses among them: the best gain wins."""

    def __init__(self, context: ActiveContext) -> None:
        self.context, self.config = context, context.config

    def score(
        self, current: ActiveRound, sums: Int64Array, layout: BinLayout, totals: Int64Array, shuffled: bool
    ) -> Candidates:
        """Candidates from sums of the open nodes (nodes, slots, 2) and their totals (nodes, 2)."""
        found = candidates_from_sums(
            sums, layout, totals, current.start.scale, self.config, self.context.threads, keep_gains=shuffled
        )
        return replace(found, shuffled=True) if shuffled else found

    def select(self, current: ActiveRound, level: Level, offers: Sequence[Candidates]) -> Choices:
        return best_choices(level, offers, self.config.gamma)


class Leaves:
    """Weighs leaves: exactly, from the true gradients."""

    def __init__(self, context: ActiveContext) -> None:
        self.context, self.config = context, context.config

    def begin_round(self, start: Round) -> None:
        """A round starts; `start` has the true gradients."""

    def weights(self, current: ActiveRound, level: Level, leaves: Int64Array, scale: Scale) -> Float64Array:
        """The weights of the nodes at `leaves`, which `level` closes; its totals are true and on `scale`."""
        return leaf_weights(level.totals[leaves], scale, self.config)

    def end_round(self) -> None:
        """All trees of the round are grown; nothing that depends on their leaves has left yet."""


@dataclass(frozen=True)
class PassiveJob:
    """A job that has begun at a passive party, and its own splits so far. No sample weight exceeds 2^weight_bits."""

    config: TrainingConfig
    trees_per_round: int
    weight_bits: int
    block: ColumnBlock
    rules: RuleBook


class PassiveCipher(ABC):
    """The passive half: takes in what a round brings and answers levels with statistics.

    A method that refuses leaves everything as it was. `shuffles`: the columns of every round stand in an order of their
    own (`RoundState.shuffle`): statistics are shown in it, and handles come back in it. `hears_samples`: a round says
    which rows it samples.
    """

    shuffles: bool = False
    hears_samples: bool = True
    job: PassiveJob

    def __init__(self, context: PassiveContext) -> None:
        self.context = context

    def cut_proposal(self, config: TrainingConfig, fit_rows: Int32Array | None) -> CutProposal | None:
        """How cuts are found from the rows to fit on (None: all); None: as the configuration says."""
        return None

    def begin_training(self, job: PassiveJob) -> None:
        self.job = job

    @abstractmethod
    def open_round(self, message: BeginRound) -> None:
        """Take in what a round brings beside sampling."""

    @abstractmethod
    def answer(self, message: StatisticsRequest, state: RoundState, build: RowGroups) -> Message:
        """Answer a level's request for these nodes; `state` has entered the level."""

    def chosen(self, message: SplitRequest) -> SplitRequest:
        """A split with the candidates that it means, where only the owner knows these."""
        return message

    def other(self, message: Message, state: RoundState | None) -> Message:
        """Answer a request of the protocol's own."""
        raise UnexpectedMessage(f"{message.type_name()} is not a request to a passive party")


def role_of(side: Callable[[Any, Any], Any], cipher: Callable[[Any], Any]) -> RoleFactory:
    """What makes a role that is all in its cipher; it counts as code of the cipher's module."""

    def role(context: Any) -> Any:
        return side(context, cipher(context))

    role.__module__ = getattr(cipher, "func", cipher).__module__
    return role


class RuleBook:
    """A party's own splits by (tree, node), in the numbering of all its columns."""

    def __init__(self) -> None:
        self._rules: dict[tuple[int, int], Rule] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._rules

    def note(self, keys: Iterable[tuple[int, int]], rules: Iterable[Rule], columns: Int32Array | None) -> None:
        """Keep these; `columns` lists those that took part in the tree, None for all."""
        for key, rule in zip(keys, rules, strict=True):
            self._rules[key] = in_all_columns(rule, columns)

    def restore(self, records: SplitRecords) -> None:
        self._rules = records.rules()

    def keep(self, trees: int) -> None:
        """Forget what came after so many trees."""
        self._rules = {key: rule for key, rule in self._rules.items() if key[0] < trees}

    def records(self) -> SplitRecords:
        return SplitRecords.of(self._rules)


class ExactReleases:
    """Books what a protocol's rounds show exactly, before they show it.

    In groups of 1, 2, 4, ... rounds, each in one transaction, for a commit takes longer than a quick round: a job that
    stops early has booked less than twice what it showed. One that resumes books the same groups, at no cost.
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
