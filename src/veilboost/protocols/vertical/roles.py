"""The two roles of a vertical job: their contexts, and the parts that a protocol supplies.

All vertical protocols share one active role (`active.py`) and one passive role (`passive.py`). A protocol supplies the
two halves of its cipher, which send gradients and return statistics. The active role also has a selector, which scores
and chooses splits, and leaves, which compute leaf weights; a protocol may replace both. The halves of a cipher map
messages to messages and hold no connections.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from veilboost.boost.bins import BinLayout
from veilboost.boost.columns import ColumnBlock, CutProposal, Rules
from veilboost.boost.grower import Choices, Level, Round, best_choices
from veilboost.boost.limits import ColumnConstraints, RoundLimits
from veilboost.boost.rows import Assignments, RowGroups
from veilboost.boost.split import NO_LIMITS, Candidates, SplitLimits, candidates_from_sums, leaf_weights
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import JobRandomness
from veilboost.engine.api import LOCAL, Engine
from veilboost.errors import UnexpectedMessage
from veilboost.fixedpoint import Scale
from veilboost.model.share import SplitRecords
from veilboost.privacy.event import Account, Adjacency, ExactRelease, MemoryAccount
from veilboost.protocols.spec import ProtocolSpec, RoleFactory
from veilboost.protocols.vertical.messages import BeginRound, SplitAnswer, SplitRequest, StatisticsRequest
from veilboost.protocols.vertical.round_state import RoundState
from veilboost.types import Column, Float64Array, Int32Array, Int64Array, PartyName, Role
from veilboost.wire.channel import Peers, Pending
from veilboost.wire.message import Message


@dataclass(frozen=True)
class ActiveContext:
    """The inputs of the active role. It draws noise from `randomness` and books it in `account` before sending it."""

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
    largest_weight: float = 1.0  # largest sample weight
    bounded: bool = False  # whether the loss keeps every gradient within [-1, 1] for any labels
    exact: ExactReleases | None = None
    store: Callable[[int], None] | None = None  # asks the passive parties to store this many trees
    chose: Callable[[str], None] | None = None  # records what the protocol chose by itself
    constraints: ColumnConstraints | None = None


@dataclass(frozen=True)
class PassiveContext:
    """The inputs of the passive role. `agreed` and `held_out` are what its owner agreed to, if anything."""

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
    constraints: ColumnConstraints | None = None


Openings: TypeAlias = Mapping[PartyName, BeginRound]
Requests: TypeAlias = Mapping[PartyName, StatisticsRequest]
Waiting: TypeAlias = Mapping[PartyName, Pending]
Statistics: TypeAlias = Mapping[PartyName, Int64Array | Candidates]


@dataclass(frozen=True)
class ActiveRound:
    """A round at the active party.

    `start` has the gradients as they are sent (with noise, if any). `columns` are its own sampled columns, None for
    all.
    """

    start: Round
    block: ColumnBlock
    columns: Int32Array | None
    layouts: Mapping[PartyName, BinLayout]
    limits: RoundLimits | None = None

    def limits_of(self, owner: int, level: Level) -> SplitLimits:
        """The limits of one owner's splits at the open nodes of a level."""
        return NO_LIMITS if self.limits is None else self.limits.of(owner, level)


