"""The authority (TA): makes the key, hands it to the parties, and sees nothing else."""

from __future__ import annotations

import numpy as np

from veilboost.align.api import HelperContext, HelperSide
from veilboost.align.hmac_csp.messages import AlignmentKey, KeyRequest
from veilboost.crypto.keyed_hash import KEY_BYTES
from veilboost.errors import UnexpectedMessage
from veilboost.types import PartyName
from veilboost.wire.message import Message


class Authority(HelperSide):
    """One key for one alignment. ELXGB 6.1, key distribution: ssk goes to all participants, never to the CSP."""

    def __init__(self, context: HelperContext) -> None:
        self._parties = context.parties
        self._key = context.random.bytes(KEY_BYTES)

    def handle(self, party: PartyName, message: Message) -> Message:
        if not isinstance(message, KeyRequest):
            raise UnexpectedMessage(f"{message.type_name()} is not a request for a key")
        if party not in self._parties:
            raise UnexpectedMessage("the key is only for the parties of this alignment")
        return AlignmentKey(np.frombuffer(self._key, np.uint8))
