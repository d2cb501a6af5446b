"""A party's own work in `hmac_csp`: hash and sort its ids, send them to the CSP, look up what comes back."""

from __future__ import annotations

from dataclasses import dataclass

from veilboost.align.hmac_csp.messages import (
    DIGEST_BYTES,
    AlignmentKey,
    CommonHashes,
    CommonRequest,
    HashedRows,
    KeyRequest,
)
from veilboost.align.ids import canonical_ids
from veilboost.align.keys import find, sort_order, strictly_sorted
from veilboost.crypto.keyed_hash import KEY_BYTES, fingerprint, keyed_digests
from veilboost.errors import FalseIntersection, MalformedMessage, UnsupportedCombination
from veilboost.types import AnyArray, Int64Array, UInt8Array
from veilboost.wire.channel import Peers
from veilboost.wire.message import Done


@dataclass(frozen=True)
class Common:
    """What the CSP said: positions of the common rows in the order of digests, and a keyed digest to compare."""

    positions: Int64Array
    check: bytes


@dataclass(frozen=True)
class HashedIds:
    """A party's digests in order (which is the shuffle), and the row behind each. ELXGB Alg. 4: the map <H_k, ID_k>."""

    key: bytes
    digests: UInt8Array
    rows: Int64Array

    @classmethod
    def prepare(cls, ids: AnyArray, helpers: Peers, name: str) -> HashedIds:
        """Get the key and hash. May be done offline."""
        absent = [role for role in ("authority", "csp") if role not in helpers.names]
        if absent:
            raise UnsupportedCombination(f"hmac_csp needs a channel to {' and '.join(absent)}", "name it in the job")
        texts = canonical_ids(ids)
        key = helpers.ask({"authority": KeyRequest()}, AlignmentKey)["authority"].key
        if key.shape != (KEY_BYTES,):
            raise MalformedMessage(f"the key is not of {KEY_BYTES} bytes")
        digests = keyed_digests(texts, key.tobytes(), name, DIGEST_BYTES)
        order = sort_order(digests)
        return cls(key.tobytes(), digests[order], order)

    def submit(self, helpers: Peers) -> None:
        """ELXGB Alg. 4, line 2."""
        helpers.ask({"csp": HashedRows(self.digests)}, Done)

    def common(self, helpers: Peers) -> Common:
        """ELXGB Alg. 4, lines 9 to 11. The order of digests is the common order, the same at every party."""
        digests = helpers.ask({"csp": CommonRequest()}, CommonHashes)["csp"].digests
        if digests.shape[1] != DIGEST_BYTES or not strictly_sorted(digests):
            raise MalformedMessage("the CSP's digests are not sorted, repeat, or are of another length")
        places = find(self.digests, digests)
        strangers = int((places < 0).sum())
        if strangers:
            raise FalseIntersection(f"the CSP named {strangers} digests that were never sent to it")
        return Common(self.rows[places], fingerprint(self.key, digests.tobytes()))
