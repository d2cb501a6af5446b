"""The answering side of the order check."""

from __future__ import annotations

import hmac

import numpy as np

from veilboost.align.api import AlignContext, Alignment, PassiveAligner
from veilboost.align.ids import canonical_ids
from veilboost.align.preshared.messages import (
    DIGEST_BYTES,
    SALT_BYTES,
    OrderCheck,
    OrderConfirmed,
    checked_bytes,
    order_digest,
)
from veilboost.errors import EmptyIntersection, RowsDiffer, UnexpectedMessage
from veilboost.wire.message import Message


class PresharedPassive(PassiveAligner):
    """Confirms an order that is also its own, and refuses any other without saying in what it differs."""

    def __init__(self, context: AlignContext) -> None:
        self._ids = canonical_ids(context.ids)
        self._confirmed = False

    def handle(self, message: Message) -> Message:
        if not isinstance(message, OrderCheck) or self._confirmed:
            raise UnexpectedMessage(f"{message.type_name()} is not expected here")
        salt = checked_bytes(message.salt, SALT_BYTES)
        digest = checked_bytes(message.digest, DIGEST_BYTES)
        if message.rows != len(self._ids):
            raise RowsDiffer("the active party has another number of rows")
        if not hmac.compare_digest(digest, order_digest(self._ids, salt, "active")):
            raise RowsDiffer("the active party has other rows, or the same in another order")
        self._confirmed = True
        return OrderConfirmed(np.frombuffer(order_digest(self._ids, salt, "passive"), np.uint8))

    def alignment(self) -> Alignment:
        if not self._confirmed:
            raise UnexpectedMessage("the order of the rows has not been checked yet")
        if not self._ids:
            raise EmptyIntersection("there are no rows")
        return Alignment(np.arange(len(self._ids), dtype=np.int64))
