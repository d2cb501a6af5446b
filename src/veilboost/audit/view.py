"""What one party saw of a run, and, kept apart from it, the truth that a guess is scored against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np

from veilboost.boost.columns import ColumnBlock
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import JobRandomness
from veilboost.data.table import PartyTable
from veilboost.errors import MissingLabel
from veilboost.model.share import ModelShare
from veilboost.protocols.spec import BinSums
from veilboost.types import BoolArray, Float64Array, PartyName
from veilboost.wire.message import Message
from veilboost.wire.transcript import Direction

M = TypeVar("M", bound=Message)
TOGETHER, ASKER = (
    "passive parties",
    "user",
)  # roles in an audit: those who pool their views, and whoever asks for scores


@dataclass(frozen=True)
class Seen:
    """One message that a party sent or received."""

    direction: Direction
    peer: PartyName
    message: Message


@dataclass(frozen=True)
class View:
    """All that one party has after a run: an attack sees this and nothing else.

    `role` is a name as messages use it: active, passive; server, participant, comparer, authority. `config` is the
    job's, completed for its rows. `own` is the party's own aligned table and `secret` the key its own randomness
    came from: everybody knows their own. They are None where they were not handed in. `sums` is what the protocol's
    spec says of sums per bin. `members` are the views of parties that work together.
    """

    party: PartyName
    role: str
    protocol: str
    config: TrainingConfig
    rows: int
    messages: tuple[Seen, ...]
    share: ModelShare | None = None
    own: PartyTable | None = None
    secret: JobRandomness | None = None
    sums: BinSums = field(default_factory=BinSums)
    members: tuple[View, ...] = ()

    @property
    def peers(self) -> tuple[PartyName, ...]:
        """With whom this party spoke, in order of first contact."""
        return tuple(dict.fromkeys(seen.peer for seen in self.messages))

    def received(self, kind: type[M], peer: PartyName | None = None) -> list[M]:
        """Messages of this class (or below it) that came, in order; from one peer, or from all."""
        return self._of("received", kind, peer)

    def sent(self, kind: type[M], peer: PartyName | None = None) -> list[M]:
        return self._of("sent", kind, peer)

    def with_peer(self, peer: PartyName) -> list[Message]:
        """The conversation with one peer, both directions, in order."""
        return [seen.message for seen in self.messages if seen.peer == peer]

    def _of(self, direction: Direction, kind: type[M], peer: PartyName | None) -> list[M]:
        return [
            seen.message
            for seen in self.messages
            if seen.direction == direction and isinstance(seen.message, kind) and peer in (None, seen.peer)
        ]


def without_messages(party: PartyName, role: str, like: View, members: Sequence[View] = ()) -> View:
    """The view of somebody else than one party of the run: several together, or whoever asks for scores."""
    return View(party, role, like.protocol, like.config, like.rows, (), members=tuple(members))


@dataclass(frozen=True)
class Truth:
    """Everyone's aligned tables, for scoring: an attack looks here after it has guessed.

    An attack that needs a few of the victim's values beforehand takes them from here too, and says how many. `shares`
    are the model's, as far as they are there: who has all of them can answer for the model. `fresh` are aligned rows
    that were kept from training, by the parties of these shares.
    """

    tables: Mapping[PartyName, PartyTable]
    roles: Mapping[PartyName, str]
    config: TrainingConfig
    held_out: BoolArray | None = None
    shares: Mapping[PartyName, ModelShare] = field(default_factory=dict[PartyName, ModelShare])
    fresh: Mapping[PartyName, PartyTable] = field(default_factory=dict[PartyName, PartyTable])

    @cached_property
    def strangers(self) -> Mapping[PartyName, PartyTable]:
        """Rows that were not trained on: `fresh`, or else those held out for validation; empty where there are none."""
        if self.fresh or self.held_out is None:
            return self.fresh
        rows = np.flatnonzero(self.held_out)
        return {name: table.take(rows) for name, table in self.tables.items()}

    def labels(self, party: PartyName) -> Float64Array:
        """The labels that a party holds: an active party's or a participant's."""
        found = self.tables[party].label
        if found is None:
            raise MissingLabel(f"there are no labels of {party} to score a guess against")
        return found

    @cached_property
    def _blocks(self) -> dict[PartyName, ColumnBlock]:
        return {}

    def block(self, party: PartyName) -> ColumnBlock:
        """A party's columns in the bins that the job gave them (global proposal)."""
        if party not in self._blocks:
            table = self.tables[party]
            fit = None if self.held_out is None else np.flatnonzero(~self.held_out).astype(np.int32)
            weights = next((t.weight for t in self.tables.values() if t.weight is not None), None)
            weights = weights if self.config.weighted_bins else None
            self._blocks[party] = ColumnBlock.build(table.columns, table.rows, self.config, weights, fit)
        return self._blocks[party]
