"""The driving side of `hmac_csp`."""

from __future__ import annotations

import hmac

from veilboost.align.api import ActiveAligner, AlignContext, Alignment
from veilboost.align.hmac_csp.hashed import HashedIds
from veilboost.align.hmac_csp.messages import CommonConfirmed, ConfirmCommon, PrepareHashes, SubmitHashes
from veilboost.errors import EmptyIntersection, FalseIntersection
from veilboost.wire.channel import Peers
from veilboost.wire.message import Done


class HmacActive(ActiveAligner):
    """Tells the others when to hash, to send and to fetch; in the end all must have been told the same."""

    def __init__(self, context: AlignContext, peers: Peers) -> None:
        self._context = context
        self._peers = peers
        self._hashed: HashedIds | None = None

    def prepare(self) -> None:
        self._prepared()

    def align(self) -> Alignment:
        own, helpers, names = self._prepared(), self._context.helpers, self._peers.names
        pending = self._peers.send({name: SubmitHashes() for name in names})
        own.submit(helpers)
        self._peers.collect(pending, Done)
        # Every list is with the CSP now, so every party may fetch.
        pending = self._peers.send({name: ConfirmCommon() for name in names})
        common = own.common(helpers)
        for name, answer in self._peers.collect(pending, CommonConfirmed).items():
            same = hmac.compare_digest(answer.check.tobytes(), common.check)
            if answer.rows != len(common.positions) or not same:
                raise FalseIntersection(f"the CSP told {name} other common rows")
        if not len(common.positions):
            raise EmptyIntersection(f"the {len(names) + 1} parties have no row in common")
        return Alignment(common.positions)

    def _prepared(self) -> HashedIds:
        if self._hashed is None:
            chosen = self._context.hash
            pending = self._peers.send({name: PrepareHashes(chosen) for name in self._peers.names})
            self._hashed = HashedIds.prepare(self._context, chosen)
            self._peers.collect(pending, Done)
        return self._hashed
