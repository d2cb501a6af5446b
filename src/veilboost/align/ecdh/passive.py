"""The answering side of `ecdh`."""

from __future__ import annotations

import numpy as np

from veilboost.align.api import AlignContext, Alignment, PassiveAligner
from veilboost.align.ecdh.blinded import BlindedIds, check_set
from veilboost.align.ecdh.messages import BlindOther, BlindOwn, CommonRows, OtherPoints, OwnPoints
from veilboost.errors import EmptyIntersection, FalseIntersection, MalformedMessage, UnexpectedMessage
from veilboost.types import Int64Array, PartyName
from veilboost.wire.message import Done, Message


class EcdhPassive(PassiveAligner):
    """Blinds its own set, then one set of each other party, and is told which of its rows are common.

    One set of each: blinding whatever comes, as often as it comes, would let the active party test ids at will.
    """

    def __init__(self, context: AlignContext) -> None:
        self._context = context
        self._own: BlindedIds | None = None
        self._sizes: dict[PartyName, int] = {}
        self._positions: Int64Array | None = None

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

    def alignment(self) -> Alignment:
        if self._positions is None:
            raise UnexpectedMessage("the common rows are not known yet")
        if not len(self._positions):
            raise EmptyIntersection("the parties have no row in common")
        return Alignment(self._positions)

    def _blind(self, own: BlindedIds, message: BlindOther) -> OtherPoints:
        if message.owner not in self._context.order or message.owner == self._context.party:
            raise MalformedMessage("points of nobody who takes part")
        if message.owner in self._sizes:
            raise UnexpectedMessage("the points of this owner were blinded already")
        check_set(message.points, self._context.most_rows)
        blinded = own.blind(message.points)
        self._sizes[message.owner] = len(message.points)
        return OtherPoints(blinded)

    def _finish(self, own: BlindedIds, places: Int64Array) -> Done:
        if len(places) and (places.min() < 0 or places.max() >= len(own.rows)):
            raise MalformedMessage("a common row is none of the rows here")
        if len(np.unique(places)) != len(places):
            raise MalformedMessage("a common row repeats")
        if len(places) > min(self._sizes.values(), default=0):
            raise FalseIntersection("more rows are said to be common than the smallest party has")
        self._positions = own.rows[places]
        return Done()
