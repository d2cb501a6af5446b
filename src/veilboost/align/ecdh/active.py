"""The driving side of `ecdh`.

The parties stand in a ring. Each blinds its own set; then all sets move one party on, as often as there are other
parties, and whoever holds a set blinds it. Blinding commutes, so in the end an id is the same point in every set that
has it, under all secrets at once: the active party compares, and no party could undo it alone.
"""

from __future__ import annotations

import numpy as np

from veilboost.align.api import ActiveAligner, AlignContext, Alignment
from veilboost.align.ecdh.blinded import BlindedIds, check_set
from veilboost.align.ecdh.messages import BlindOther, BlindOwn, CommonRows, OtherPoints, OwnPoints
from veilboost.align.ids import contains, find, sort_order, strictly_sorted
from veilboost.errors import EmptyIntersection, MalformedMessage
from veilboost.types import Int64Array, PartyName, UInt8Array
from veilboost.wire.channel import Peers
from veilboost.wire.message import Done


class EcdhActive(ActiveAligner):
    """Blinds as the others do, carries the sets around the ring, and compares them at the end."""

    def __init__(self, context: AlignContext, peers: Peers) -> None:
        self._context = context
        self._peers = peers
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
        # Also where there are none: the others should not wait for an answer.
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
        """Every set goes to the party that stands `step` places after its owner."""
        order, mine = self._context.order, self._context.party
        owner_at = {holder: order[at - step] for at, holder in enumerate(order)}
        pending = self._peers.send(
            {name: BlindOther(owner_at[name], self._sets[owner_at[name]]) for name in self._peers.names}
        )
        moved = {owner_at[mine]: own.blind(self._sets[owner_at[mine]])}
        for name, answer in self._peers.collect(pending, OtherPoints).items():
            check_set(answer.points, self._context.most_rows)
            if len(answer.points) != len(self._sets[owner_at[name]]):
                raise MalformedMessage(f"{name} sent back another number of points")
            moved[owner_at[name]] = answer.points
        self._sets = moved


def _common(sets: list[UInt8Array]) -> UInt8Array:
    """The points in all sets, sorted: the order of finished points is the common order."""
    shortest, *others = (points[sort_order(points)] for points in sorted(sets, key=len))
    for other in others:
        shortest = shortest[contains(other, shortest)]
    return shortest


def _places(points: UInt8Array, common: UInt8Array) -> Int64Array:
    """Where each common point stands in a set that keeps its owner's order."""
    order = sort_order(points)
    return order[find(points[order], common)].astype(np.int64, copy=False)
