"""The computing service (CSP): intersects digests whose key it does not have. ELXGB Alg. 4, lines 3 to 9."""

from __future__ import annotations

from veilboost.align.api import HelperContext, HelperSide
from veilboost.align.hmac_csp.messages import CommonHashes, CommonRequest, HashedRows
from veilboost.align.ids import DIGEST_BYTES, contains, strictly_sorted
from veilboost.errors import MalformedMessage, UnexpectedMessage
from veilboost.types import PartyName, UInt8Array
from veilboost.wire.message import Done, Message


class Csp(HelperSide):
    """Takes one list of digests from each party, then tells each which of them all have."""

    def __init__(self, context: HelperContext) -> None:
        self._parties = context.parties
        self._most_rows = context.most_rows
        self._lists: dict[PartyName, UInt8Array] = {}
        self._common: UInt8Array | None = None

    def handle(self, party: PartyName, message: Message) -> Message:
        if party not in self._parties:
            raise UnexpectedMessage("only the parties of this alignment are served")
        if isinstance(message, HashedRows):
            return self._take(party, message.digests)
        if isinstance(message, CommonRequest):
            return CommonHashes(self._intersection())
        raise UnexpectedMessage(f"{message.type_name()} is not a request to the CSP")

    def _take(self, party: PartyName, digests: UInt8Array) -> Done:
        if party in self._lists:
            # A second list would let a party find out about other parties' rows by trial.
            raise UnexpectedMessage("this party has sent its digests already")
        if digests.shape[1] != DIGEST_BYTES or len(digests) > self._most_rows:
            raise MalformedMessage(f"digests are not of {DIGEST_BYTES} bytes, or are too many")
        if not strictly_sorted(digests):
            raise MalformedMessage("digests are not sorted, or repeat")
        self._lists[party] = digests
        return Done()

    def _intersection(self) -> UInt8Array:
        waiting = len(self._parties) - len(self._lists)
        if waiting:
            raise UnexpectedMessage(f"{waiting} of {len(self._parties)} parties have not sent their digests yet")
        if self._common is None:
            shortest, *others = sorted(self._lists.values(), key=len)  # line 4
            for other in others:  # lines 5 to 8, all val_j at once
                shortest = shortest[contains(other, shortest)]
            self._common = shortest
        return self._common
