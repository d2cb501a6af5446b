"""The interface of alignment methods: entity alignment by private set intersection (PSI).

The active party drives; the passive parties answer its requests. A method may need third parties (an authority, a
computing service). Every party reaches them over channels of its own, because the data that it sends them must not
pass through other parties.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from veilboost.align.ids import Hashing, canonical_ids
from veilboost.crypto.csprng import Csprng
from veilboost.crypto.fingerprint import HASHES
from veilboost.data.table import PartyTable, id_order
from veilboost.errors import EmptyIntersection, InvalidParameter, UnexpectedMessage
from veilboost.fields import renamed
from veilboost.privacy.statement import Statement
from veilboost.types import AnyArray, Int64Array, PartyName
from veilboost.wire.channel import Peers
from veilboost.wire.message import Message, Reveals

MOST_ROWS = 1 << 27  # per party; a longer list is refused before any computation


@dataclass(frozen=True)
class Alignment:
    """One party's result: the positions of its common rows. Entry k is the same record at every party."""

    positions: Int64Array

    @property
    def rows(self) -> int:
        return len(self.positions)

    def by_id(self, ids: AnyArray) -> Alignment:
        """The same rows in the canonical order of this party's own ids.

        Common rows have the same id at every party, so all parties compute the same order without a message. It is also
        the order of a simulation, so samples of rows drawn by position are the same.
        """
        common = ids[self.positions]
        if common.dtype.kind != "i":
            common = np.array([text.decode() for text in canonical_ids(common)])
        return Alignment(self.positions[id_order(common)])

    def apply(self, table: PartyTable) -> PartyTable:
        """The party's common rows, in the common order."""
        return table.take(self.positions)


@dataclass(frozen=True)
class AlignContext:
    """The input of a party: its own ids, the parties of the job, and its own channels to third parties by role."""

    party: PartyName
    order: tuple[PartyName, ...]
    ids: AnyArray
    helpers: Peers = field(default_factory=lambda: Peers({}))
    random: Csprng = field(default_factory=Csprng)
    threads: int = 1
    most_rows: int = MOST_ROWS
    hash: str = HASHES[0]  # the keyed hash of ids, if the method uses one; that of the job
    hashing: Hashing = field(default_factory=Hashing)  # how this party computes it


@dataclass(frozen=True)
class HelperContext:
    """The input of a third party: the parties that may call it, and a key that it issued before, to be used once."""

    parties: tuple[PartyName, ...]
    random: Csprng = field(default_factory=Csprng)
    most_rows: int = MOST_ROWS
    take_key: Callable[[], bytes | None] = lambda: None


class ActiveAligner(ABC):
    """The active party's role: it drives the alignment."""

    def __init__(self, context: AlignContext, peers: Peers) -> None:
        self._context, self._peers = context, peers

    @abstractmethod
    def prepare(self) -> None:
        """Do the work that needs no other party's rows and may be done long before: hashing, sorting."""

    @abstractmethod
    def align(self) -> Alignment:
        """Run the exchange. Raises `EmptyIntersection` if no row is common."""


class PassiveAligner(ABC):
    """A passive party's role: it answers, and has the positions of its common rows when the exchange ends."""

    def __init__(self, context: AlignContext) -> None:
        self._context = context
        self._positions: Int64Array | None = None

    @abstractmethod
    def handle(self, message: Message) -> Message:
        """Answer a request. Raises a coded error, and keeps its state, if the request is invalid."""

    def alignment(self) -> Alignment:
        if self._positions is None:
            raise UnexpectedMessage("the common rows are not known yet")
        if not len(self._positions):
            raise EmptyIntersection("the parties have no row in common")
        return Alignment(self._positions)


class HelperRole(ABC):
    """A third party's role. The channel determines which party calls, not the message."""

    @abstractmethod
    def handle(self, party: PartyName, message: Message) -> Message:
        """Answer a party's request. Raises a coded error, and keeps its state, if the request is invalid."""


COMMON_ROWS = (
    Reveals("which of its rows all parties have in common", "active"),
    Reveals("which of its rows all parties have in common", "passive"),
    Reveals("how many rows are common", "active"),
    Reveals("how many rows are common", "passive"),
)


@dataclass(frozen=True)
class AlignmentSpec:
    """An alignment method and its privacy statement.

    `outcome` is what the result itself reveals, even if no message revealed anything; message classes declare what they
    reveal beyond it. `finds_by_id`: common rows have the same id at every party. `hashes_ids`: a party hashes its ids
    under a key of the authority, which it may do before the job.
    """

    name: str
    summary: str
    source: str
    finds_by_id: bool
    statement: Statement
    outcome: tuple[Reveals, ...]
    messages: tuple[type[Message], ...]
    active: Callable[[AlignContext, Peers], ActiveAligner]
    passive: Callable[[AlignContext], PassiveAligner]
    helpers: Mapping[str, Callable[[HelperContext], HelperRole]]
    hashes_ids: bool = False

    @property
    def roles(self) -> tuple[str, ...]:
        return ("active", "passive", *self.helpers)

    def learned_by(self, role: str) -> tuple[str, ...]:
        """Everything that a role learns from the result and from messages."""
        revealed = (*self.outcome, *(item for message in self.messages for item in message.reveals))
        return tuple(dict.fromkeys(item.what for item in revealed if item.to == role))


@cache
def all_alignments() -> dict[str, AlignmentSpec]:
    """The alignment methods, by name."""
    from veilboost.align import ecdh, hmac_csp, prealigned  # they import this module

    return {spec.name: spec for spec in (prealigned.SPEC, ecdh.SPEC, hmac_csp.SPEC)}


def alignment_named(name: str) -> AlignmentSpec:
    found = all_alignments()
    if name not in found:
        new = renamed(name, found)
        if new is not None:
            raise InvalidParameter(f"the alignment {name!r} was renamed to {new!r}", f"use {new}")
        raise InvalidParameter(f"there is no alignment {name!r}", f"use one of {', '.join(found)}")
    return found[name]
