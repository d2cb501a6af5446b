"""Ids as bytes: one rule for writing them, which every party follows; sorting and finding; digests under a key.

- A whole number is its decimal digits, with a minus sign where it is negative: 7 is `7`.
- A text is brought to Unicode's form NFC, white space around it is dropped (what `str.strip` drops), and the rest is
  kept as it is: leading zeros, upper and lower case, signs and inner spaces all count. `007` is not `7`.
- Numbers at one party and text at another are the same id where these texts are equal: 7 and `7` are, 7 and `007`
  are not.
- What comes out is UTF-8.

Refused, with how many rows but never with a value: numbers and text in one column, anything that is neither, ids
without a character, and two rows that come out the same.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from veilboost.crypto.fingerprint import keyed_digests
from veilboost.errors import DuplicateIds, MissingId, MixedTypes
from veilboost.types import AnyArray, BoolArray, Int64Array, UInt8Array


def canonical_ids(ids: AnyArray) -> list[bytes]:
    """The ids of a party's rows by the rule above, in the order of the rows."""
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
    _refuse_repeats(found)
    return found


def _texts(values: Sequence[str]) -> list[bytes]:
    normalize = unicodedata.normalize
    try:
        found = [normalize("NFC", value).strip().encode() for value in values]
    except UnicodeEncodeError as error:  # half of a surrogate pair: no text at all
        raise MixedTypes("an id holds characters that are not text", "write the ids as valid Unicode") from error
    empty = found.count(b"")
    if empty:
        raise MissingId(f"{empty} of {len(found)} ids are empty")
    return found


def _refuse_repeats(found: Sequence[bytes]) -> None:
    repeats = len(found) - len(set(found))
    if repeats:
        raise DuplicateIds(f"{repeats} of {len(found)} rows repeat an id, once ids are written in their common form")


# --- rows of bytes (digests, points) in order ----------------------------------------------------------------------
#
# Rows are compared byte by byte from the first. Nearly always the first eight bytes decide, and comparing those as one
# number is several times quicker; where two rows share them, whole rows are compared.


def sort_order(rows: UInt8Array) -> Int64Array:
    """The order in which the rows are sorted."""
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
    """Whether no two rows are equal."""
    return strictly_sorted(rows[sort_order(rows)])


def find(ordered: UInt8Array, wanted: UInt8Array) -> Int64Array:
    """Where each wanted row stands among strictly sorted ones, -1 where it does not."""
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
    """Which wanted rows stand among strictly sorted ones."""
    return find(ordered, wanted) >= 0


def _heads(rows: UInt8Array) -> AnyArray:
    return np.ascontiguousarray(rows[:, :8]).view(">u8").ravel().astype(np.uint64)


def _whole(rows: UInt8Array) -> AnyArray:
    # NumPy compares fixed-length byte strings as unsigned bytes, zeros at the end included, since all are as long.
    return np.ascontiguousarray(rows).view(f"S{rows.shape[1]}").ravel()


# --- a party's ids as digests under a key, sorted ------------------------------------------------------------------


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
