"""Ids as bytes: their canonical form, sorting and searching, keyed digests, batches.

Every party writes ids in the same canonical form:

- An integer becomes its decimal digits, with a minus sign if it is negative: 7 becomes `7`.
- Text is normalised to Unicode NFC and stripped of surrounding white space (as by `str.strip`). The rest is unchanged:
  leading zeros, upper and lower case, signs and inner spaces all count. `007` is not `7`.
- A number at one party and text at another are the same id if these forms are equal: 7 and `7` are, 7 and `007` are
  not.
- The result is encoded as UTF-8.

Refused, reporting the number of rows but never a value: numbers and text in one column, values that are neither, empty
ids, and two rows with the same canonical id.
"""

from __future__ import annotations

import hmac
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from veilboost.crypto.fingerprint import HASHES, KEY_BYTES, keyed_digest, keyed_digests
from veilboost.engine.shards import ShardedArray
from veilboost.errors import DuplicateIds, FalseIntersection, MalformedMessage, MissingId, MixedTypes
from veilboost.types import AnyArray, BoolArray, Int64Array, UInt8Array


def canonical_ids(ids: AnyArray) -> list[bytes]:
    """The canonical ids of a party's rows, in row order."""
    values = cast(list[Any], ids.tolist())
    if ids.dtype.kind in "iu" or all(type(value) is int for value in values):
        found = [b"%d" % value for value in values]
    elif ids.dtype.kind == "U" or all(isinstance(value, str) for value in values):
        found = _texts(values)
    else:
        numbers = sum(type(value) is int for value in values)
        texts = sum(isinstance(value, str) for value in values)
        raise MixedTypes(
            f"of {len(values)} ids {numbers} are whole numbers and {texts} are text", "make them all the same kind"
        )
    repeats = len(found) - len(set(found))
    if repeats:
        raise DuplicateIds(f"{repeats} of {len(found)} rows repeat an id, once ids are written in canonical form")
    return found


def _texts(values: Sequence[str]) -> list[bytes]:
    normalize = unicodedata.normalize
    try:
        found = [normalize("NFC", value).strip().encode() for value in values]
    except UnicodeEncodeError as error:  # an unpaired surrogate, which is not text
        raise MixedTypes("an id contains characters that are not text", "write the ids as valid Unicode") from error
    empty = found.count(b"")
    if empty:
        raise MissingId(f"{empty} of {len(found)} ids are empty")
    return found


# --- sorted rows of bytes (digests, points) ------------------------------------------------------------------------
#
# Rows are compared byte by byte. The first eight bytes nearly always decide, and comparing them as one integer is
# several times faster; if two rows share them, whole rows are compared.


def sort_order(rows: UInt8Array) -> Int64Array:
    heads = _heads(rows)
    order = np.argsort(heads, kind="stable")
    ordered = heads[order]
    if (ordered[1:] == ordered[:-1]).any():
        order = np.argsort(_whole(rows), kind="stable")
    return order.astype(np.int64, copy=False)


def strictly_sorted(rows: UInt8Array) -> bool:
    """Whether the rows are in order and no two are equal."""
    heads = _heads(rows)
    if (heads[1:] > heads[:-1]).all():
        return True
    whole = _whole(rows)
    return bool((whole[1:] > whole[:-1]).all())


def distinct(rows: UInt8Array) -> bool:
    return strictly_sorted(rows[sort_order(rows)])


def find(ordered: UInt8Array, wanted: UInt8Array) -> Int64Array:
    """The index of each wanted row in strictly sorted rows, -1 if it is absent."""
    if not len(ordered):
        return np.full(len(wanted), -1, dtype=np.int64)
    heads, among = _heads(wanted), _heads(ordered)
    if (among[1:] == among[:-1]).any():
        places = np.searchsorted(_whole(ordered), _whole(wanted))
    else:
        places = np.searchsorted(among, heads)
    places = np.minimum(places, len(ordered) - 1)
    return np.where((ordered[places] == wanted).all(axis=1), places, -1)


def contains(ordered: UInt8Array, wanted: UInt8Array) -> BoolArray:
    """Which wanted rows are present in strictly sorted rows."""
    return find(ordered, wanted) >= 0