class StatisticsCipher(ABC):
    """The active half of a cipher: sends gradients and reads the returned statistics.

    `derives_siblings`: the sums of a node give those of its sibling. `shuffled`: passive parties permute their columns
    in each round, so the active party names all tied handles. `checks_totals`: the returned bins of every column must
    add up to the node's own sums. `asks_ahead`: a level's request holds nothing of the rows of its nodes, so that it
    can be sent together with the split request of the level above; sums, if any are returned, must be exact.
    `least_summed`: the fewest rows of a node that is summed for its sibling too, in a request ahead. `noisy_gains`:
    candidates are scored with noise, and the best of many noisy scores is too large to be the gain of a split.
    """

    shuffled: bool = False
    checks_totals: bool = False
    asks_ahead: bool = False
    least_summed: int = 1
    noisy_gains: bool = False

    def __init__(self, context: ActiveContext) -> None:
        self.context, self.config = context, context.config
        self.derives_siblings = context.config.proposal == "global"

    def begin_training(self, layouts: Mapping[PartyName, BinLayout]) -> None:  # noqa: B027 - few need it
        """The job has started at all passive parties, which have these bin layouts."""

    @property
    def chosen(self) -> str:
        """What the cipher chose for this job by itself, in words; empty if nothing."""
        return ""

    def shown(self, start: Round) -> Round:
        """Return the round with the gradients to train on: noisy, clipped or unchanged. Noise is booked here."""
        return start

    def openings(self, current: ActiveRound, openings: Openings) -> Openings:
        """Return the messages that start a round at the passive parties, with the protocol's own content if any."""
        return openings

    def opened(self, current: ActiveRound) -> None:  # noqa: B027 - few need it
        """All passive parties have received the opening message; send what did not fit into it."""

    def totals(self, level: Level) -> Int64Array:
        """The sums over all bins of a column, (nodes, 2)."""
        return level.totals

    def enter(self, current: ActiveRound, level: Level) -> tuple[ActiveRound, Level]:
        """Return the round and the level to sum and score."""
        return current, level

    def ask(self, current: ActiveRound, level: Level, requests: Requests) -> Waiting:
        """Send a level's requests. Those ahead come with the level above."""
        return self.context.peers.send(requests)

    @abstractmethod
    def read(self, current: ActiveRound, level: Level, waiting: Waiting) -> Statistics:
        """Return for each party sums (nodes of `level.build`, slots, 2), or candidates with a row per open node."""

    def tolerance(self, current: ActiveRound, name: PartyName, bins: Int64Array) -> Int64Array | int:
        """The allowed error of sums over this many bins, (candidates, 2): 0 if they are exact."""
        return 0

    def route(
        self, current: ActiveRound, level: Level, requests: Mapping[PartyName, SplitRequest]
    ) -> Mapping[PartyName, tuple[Assignments, Assignments]] | None:
        """The assignments of passive parties' splits if they are known here; None: request them from the owners."""
        return None


class Selector:
    """Scores candidates and selects the one with the best gain."""

    def __init__(self, context: ActiveContext) -> None:
        self.context, self.config = context, context.config

    def score(
        self,
        current: ActiveRound,
        level: Level,
        sums: Int64Array,
        layout: BinLayout,
        shuffled: bool,
        limits: SplitLimits,
    ) -> Candidates:
        """Return candidates of the level's open nodes from the sums of its nodes (nodes, slots, 2).

        `limits` are none in protocols whose spec does not limit splits.
        """
        scale, threads = current.start.scale, self.context.threads
        found = candidates_from_sums(
            sums, layout, level.totals, scale, self.config, threads, shuffled, level.open, limits
        )
        found.shuffled = shuffled
        return found

    def select(self, current: ActiveRound, level: Level, offers: Sequence[Candidates]) -> Choices:
        return best_choices(level, offers, self.config.gamma)


class Leaves:
    """Computes exact leaf weights from the true gradients."""

    def __init__(self, context: ActiveContext) -> None:
        self.context, self.config = context, context.config

    def begin_round(self, start: Round) -> None:
        """A round starts; `start` has the true gradients."""

    def weights(self, current: ActiveRound, level: Level, leaves: Int64Array, scale: Scale) -> Float64Array:
        """Return the weights of the nodes of `level` at `leaves`; the level's totals are true and on `scale`."""
        return leaf_weights(level.totals[leaves], scale, self.config)

    def end_round(self) -> None:
        """All trees of the round are grown; nothing that depends on their leaves has been sent yet."""


@dataclass(frozen=True)
class PassiveJob:
    """A started job at a passive party, and its own splits so far. No sample weight exceeds 2^weight_bits."""

    config: TrainingConfig
    trees_per_round: int
    weight_bits: int
    block: ColumnBlock
    rules: RuleBook


class PassiveCipher(ABC):
    """The passive half of a cipher: receives the content of a round and answers levels with statistics.

    A method that raises leaves the state unchanged. `shuffles`: columns have another order in every round
    (`RoundState.shuffle`), which statistics and handles use. `receives_samples`: the message of a round holds the
    sampled rows.
    """

    shuffles: bool = False
    receives_samples: bool = True
    job: PassiveJob

    def __init__(self, context: PassiveContext) -> None:
        self.context = context

    def cut_proposal(self, config: TrainingConfig, fit_rows: Int32Array | None) -> CutProposal | None:
        """How to find cut points from the rows to fit on (None: all); returns None to follow the configuration."""
        return None

    def begin_training(self, job: PassiveJob) -> None:
        self.job = job

    @abstractmethod
    def open_round(self, message: BeginRound) -> None:
        """Read the protocol's content of a round's message."""

    @abstractmethod
    def answer(self, message: StatisticsRequest, state: RoundState, build: RowGroups) -> Message:
        """Answer a level's request for these nodes; `state` has entered the level."""

    def chosen(self, message: SplitRequest) -> SplitRequest:
        """Return the request with its candidates filled in, if only this party knows them."""
        return message

    def other(self, message: Message, state: RoundState | None) -> Message:
        """Answer a request that is specific to the protocol."""
        raise UnexpectedMessage(f"{message.type_name()} is not a request to a passive party")


