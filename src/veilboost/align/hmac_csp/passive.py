"""The answering side of `hmac_csp`."""

from __future__ import annotations

import numpy as np

from veilboost.align.api import AlignContext, Alignment, PassiveAligner
from veilboost.align.hmac_csp.hashed import Common, HashedIds
from veilboost.align.hmac_csp.messages import CommonConfirmed, ConfirmCommon, PrepareHashes, SubmitHashes
from veilboost.errors import EmptyIntersection, UnexpectedMessage
from veilboost.wire.message import Done, Message


class HmacPassive(PassiveAligner):
    """Hashes, sends to the CSP and fetches from it when told to, once each and in this order."""

    def __init__(self, context: AlignContext) -> None:
        self._context = context
        self._hashed: HashedIds | None = None
        self._submitted = False
        self._common: Common | None = None

    def handle(self, message: Message) -> Message:
        hashed, helpers = self._hashed, self._context.helpers
        if isinstance(message, PrepareHashes) and hashed is None:
            self._hashed = HashedIds.prepare(self._context, message.hash)
            return Done()
        if isinstance(message, SubmitHashes) and hashed is not None and not self._submitted:
            hashed.submit(helpers)
            self._submitted = True
            return Done()
        if isinstance(message, ConfirmCommon) and hashed is not None and self._submitted and self._common is None:
            self._common = hashed.common(helpers)
            return CommonConfirmed(len(self._common.positions), np.frombuffer(self._common.check, np.uint8))
        raise UnexpectedMessage(f"{message.type_name()} is not expected at this point of the alignment")

    def alignment(self) -> Alignment:
        if self._common is None:
            raise UnexpectedMessage("the common rows are not known yet")
        if not len(self._common.positions):
            raise EmptyIntersection("the parties have no row in common")
        return Alignment(self._common.positions)
