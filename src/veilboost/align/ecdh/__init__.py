"""`ecdh`: Diffie-Hellman private set intersection (PSI); no third party, no common key.

Ids are hashed to points of an elliptic curve. The parties form a ring. Each blinds its own set; then all sets move one
party on, as often as there are other parties, and the party that holds a set blinds it. The active party drives and
carries the sets. Blinding commutes, so in the end an id is the same point in every set that contains it, under all
secrets at once: the active party compares the sets, and no party can undo the blinding alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from veilboost.align.api import COMMON_ROWS, ActiveAligner, AlignContext, Alignment, AlignmentSpec, PassiveAligner
from veilboost.align.ids import canonical_ids, contains, distinct, find, sort_order, strictly_sorted
from veilboost.crypto.curve import SCALAR_BYTES, check_points, hash_to_points, multiply
from veilboost.errors import EmptyIntersection, FalseIntersection, MalformedMessage, UnexpectedMessage
from veilboost.privacy.statement import Protection, Statement, Status
from veilboost.types import Int64Array, PartyName, UInt8Array
from veilboost.wire.channel import Peers
from veilboost.wire.message import ArraySpec, Done, Message, Reveals

Points = Annotated[UInt8Array, ArraySpec("uint8", 2)]


@dataclass(frozen=True)
class BlindOwn(Message):
    """Active to passive: hash your ids to points and blind them."""

    reveals: ClassVar[tuple[Reveals, ...]] = ()


@dataclass(frozen=True)
class OwnPoints(Message):
    """Passive to active: its ids as points under its own secret, sorted, which hides the order of its rows."""

    reveals: ClassVar[tuple[Reveals, ...]] = (Reveals("how many rows the passive party has", "active"),)
    points: Points


@dataclass(frozen=True)
class BlindOther(Message):
    """Active to passive: the points of `owner`, blinded by others so far. Blind them too."""

    reveals: ClassVar[tuple[Reveals, ...]] = (Reveals("how many rows every other party has", "passive"),)
    owner: str
    points: Points


@dataclass(frozen=True)
class OtherPoints(Message):
    """Passive to active: the same points in the same order, blinded with its secret as well."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("which of the active party's own ids each passive party knows, common to all or not", "active"),
        Reveals("how many rows any two or more parties share", "active"),
    )
    points: Points


@dataclass(frozen=True)
class CommonRows(Message):
    """Active to passive: the positions of the common rows in the points that it sent first, in the common order."""

    reveals: ClassVar[tuple[Reveals, ...]] = (Reveals("which of its rows all parties have in common", "passive"),)
    places: Annotated[Int64Array, ArraySpec("int64", 1)]


@dataclass(frozen=True)
class BlindedIds:
    """A secret used for one alignment, the party's points under it, sorted, and the row of each."""

    secret: bytes
    points: UInt8Array
    rows: Int64Array
    threads: int

    @classmethod
    def prepare(cls, context: AlignContext) -> BlindedIds:
        """Hash and blind. Needs no other party."""
        texts = canonical_ids(context.ids)
        secret = context.random.bytes(SCALAR_BYTES)
        points = multiply(hash_to_points(texts, context.threads), secret, context.threads)
        order = sort_order(points)
        return cls(secret, points[order], order, context.threads)

    def blind(self, points: UInt8Array) -> UInt8Array:
        """Blind another party's points with this secret too; the order is kept."""
        return multiply(points, self.secret, self.threads)


def check_set(points: UInt8Array, most_rows: int) -> None:
    """Refuse points that cannot be a set of blinded ids."""
    check_points(points)
    if len(points) > most_rows:
        raise MalformedMessage(f"there are more than {most_rows} points")
    if not distinct(points):
        raise MalformedMessage("a point repeats")


class EcdhActive(ActiveAligner):
    """Blinds as the other parties do, carries the sets around the ring, and compares them at the end."""

    def __init__(self, context: AlignContext, peers: Peers) -> None:
        super().__init__(context, peers)
        self._own: BlindedIds | None = None
        self._sets: dict[PartyName, UInt8Array] = {}

    def prepare(self) -> None:
        self._prepared()

    def align(self) -> Alignment:
        own = self._prepared()
        for step in range(1, len(self._context.order)):
            self._move(own, step)
        common = _common(list(self._sets.values()))
        places = {name: _places(points, common) for name, points in self._sets.items()}
        # Sent even if no row is common: the other parties must not keep waiting.
        self._peers.ask({name: CommonRows(places[name]) for name in self._peers.names}, Done)
        if not len(common):
            raise EmptyIntersection(f"the {len(self._sets)} parties have no row in common")
        return Alignment(own.rows[places[self._context.party]])

    def _prepared(self) -> BlindedIds:
        if self._own is None:
            pending = self._peers.send({name: BlindOwn() for name in self._peers.names})
            own = BlindedIds.prepare(self._context)
            sets = {self._context.party: own.points}
            for name, answer in self._peers.collect(pending, OwnPoints).items():
                check_set(answer.points, self._context.most_rows)
                if not strictly_sorted(answer.points):
                    raise MalformedMessage(f"{name} did not sort its points")
                sets[name] = answer.points
            self._sets = sets
            self._own = own
        return self._own

    def _move(self, own: BlindedIds, step: int) -> None:
        """Every set goes to the party `step` positions after its owner."""
        order, mine = self._context.order, self._context.party
        owner_at = {holder: order[at - step] for at, holder in enumerate(order)}
        pending = self._peers.send(
            {name: BlindOther(owner_at[name], self._sets[owner_at[name]]) for name in self._peers.names}
        )
        moved = {owner_at[mine]: own.blind(self._sets[owner_at[mine]])}
        for name, answer in self._peers.collect(pending, OtherPoints).items():
            check_set(answer.points, self._context.most_rows)
            if len(answer.points) != len(self._sets[owner_at[name]]):
                raise MalformedMessage(f"{name} sent back a different number of points")
            moved[owner_at[name]] = answer.points
        self._sets = moved


