"""A party's own work in `hmac_csp`: hash and sort its ids, send them to the CSP, look up what comes back."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from veilboost.align.api import AlignContext
from veilboost.align.hmac_csp.messages import (
    CHECK_BYTES,
    AlignmentKey,
    CommonHashes,
    CommonRequest,
    HashedRows,
    KeyRequest,
)
from veilboost.align.ids import DIGEST_BYTES, Hashed, Hashing, SortedDigests, find, strictly_sorted
from veilboost.crypto.fingerprint import KEY_BYTES, keyed_digest
from veilboost.errors import FalseIntersection, MalformedMessage, UnsupportedCombination
from veilboost.types import AnyArray, Int64Array
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


# --- ids hashed before an alignment began. ELXGB 6.1: "which can be finished offline" ------------------------------


_NAME_BYTES = 16
_HEAD_BYTES = _NAME_BYTES + KEY_BYTES + CHECK_BYTES
_ROW_BYTES = DIGEST_BYTES + 8


@dataclass(frozen=True)
class PreparedIds:
    """Sorted digests, with all that decides whether they still serve: the key, the hash and the ids themselves."""

    key: bytes
    hash: str
    ids: bytes  # a keyed digest of the ids in the order of the rows
    sorted: SortedDigests

    @staticmethod
    def make(ids: AnyArray, hashed: Hashed, key: bytes, name: str) -> PreparedIds:
        return PreparedIds(key, name, _digest_of(ids, key), hashed(key, name))

    def are_of(self, ids: AnyArray) -> bool:
        """Whether these ids were hashed, in this order."""
        return hmac.compare_digest(self.ids, _digest_of(ids, self.key))

    def to_bytes(self) -> bytes:
        """Hash, key, ids, digests, rows, and a keyed digest of it all, by which damage is found."""
        name = self.hash.encode().ljust(_NAME_BYTES, b"\0")
        body = name + self.key + self.ids + self.sorted.digests.tobytes() + self.sorted.rows.astype("<i8").tobytes()
        return body + keyed_digest(self.key, body)

    @staticmethod
    def from_bytes(content: bytes) -> PreparedIds:
        body, check = content[:-CHECK_BYTES], content[-CHECK_BYTES:]
        name, key, ids = body[:_NAME_BYTES], body[_NAME_BYTES:][:KEY_BYTES], body[:_HEAD_BYTES][-CHECK_BYTES:]
        rows, rest = divmod(len(body) - _HEAD_BYTES, _ROW_BYTES)
        if rows < 0 or rest or not hmac.compare_digest(check, keyed_digest(key, body)):
            raise MalformedMessage("what was prepared cannot be read", "prepare the job again")
        digests = np.frombuffer(body, np.uint8, rows * DIGEST_BYTES, _HEAD_BYTES).reshape(rows, DIGEST_BYTES)
        behind = np.frombuffer(body, "<i8", rows, _HEAD_BYTES + rows * DIGEST_BYTES).astype(np.int64)
        return PreparedIds(key, name.rstrip(b"\0").decode(), ids, SortedDigests(digests, behind))


class PreparedHashing(Hashing):
    """Uses what lies ready where it serves, and hashes where it does not. `tell` is told which, and why."""

    def __init__(self, ready: PreparedIds, tell: Callable[[str], None]) -> None:
        self._ready, self._tell = ready, tell

    def begin(self, ids: AnyArray) -> Hashed:
        ready, anew = self._ready, super().begin
        same = ready.are_of(ids)
        # The same ids were found good when they were hashed; others are looked at before a key is asked for.
        hashed = None if same else anew(ids)

        def taken(key: bytes, name: str) -> SortedDigests:
            if not same:
                self._tell("hashed anew: they are not those that were hashed beforehand")
            elif not hmac.compare_digest(key, ready.key):
                self._tell("hashed anew: the authority has given another key")
            elif name != ready.hash:
                self._tell(f"hashed anew: the job hashes with {name}")
            else:
                self._tell("hashed beforehand")
                return ready.sorted
            return (hashed or anew(ids))(key, name)

        return taken


def _digest_of(ids: AnyArray, key: bytes) -> bytes:
    """A table's ids are numbers or fixed-width text, whose bytes are the ids themselves."""
    plain = ids if ids.dtype.kind in "iuU" else ids.astype(np.str_)
    return keyed_digest(key, plain.dtype.str.encode() + plain.tobytes())