def _heads(rows: UInt8Array) -> AnyArray:
    return np.ascontiguousarray(rows[:, :8]).view(">u8").ravel().astype(np.uint64)


def _whole(rows: UInt8Array) -> AnyArray:
    # NumPy compares fixed-length byte strings as unsigned bytes. Trailing zeros are no problem: all have equal length.
    return np.ascontiguousarray(rows).view(f"S{rows.shape[1]}").ravel()


# --- sorted keyed digests of a party's ids -------------------------------------------------------------------------


# Two different ids share a digest with probability below N^2 / 2^129, where N is the number of ids of all parties:
# below 2^-89 for a million ids, below 2^-67 for 2^31.
DIGEST_BYTES = 16


@dataclass(frozen=True)
class SortedDigests:
    """Digests in sorted order (which is the shuffle), and the row of each. ELXGB Alg. 4: the map <H_k, ID_k>."""

    digests: UInt8Array
    rows: Int64Array


Hashed = Callable[[bytes, str], SortedDigests]  # hashes given ids under a key, with the hash of this name


class Hashing:
    """Computes the digests of ids. `PreparedHashing` may have computed them before."""

    def begin(self, ids: AnyArray) -> Hashed:
        """Refuse ids that cannot be hashed, before the authority is asked for a key."""
        texts = canonical_ids(ids)

        def hashed(key: bytes, name: str) -> SortedDigests:
            digests = keyed_digests(texts, key, name, DIGEST_BYTES)
            order = sort_order(digests)
            return SortedDigests(digests[order], order)

        return hashed


# --- ids hashed before the alignment. ELXGB 6.1: "which can be finished offline" -----------------------------------


_NAME_BYTES = 16
CHECK_BYTES = 32
_HEAD_BYTES = _NAME_BYTES + KEY_BYTES + CHECK_BYTES
_ROW_BYTES = DIGEST_BYTES + 8


@dataclass(frozen=True)
class PreparedIds:
    """Sorted digests, with everything that decides whether they are still valid: the key, the hash and the ids."""

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
        """Hash, key, ids, digests, rows, and a keyed digest of all of them, which detects damage."""
        name = self.hash.encode().ljust(_NAME_BYTES, b"\0")
        body = name + self.key + self.ids + self.sorted.digests.tobytes() + self.sorted.rows.astype("<i8").tobytes()
        return body + keyed_digest(self.key, body)

    @staticmethod
    def from_bytes(content: bytes) -> PreparedIds:
        body, check = content[:-CHECK_BYTES], content[-CHECK_BYTES:]
        name, key, ids = body[:_NAME_BYTES], body[_NAME_BYTES:][:KEY_BYTES], body[:_HEAD_BYTES][-CHECK_BYTES:]
        rows, rest = divmod(len(body) - _HEAD_BYTES, _ROW_BYTES)
        if rows < 0 or rest or not hmac.compare_digest(check, keyed_digest(key, body)):
            raise MalformedMessage("the prepared ids cannot be read", "prepare the job again")
        digests = np.frombuffer(body, np.uint8, rows * DIGEST_BYTES, _HEAD_BYTES).reshape(rows, DIGEST_BYTES)
        behind = np.frombuffer(body, "<i8", rows, _HEAD_BYTES + rows * DIGEST_BYTES).astype(np.int64)
        return PreparedIds(key, name.rstrip(b"\0").decode(), ids, SortedDigests(digests, behind))


class PreparedHashing(Hashing):
    """Uses the prepared digests if they are valid, and hashes otherwise. Calls `report` with which, and why."""

    def __init__(self, ready: PreparedIds, report: Callable[[str], None]) -> None:
        self._ready, self._report = ready, report

    def begin(self, ids: AnyArray) -> Hashed:
        ready, hash_again = self._ready, super().begin
        same = ready.are_of(ids)
        # The same ids were validated when they were hashed; other ids are validated before a key is requested.
        hashed = None if same else hash_again(ids)

        def taken(key: bytes, name: str) -> SortedDigests:
            if not same:
                self._report("hashed again: they differ from those hashed beforehand")
            elif not hmac.compare_digest(key, ready.key):
                self._report("hashed again: the authority has given another key")
            elif name != ready.hash:
                self._report(f"hashed again: the job hashes with {name}")
            else:
                self._report("hashed beforehand")
                return ready.sorted
            return (hashed or hash_again(ids))(key, name)

        return taken