def role_of(side: Callable[[Any, Any], Any], cipher: Callable[[Any], Any]) -> RoleFactory:
    """Return the factory of a role that only needs its cipher; it counts as code of the cipher's module."""

    def role(context: Any) -> Any:
        return side(context, cipher(context))

    role.__module__ = getattr(cipher, "func", cipher).__module__
    return role


class RuleBook:
    """A party's own splits by (tree, node), with columns numbered among all its columns.

    The splits of each level are arrays, which are joined when someone asks for the records.
    """

    def __init__(self) -> None:
        self.restore(SplitRecords.of({}))

    def note(self, tree: Int32Array, node: Int32Array, rules: Rules, columns: Int32Array | None) -> None:
        """Store the rules of these nodes; `columns` lists the sampled columns of the tree, None for all."""
        self._levels.append((tree, node, rules.in_all_columns(columns)))

    def restore(self, records: SplitRecords) -> None:
        rules = Rules.of(list(records.rules().values()))
        self._levels: list[tuple[Int32Array, Int32Array, Rules]] = [(records.tree, records.node, rules)]

    def keep(self, trees: int) -> None:
        """Discard rules after the first `trees` trees."""
        tree, node, rules = self._joined()
        kept = (tree < trees).nonzero()[0]
        self._levels = [(tree[kept], node[kept], rules.take(kept))]

    def records(self) -> SplitRecords:
        return SplitRecords.in_order(*self._joined())

    def _joined(self) -> tuple[Int32Array, Int32Array, Rules]:
        """All trees, nodes and rules, in order."""
        trees, nodes, rules = zip(*self._levels, strict=True)
        tree, node = np.concatenate(trees), np.concatenate(nodes)
        order = np.lexsort((node, tree))
        joined = tree[order], node[order], Rules.joined(rules).take(order)
        self._levels = [joined]
        return joined


class ExactReleases:
    """Books the exact releases of a protocol's rounds before they are sent.

    Rounds are booked in groups of 1, 2, 4, ..., each in one transaction, because a commit takes longer than a fast
    round: a job that stops early has booked less than twice what it sent. A resumed job books the same groups, at no
    cost. A round that is begun again is booked again: the active party may ask other questions then.
    """

    def __init__(self, spec: ProtocolSpec, role: Role, account: Account, peers: Sequence[str]) -> None:
        self._spec, self._role, self._account, self._peers = spec, role, account, peers
        self._booked = -1

    def before_round(
        self, config: TrainingConfig, number: int, rows: int, bins: int, trees: int, again: int = 0
    ) -> None:
        """Book the group of rounds that contains this one, and this one if it was begun `again` times before.

        `bins` are the bins of all columns of this party, `trees` the trees per round.
        """
        if again:
            self._book(config, number, number, rows, bins, trees, f", repetition {again}")
        group = (number + 1).bit_length() - 1
        if group != self._booked:
            first = (1 << group) - 1
            self._book(config, first, min(2 * first, config.n_estimators - 1), rows, bins, trees)
            self._booked = group

    def _book(
        self, config: TrainingConfig, first: int, last: int, rows: int, bins: int, trees: int, note: str = ""
    ) -> None:
        plan = () if self._spec.plan is None else self._spec.plan(config, rows, self._role)
        counted = any(isinstance(event, ExactRelease) for event in plan)
        receiver = Role.ACTIVE if self._role is Role.PASSIVE else Role.PASSIVE
        events = [
            ExactRelease(
                what=shown.what,
                adjacency=Adjacency.LABEL if self._role is Role.ACTIVE else Adjacency.PASSIVE_RECORD,
                adversary=peer,
                protocol=self._spec.name,
                release=f"rounds {first} to {last}{note}, to {peer}: {shown.what}",
                count=last - first + 1,
                rows=rows,
                bins=bins if shown.per_bin else None,
                assignments=trees * config.max_depth if message is SplitAnswer else None,
                counted=counted,
            )
            for peer in self._peers
            for message in self._spec.exact_messages(config, first)
            for shown in message.reveals
            if shown.exact and shown.to == receiver
        ]
        if events:
            self._account.spend(*events)
