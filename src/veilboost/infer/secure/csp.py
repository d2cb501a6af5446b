"""The computing service (CSP): says of every blinded node whether its value is positive."""

from __future__ import annotations

import numpy as np

from veilboost.errors import UnexpectedMessage
from veilboost.infer.secure.messages import BlindedNodes, Directions
from veilboost.infer.secure.scheme import secret_service
from veilboost.wire.message import Message


class DirectionService:
    """ELXGB Alg. 5, lines 10 to 15. It does not learn whether positive means left: the sign was turned, or not."""

    def __init__(self, scheme: str, key: bytes, size: int, threads: int = 1) -> None:
        self._service = secret_service(scheme, key, size, threads)

    def handle(self, message: Message) -> Message:
        if not isinstance(message, BlindedNodes):
            raise UnexpectedMessage(f"{message.type_name()} is not a request to the CSP")
        return Directions(np.packbits(self._service.directions(message.vectors)))