def _digest_of(ids: AnyArray, key: bytes) -> bytes:
    """A keyed digest of a table's ids, which are numbers or fixed-width text, so that their bytes are the ids."""
    plain = ids if ids.dtype.kind in "iuU" else ids.astype(np.str_)
    return keyed_digest(key, plain.dtype.str.encode() + plain.tobytes())


# --- a party's ids partitioned into batches ---------------------------------------------------------------------------
# Batches allow alignment without all ids in one place. An id is in the same batch at every party, because all parties
# partition by one salted hash of its canonical form. Batches are aligned one after the other, each by itself.


# The number of a party's ids in a batch reveals something about them to anyone who knows the salt, and the fewer there
# are the more. A party with fewer than this many per batch, on average, puts all of its ids into every batch.
FEWEST = 64


@dataclass(frozen=True)
class BatchIndex:
    """Positions in a list of ids, batch after batch: batch k is order[edges[k]:edges[k + 1]]."""

    order: Int64Array
    edges: Int64Array


@dataclass(frozen=True)
class Batch:
    """Some ids, their rows in the table, and which of them belong to the batch (None: all)."""

    ids: AnyArray
    rows: Int64Array
    inside: BoolArray | None = None

    def rows_of(self, found: Int64Array) -> Int64Array:
        """The table rows of the ids that were found. Raises if one of them belongs to another batch."""
        if self.inside is not None and not self.inside[found].all():
            raise FalseIntersection("rows were found in a batch to which they do not belong")
        return self.rows[found]


def batch_numbers(ids: AnyArray, batches: int, salt: bytes) -> Int64Array:
    digests = keyed_digests(canonical_ids(ids), salt, HASHES[0], 8)
    return (digests.view("<u8").ravel() % np.uint64(batches)).astype(np.int64)


def partition_ids(ids: AnyArray, batches: int, salt: bytes) -> BatchIndex:
    """Partition a list of ids into batches; within a batch they keep their order."""
    if batches == 1:
        return BatchIndex(np.arange(len(ids), dtype=np.int64), np.array([0, len(ids)], dtype=np.int64))
    numbers = batch_numbers(ids, batches, salt)
    counts = np.bincount(numbers, minlength=batches)
    return BatchIndex(np.argsort(numbers, kind="stable"), np.concatenate(([0], counts.cumsum())))


def members(ids: AnyArray, index: BatchIndex, number: int, first: int = 0) -> Batch:
    """One batch of a list of ids whose rows start at `first`."""
    places = index.order[index.edges[number] : index.edges[number + 1]]
    return Batch(ids[places], places + first)


class BatchedIds:
    """All ids of a party in batches.

    If the ids lie in shards, so do the batch indices, and only the requested batch is gathered.
    """

    def __init__(self, ids: AnyArray, batches: int, salt: bytes, fewest: int = FEWEST) -> None:
        self._numbers: Int64Array | None = None
        if batches > 1 and len(ids) < fewest * batches:
            ids = np.asarray(ids)
            self._numbers = batch_numbers(ids, batches, salt)
        elif isinstance(ids, ShardedArray):
            self._index = ids.shards.each(partition_ids, ids, batches, salt)
        else:
            self._index = [partition_ids(ids, batches, salt)]
        self._ids = ids

    def batch(self, number: int) -> Batch:
        ids = self._ids
        if self._numbers is not None:
            return Batch(ids, np.arange(len(ids), dtype=np.int64), self._numbers == number)
        if not isinstance(ids, ShardedArray):
            return members(ids, self._index[0], number)
        firsts = list(ids.shards.edges[:-1])
        parts: list[Batch] = ids.shards.pool.get(ids.shards.each(members, ids, self._index, number, firsts))
        return Batch(np.concatenate([part.ids for part in parts]), np.concatenate([part.rows for part in parts]))
