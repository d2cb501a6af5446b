"""A party's ids as digests under a key, sorted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from veilboost.align.ids import canonical_ids
from veilboost.align.keys import sort_order
from veilboost.crypto.keyed_hash import keyed_digests
from veilboost.types import AnyArray, Int64Array, UInt8Array

# Two different ids share a digest with probability below N^2 / 2^129, N the number of ids of all parties together:
# below 2^-89 for a million ids, below 2^-67 for 2^31.
DIGEST_BYTES = 16


@dataclass(frozen=True)
class SortedDigests:
    """Digests in order (which is the shuffle), and the row behind each. ELXGB Alg. 4: the map <H_k, ID_k>."""

    digests: UInt8Array
    rows: Int64Array


Hashed = Callable[[bytes, str], SortedDigests]  # of certain ids, under a key, by the hash of this name


class Hashing:
    """How ids become digests: here by hashing them. `PreparedHashing` may have done so before."""

    def begin(self, ids: AnyArray) -> Hashed:
        """Ids that cannot be hashed are refused here, before anybody is asked for a key."""
        texts = canonical_ids(ids)

        def hashed(key: bytes, name: str) -> SortedDigests:
            digests = keyed_digests(texts, key, name, DIGEST_BYTES)
            order = sort_order(digests)
            return SortedDigests(digests[order], order)

        return hashed
