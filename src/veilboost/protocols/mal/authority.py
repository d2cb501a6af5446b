"""The authority of `mal`: makes the keys of a session and sends each party those it may have."""

from __future__ import annotations

import numpy as np

from veilboost.crypto.ore.api import keygen
from veilboost.errors import UnexpectedMessage
from veilboost.protocols.horizontal.roles import HelperContext, HelperRole
from veilboost.protocols.mal.messages import ComparisonKey, ComparisonKeyRequest, KeysRequest, SessionKeys
from veilboost.types import PartyName
from veilboost.wire.message import Message


class MalAuthority(HelperRole):
    """Knows both keys, and receives no ciphertext."""

    def __init__(self, context: HelperContext) -> None:
        self._context = context
        self._keys = keygen(context.random)

    def handle(self, party: PartyName, message: Message) -> Message:
        master, comparison = (np.frombuffer(key, np.uint8) for key in (self._keys.master, self._keys.comparison))
        if isinstance(message, KeysRequest) and party in self._context.participants:
            return SessionKeys(master, comparison)
        if isinstance(message, ComparisonKeyRequest) and party == self._context.helpers["comparer"]:
            return ComparisonKey(comparison)
        raise UnexpectedMessage(f"{party} may not send {message.type_name()} to the authority")
