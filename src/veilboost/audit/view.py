"""One party's view of a run, and, separate from it, the true data that guesses are scored against."""

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
POOLED, USER = "passive parties", "user"  # extra roles in an audit: pooled views, and a user who requests predictions


@dataclass(frozen=True)
class Seen:
    """One message that a party sent or received."""

    direction: Direction
    peer: PartyName
    message: Message


@dataclass(frozen=True)
class View:
    """Everything that one party has after a run. An attack reads this and nothing else.

    `role` is active, passive, server, participant, comparer or authority, as in messages. `config` is the job's
    configuration, completed for its rows. `own` is the party's own aligned table and `secret` the key of its own
    randomness, which every party knows; they are None if they were not given. `sums` is the statement of the protocol's
    spec about sums per bin. `members` are the views of colluding parties.
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
        """The parties that this party exchanged messages with, in order of first contact."""
        return tuple(dict.fromkeys(seen.peer for seen in self.messages))

    def received(self, kind: type[M], peer: PartyName | None = None) -> list[M]:
        """Received messages of this class or its subclasses, in order, from one peer or from all."""
        return self._of("received", kind, peer)

    def sent(self, kind: type[M], peer: PartyName | None = None) -> list[M]:
        return self._of("sent", kind, peer)

    def with_peer(self, peer: PartyName) -> list[Message]:
        """All messages exchanged with one peer, in both directions, in order."""
        return [seen.message for seen in self.messages if seen.peer == peer]

    def _of(self, direction: Direction, kind: type[M], peer: PartyName | None) -> list[M]:
        return [
            seen.message
            for seen in self.messages
            if seen.direction == direction and isinstance(seen.message, kind) and peer in (None, seen.peer)
        ]


def without_messages(party: PartyName, role: str, like: View, members: Sequence[View] = ()) -> View:
    """The view of an adversary that is not a single party: colluding parties, or a user who requests predictions."""
    return View(party, role, like.protocol, like.config, like.rows, (), members=tuple(members))


@dataclass(frozen=True)
class Truth:
    """The aligned tables of all parties, for scoring. An attack reads them after it has guessed.

    An attack that assumes prior knowledge of a few of the victim's values also takes them from here, and reports how
    many. `shares` are the available model shares; with all of them, the model can predict. `fresh` are aligned rows
    that were not used in training, by the parties of these shares.
    """

    tables: Mapping[PartyName, PartyTable]
    roles: Mapping[PartyName, str]
    config: TrainingConfig
    held_out: BoolArray | None = None
    shares: Mapping[PartyName, ModelShare] = field(default_factory=dict[PartyName, ModelShare])
    fresh: Mapping[PartyName, PartyTable] = field(default_factory=dict[PartyName, PartyTable])

    @cached_property
    def untrained(self) -> Mapping[PartyName, PartyTable]:
        """Rows that were not used in training: `fresh`, or the rows held out for validation, or none."""
        if self.fresh or self.held_out is None:
            return self.fresh
        rows = np.flatnonzero(self.held_out)
        return {name: table.take(rows) for name, table in self.tables.items()}

    def labels(self, party: PartyName) -> Float64Array:
        """The labels of an active party or a participant."""
        found = self.tables[party].label
        if found is None:
            raise MissingLabel(f"there are no labels of {party} to score a guess against")
        return found

    @cached_property
    def _blocks(self) -> dict[PartyName, ColumnBlock]:
        return {}

    def block(self, party: PartyName) -> ColumnBlock:
        """A party's columns in the bins of the job (global proposal)."""
        if party not in self._blocks:
            table = self.tables[party]
            fit = None if self.held_out is None else np.flatnonzero(~self.held_out).astype(np.int32)
            weights = next((t.weight for t in self.tables.values() if t.weight is not None), None)
            weights = weights if self.config.weighted_bins else None
            self._blocks[party] = ColumnBlock.build(table.columns, table.rows, self.config, weights, fit)
        return self._blocks[party]