def _common(sets: list[UInt8Array]) -> UInt8Array:
    """The points in all sets, sorted: the order of the finished points is the common order."""
    shortest, *others = (points[sort_order(points)] for points in sorted(sets, key=len))
    for other in others:
        shortest = shortest[contains(other, shortest)]
    return shortest


def _places(points: UInt8Array, common: UInt8Array) -> Int64Array:
    """The position of each common point in a set that keeps its owner's order."""
    order = sort_order(points)
    return order[find(points[order], common)].astype(np.int64, copy=False)


class EcdhPassive(PassiveAligner):
    """Blinds its own set, then one set of each other party, and receives the positions of its common rows.

    One set of each: blinding whatever comes, as often as it comes, would let the active party test ids at will.
    """

    def __init__(self, context: AlignContext) -> None:
        super().__init__(context)
        self._own: BlindedIds | None = None
        self._sizes: dict[PartyName, int] = {}

    def handle(self, message: Message) -> Message:
        own = self._own
        if isinstance(message, BlindOwn) and own is None:
            self._own = BlindedIds.prepare(self._context)
            return OwnPoints(self._own.points)
        if own is not None and self._positions is None:
            if isinstance(message, BlindOther):
                return self._blind(own, message)
            if isinstance(message, CommonRows) and len(self._sizes) == len(self._context.order) - 1:
                return self._finish(own, message.places)
        raise UnexpectedMessage(f"{message.type_name()} is not expected at this point of the alignment")

    def _blind(self, own: BlindedIds, message: BlindOther) -> OtherPoints:
        if message.owner not in self._context.order or message.owner == self._context.party:
            raise MalformedMessage("received points of a party that takes no part in this alignment")
        if message.owner in self._sizes:
            raise UnexpectedMessage("the points of this owner were blinded already")
        check_set(message.points, self._context.most_rows)
        blinded = own.blind(message.points)
        self._sizes[message.owner] = len(message.points)
        return OtherPoints(blinded)

    def _finish(self, own: BlindedIds, places: Int64Array) -> Done:
        if len(places) and (places.min() < 0 or places.max() >= len(own.rows)):
            raise MalformedMessage("a position is outside this party's rows")
        if len(np.unique(places)) != len(places):
            raise MalformedMessage("a common row repeats")
        if len(places) > min(self._sizes.values(), default=0):
            raise FalseIntersection("more rows are reported as common than the smallest party has")
        self._positions = own.rows[places]
        return Done()


SPEC = AlignmentSpec(
    name="ecdh",
    summary="Diffie-Hellman PSI: every party blinds every set of ids once, the active party compares; no third party",
    source="Diffie-Hellman set intersection (Meadows 1986; Huberman, Franklin, Hogg 1999), as a ring",
    finds_by_id=True,
    statement=Statement(
        (
            Protection(
                victim="active",
                data="ids",
                adversary="every passive party",
                status=Status.SOUND,
                why="it sees blinded points, random under decisional Diffie-Hellman on Curve25519 with the hash a "
                "random oracle, and the common rows",
            ),
            Protection(
                victim="passive",
                data="ids that the active party does not know",
                adversary="an active party that follows the protocol",
                status=Status.SOUND,
                why="under the same assumptions it learns only how many there are and how many are shared by whom",
            ),
            Protection(
                victim="passive",
                data="ids that the active party knows but not all parties do",
                adversary="the active party",
                status=Status.UNPROTECTED,
                why="comparing the finished sets shows which of its own ids each passive party knows",
            ),
            Protection(
                victim="passive",
                data="ids",
                adversary="an active party that deviates",
                status=Status.UNPROTECTED,
                why="it can put guessed ids into the sets it carries and see which are known",
            ),
        )
    ),
    outcome=COMMON_ROWS,
    messages=(BlindOwn, OwnPoints, BlindOther, OtherPoints, CommonRows, Done),
    active=EcdhActive,
    passive=EcdhPassive,
    helpers={},
)
