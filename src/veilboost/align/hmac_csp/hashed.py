"""A party's own work in `hmac_csp`: hash and sort its ids, send them to the CSP, look up what comes back."""

from __future__ import annotations

from dataclasses import dataclass

from veilboost.align.api import AlignContext
from veilboost.align.hashing import DIGEST_BYTES, SortedDigests
from veilboost.align.hmac_csp.messages import AlignmentKey, CommonHashes, CommonRequest, HashedRows, KeyRequest
from veilboost.align.keys import find, strictly_sorted
from veilboost.crypto.keyed_hash import KEY_BYTES, keyed_digest
from veilboost.errors import FalseIntersection, MalformedMessage, UnsupportedCombination
from veilboost.types import Int64Array
from veilboost.wire.channel import Peers
from veilboost.wire.message import Done


def key_in(message: AlignmentKey) -> bytes:
    """The key that the authority sent, which must be one."""
    if message.key.shape != (KEY_BYTES,):
        raise MalformedMessage(f"the key is not of {KEY_BYTES} bytes")
    return message.key.tobytes()


@dataclass(frozen=True)
class Common:
    """What the CSP said: positions of the common rows in the order of digests, and a keyed digest to compare."""

    positions: Int64Array
    check: bytes


@dataclass(frozen=True)
class HashedIds:
    """A party's digests, and the key under which they were made."""

    key: bytes
    sorted: SortedDigests

    @classmethod
    def prepare(cls, context: AlignContext, name: str) -> HashedIds:
        """Get the key and hash. The hashing may have been done offline."""
        helpers = context.helpers
        absent = [role for role in ("authority", "csp") if role not in helpers.names]
        if absent:
            raise UnsupportedCombination(f"hmac_csp needs a channel to {' and '.join(absent)}", "name it in the job")
        hashed = context.hashing.begin(context.ids)
        key = key_in(helpers.ask({"authority": KeyRequest()}, AlignmentKey)["authority"])
        return cls(key, hashed(key, name))

    def submit(self, helpers: Peers) -> None:
        """ELXGB Alg. 4, line 2."""
        helpers.ask({"csp": HashedRows(self.sorted.digests)}, Done)

    def common(self, helpers: Peers) -> Common:
        """ELXGB Alg. 4, lines 9 to 11. The order of digests is the common order, the same at every party."""
        digests = helpers.ask({"csp": CommonRequest()}, CommonHashes)["csp"].digests
        if digests.shape[1] != DIGEST_BYTES or not strictly_sorted(digests):
            raise MalformedMessage("the CSP's digests are not sorted, repeat, or are of another length")
        places = find(self.sorted.digests, digests)
        strangers = int((places < 0).sum())
        if strangers:
            raise FalseIntersection(f"the CSP named {strangers} digests that were never sent to it")
        return Common(self.sorted.rows[places], keyed_digest(self.key, digests.tobytes()))
