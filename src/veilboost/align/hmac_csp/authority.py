"""The authority (TA): makes the key, hands it to the parties, and sees nothing else."""

from __future__ import annotations

import threading

import numpy as np

from veilboost.align.api import HelperContext, HelperSide
from veilboost.align.hmac_csp.messages import AlignmentKey, KeyRequest
from veilboost.crypto.fingerprint import KEY_BYTES
from veilboost.errors import UnexpectedMessage
from veilboost.types import PartyName
from veilboost.wire.message import Message


class Authority(HelperSide):
    """One key for one alignment. ELXGB 6.1, key distribution: ssk goes to all participants, never to the CSP.

    It is the key that the parties were given beforehand, if there is one, or else a new one.
    """

    def __init__(self, context: HelperContext) -> None:
        self._context = context
        self._key: bytes | None = None
        self._lock = threading.Lock()  # parties ask at the same time, and all must get the same

    def handle(self, party: PartyName, message: Message) -> Message:
        if not isinstance(message, KeyRequest):
            raise UnexpectedMessage(f"{message.type_name()} is not a request for a key")
        if party not in self._context.parties:
            raise UnexpectedMessage("the key is only for the parties of this alignment")
        with self._lock:
            if self._key is None:
                self._key = self._context.take_key() or self._context.random.bytes(KEY_BYTES)
            return AlignmentKey(np.frombuffer(self._key, np.uint8))
