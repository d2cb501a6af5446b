"""A party's ids dealt into lots, so that rows of the same people are found without all ids in one place.

An id is in the same lot at every party, because all deal by one hash of its common form under one salt. Lots are
aligned one after the other, each as if it were all there is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from veilboost.align.api import Alignment
from veilboost.align.ids import canonical_ids
from veilboost.crypto.fingerprint import HASHES, keyed_digests
from veilboost.engine.shards import ShardedArray
from veilboost.errors import FalseIntersection
from veilboost.types import AnyArray, BoolArray, Int64Array

# How many ids of a party fall into a lot tells something about them to whoever knows the salt, the more the fewer
# there are. A party that would have fewer than so many in a lot, on average, puts all of its ids into every lot.
FEWEST = 64


@dataclass(frozen=True)
class Dealt:
    """Places in a list of ids, lot after lot: those of lot k are order[edges[k]:edges[k + 1]]."""

    order: Int64Array
    edges: Int64Array


@dataclass(frozen=True)
class Lot:
    """Some ids, the rows of the table in which they stand, and which of them fall into the lot (None: all do)."""

    ids: AnyArray
    rows: Int64Array
    inside: BoolArray | None = None

    def rows_of(self, found: Alignment) -> Int64Array:
        """The rows of the table that were found; an id that does not fall into this lot is found in its own."""
        if self.inside is not None and not self.inside[found.positions].all():
            raise FalseIntersection("rows were found in a lot that is not theirs: no party deals its ids")
        return self.rows[found.positions]


def lot_numbers(ids: AnyArray, lots: int, salt: bytes) -> Int64Array:
    """The lot of each id."""
    digests = keyed_digests(canonical_ids(ids), salt, HASHES[0], 8)
    return (digests.view("<u8").ravel() % np.uint64(lots)).astype(np.int64)


def dealt(ids: AnyArray, lots: int, salt: bytes) -> Dealt:
    """Deal a list of ids; within a lot they keep their order."""
    if lots == 1:
        return Dealt(np.arange(len(ids), dtype=np.int64), np.array([0, len(ids)], dtype=np.int64))
    numbers = lot_numbers(ids, lots, salt)
    counts = np.bincount(numbers, minlength=lots)
    return Dealt(np.argsort(numbers, kind="stable"), np.concatenate(([0], counts.cumsum())))


def members(ids: AnyArray, dealt: Dealt, number: int, first: int = 0) -> Lot:
    """One lot of a list of ids whose rows begin at `first`."""
    places = dealt.order[dealt.edges[number] : dealt.edges[number + 1]]
    return Lot(ids[places], places + first)


class DealtIds:
    """All ids of a party in lots. Where ids lie in shards, so does the deal, and only the lot asked for comes here."""

    def __init__(self, ids: AnyArray, lots: int, salt: bytes, fewest: int = FEWEST) -> None:
        self._numbers: Int64Array | None = None
        if lots > 1 and len(ids) < fewest * lots:
            ids = np.asarray(ids)
            self._numbers = lot_numbers(ids, lots, salt)
        elif isinstance(ids, ShardedArray):
            self._dealt = ids.shards.each(dealt, ids, lots, salt)
        else:
            self._dealt = [dealt(ids, lots, salt)]
        self._ids = ids

    def lot(self, number: int) -> Lot:
        ids = self._ids
        if self._numbers is not None:
            return Lot(ids, np.arange(len(ids), dtype=np.int64), self._numbers == number)
        if not isinstance(ids, ShardedArray):
            return members(ids, self._dealt[0], number)
        firsts = list(ids.shards.edges[:-1])
        parts: list[Lot] = ids.shards.pool.get(ids.shards.each(members, ids, self._dealt, number, firsts))
        return Lot(np.concatenate([part.ids for part in parts]), np.concatenate([part.rows for part in parts]))
