"""The driving side of the order check."""

from __future__ import annotations

import hmac

import numpy as np

from veilboost.align.api import ActiveAligner, AlignContext, Alignment
from veilboost.align.ids import canonical_ids
from veilboost.align.preshared.messages import (
    DIGEST_BYTES,
    SALT_BYTES,
    OrderCheck,
    OrderConfirmed,
    checked_bytes,
    order_digest,
)
from veilboost.errors import EmptyIntersection, RowsDiffer
from veilboost.wire.channel import Peers


class PresharedActive(ActiveAligner):
    """Sends every party a check under a salt of its own, and believes only an answer made from the same ids."""

    def __init__(self, context: AlignContext, peers: Peers) -> None:
        self._context = context
        self._peers = peers
        self._ids: list[bytes] | None = None

    def prepare(self) -> None:
        self._ids = canonical_ids(self._context.ids)

    def align(self) -> Alignment:
        if self._ids is None:
            self.prepare()
        ids = self._ids or []
        salts = {name: self._context.random.bytes(SALT_BYTES) for name in self._peers.names}
        checks = {
            name: OrderCheck(
                len(ids),
                np.frombuffer(salt, np.uint8),
                np.frombuffer(order_digest(ids, salt, "active"), np.uint8),
            )
            for name, salt in salts.items()
        }
        for name, answer in self._peers.ask(checks, OrderConfirmed).items():
            expected = order_digest(ids, salts[name], "passive")
            if not hmac.compare_digest(checked_bytes(answer.digest, DIGEST_BYTES), expected):
                raise RowsDiffer(f"{name} has other rows, or the same in another order")
        if not ids:  # at all parties, as was just seen
            raise EmptyIntersection("there are no rows")
        return Alignment(np.arange(len(ids), dtype=np.int64))
