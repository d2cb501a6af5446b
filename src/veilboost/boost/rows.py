"""Rows grouped by node, level by level, and their left/right assignments, which are sent in pieces."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

import numpy as np

from veilboost import _native
from veilboost.errors import MalformedMessage
from veilboost.types import AnyArray, BoolArray, Float32Array, Float64Array, Int32Array, Int64Array, UInt8Array

Result = TypeVar("Result")


@dataclass(eq=False)  # not frozen: a level makes many, and to set frozen fields takes longer than the work on them
class RowGroups:
    """The rows of each node of a level: node k holds rows[begin[k]:end[k]] of tree `group[k]`.

    With K trees grown in parallel (multiclass) every row is in K groups.
    """

    rows: Int32Array
    begin: Int64Array
    end: Int64Array
    group: Int32Array
    threads: int = field(default=1, kw_only=True)
    _counts: Int64Array | None = field(default=None, init=False, repr=False)
    _size: int | None = field(default=None, init=False, repr=False)

    @staticmethod
    def root(rows: Int32Array, groups: int, threads: int = 1) -> RowGroups:
        """All rows at the roots. Row numbers that are not one array in memory provide `at_roots`."""
        at_roots = getattr(rows, "at_roots", None)
        if at_roots is not None:
            return at_roots(groups)
        edges = np.arange(groups + 1, dtype=np.int64) * len(rows)
        every = np.tile(rows, groups) if groups > 1 else rows
        return RowGroups(every, edges[:-1].copy(), edges[1:].copy(), np.arange(groups, dtype=np.int32), threads=threads)

    @property
    def nodes(self) -> int:
        return len(self.begin)

    @property
    def counts(self) -> Int64Array:
        if self._counts is None:
            self._counts = self.end - self.begin
        return self._counts

    @property
    def size(self) -> int:
        """The number of rows of all nodes together."""
        if self._size is None:
            self._size = sum(self.counts.tolist())
        return self._size

    def of(self, nodes: Int64Array) -> RowGroups:
        """The same rows, restricted to these nodes, in increasing order."""
        if len(nodes) == len(self.begin):
            return self
        return RowGroups(self.rows, self.begin[nodes], self.end[nodes], self.group[nodes], threads=self.threads)

    def rows_at(self, node: int) -> Int32Array:
        """The rows of one node."""
        return self.rows[self.begin[node] : self.end[node]]

    def listed(self) -> Int32Array:
        """The rows of all nodes, node after node."""
        if self.nodes and self.begin[0] == 0 and np.array_equal(self.begin[1:], self.end[:-1]):
            return self.rows[: self.end[-1]]
        if not self.nodes:
            return self.rows[:0]
        return np.concatenate([self.rows[b:e] for b, e in zip(self.begin, self.end, strict=True)])

    def counts_below(self, nodes: Int32Array, bounds: Int64Array) -> Int64Array:
        """For each of these nodes: how many of its rows, which are sorted, have a smaller number than its bound."""
        starts = zip(self.begin[nodes].tolist(), self.end[nodes].tolist(), bounds.tolist(), strict=True)
        return np.array([self.rows[begin:end].searchsorted(bound) for begin, end, bound in starts], dtype=np.int64)

    def split(self, left: Assignments) -> RowGroups:
        """The children of all nodes: left and right child of each node in turn."""
        return self.split_by(np.zeros(self.nodes, dtype=np.int32), [left])

    def split_by(self, part_of: Int32Array, parts: Sequence[Assignments | ReceivedAssignments]) -> RowGroups:
        """The same from assignments in parts: those of the rows of node k are in parts[part_of[k]]."""
        children, starts = np.empty(self.size, dtype=np.int32), np.empty(2 * self.nodes + 1, dtype=np.int64)
        bits: list[UInt8Array] = []
        packed: list[bool] = []
        for part in parts:
            received = isinstance(part, ReceivedAssignments)
            packed.append(received)
            bits.append(part.packed() if received else part)
        _native.split_rows(self.rows, self.begin, self.end, part_of, bits, packed, children, starts, self.threads)
        split = RowGroups(children, starts[:-1], starts[1:], self.group.repeat(2), threads=self.threads)
        split._size = self.size
        return split

    def take(self, chosen: BoolArray, whole: Assignments) -> Assignments:
        """Select the left/right assignments of the chosen nodes from those of all rows."""
        if chosen.all():
            return whole
        part = np.empty(sum(self.counts[chosen].tolist()), dtype=np.uint8)
        _native.take_nodes(self.counts, chosen, whole, part)
        return part

    def merged(self, parts: Sequence[tuple[BoolArray, Assignments]]) -> Assignments:
        """The inverse of `take`: the assignments of all rows, from parts that choose every node once."""
        if len(parts) == 1 or not self.size:
            return parts[0][1]
        whole = np.empty(self.size, dtype=np.uint8)
        for chosen, part in parts:
            _native.put_nodes(self.counts, chosen, part, whole)
        return whole

    def packed_pieces(self, left: Assignments) -> Iterator[UInt8Array]:
        """Assignments as they are sent: packed pieces, one in memory at a time. Yields an empty piece for no rows."""
        for first in range(0, max(len(left), 1), ASSIGNMENTS_AT_ONCE):
            yield np.packbits(left[first : first + ASSIGNMENTS_AT_ONCE])

    def receiver(self, nodes: Int64Array) -> ReceivedAssignments:
        """An empty receiver of such pieces for these nodes."""
        return ReceivedAssignments(sum(self.counts[nodes].tolist()))

    def totals(self, gradients: Int32Array) -> Int64Array:
        """Sums of (g, h), given as (trees, rows, 2), over the rows of each node: (nodes, 2)."""
        sums = np.empty((self.nodes, 2), dtype=np.int64)
        _native.node_totals(gradients, self.rows, self.begin, self.end, self.group, sums, self.threads)
        return sums

    def smaller(self) -> Int64Array:
        """The smaller of each two siblings."""
        nodes = np.empty(self.nodes // 2, dtype=np.int64)
        _native.smaller_siblings(self.counts, nodes)
        return nodes

    def smaller_totals(self, gradients: Int32Array) -> Int64Array:
        """`self.of(self.smaller()).totals(gradients)`, in one step."""
        sums = np.empty((self.nodes // 2, 2), dtype=np.int64)
        _native.smaller_totals(gradients, self.rows, self.begin, self.end, self.group, sums, self.threads)
        return sums

    def add_to(self, margin: Float64Array, weight: Float32Array) -> None:
        """Add each node's weight to the margins (trees, rows) of its rows."""
        _native.add_to_rows(self.rows, self.begin, self.end, self.group, weight, margin, self.threads)

    def folded(
        self, function: Callable[..., Result], arrays: Sequence[AnyArray], combine: Callable[..., Result]
    ) -> Result:
        """Apply a function to the rows, grouped by node, and to arrays with an entry for each row.

        If the rows lie in several places, it is called in each, and `combine` merges any number of results.
        """
        return function(self, *arrays)

    def chunks(self) -> Iterator[Int32Array]:
        """`listed()` in pieces, one in memory at a time."""
        yield self.listed()

    def together(
        self, edges: Sequence[int], arrays: Sequence[AnyArray], piece: Callable[[int], Callable[..., Result]]
    ) -> Iterator[Result]:
        """Call `piece(k)` for the rows between edges[k] and edges[k+1] of `listed()`, wherever that is most efficient.

        Results come in order, and only a few are computed ahead.

        The arguments are the rows' numbers in the arrays, then the arrays. Arrays have an entry for each row along
        their row axis, which is the second of three or else the first.
        """
        listed = self.listed()
        for number, (low, high) in enumerate(itertools.pairwise(edges)):
            yield piece(number)(listed[low:high], *arrays)


class NoRows(RowGroups):
    """No rows in any node of any level."""

    def of(self, nodes: Int64Array) -> RowGroups:
        return self

    def rows_at(self, node: int) -> Int32Array:
        return self.rows

    def split_by(self, part_of: Int32Array, parts: Sequence[Assignments | ReceivedAssignments]) -> RowGroups:
        return self

    def take(self, chosen: BoolArray, whole: Assignments) -> Assignments:
        return NO_ASSIGNMENTS

    def merged(self, parts: Sequence[tuple[BoolArray, Assignments]]) -> Assignments:
        return NO_ASSIGNMENTS

    def packed_pieces(self, left: Assignments) -> Iterator[UInt8Array]:
        yield NO_ASSIGNMENTS

    def receiver(self, nodes: Int64Array) -> ReceivedAssignments:
        return _NOTHING_RECEIVED

    def add_to(self, margin: Float64Array, weight: Float32Array) -> None:
        """Do nothing."""


class RowFiller:
    """Values (trees, rows, 2) that are received in pieces of rows, in order."""

    def __init__(self, rows: int) -> None:
        self.rows, self.filled = rows, 0
        self._pieces: list[Int32Array] = []

    def add(self, values: Int32Array) -> None:
        self._pieces.append(values)
        self.filled += values.shape[1]

    @property
    def complete(self) -> bool:
        return self.filled == self.rows

    def whole(self) -> Int32Array:
        """All values, once they are complete."""
        return self._pieces[0] if len(self._pieces) == 1 else np.concatenate(self._pieces, axis=1)


Assignments: TypeAlias = UInt8Array
ASSIGNMENTS_AT_ONCE = 1 << 21  # rows per piece of 256 kB; whole bytes, so that pieces can be concatenated


class ReceivedAssignments:
    """The assignments received so far. Immutable: a refused message leaves no trace."""

    def __init__(self, rows: int, pieces: int = 0, packed: tuple[UInt8Array, ...] = ()) -> None:
        self.rows, self.pieces, self._packed = rows, pieces, packed

    def plus(self, piece: UInt8Array) -> ReceivedAssignments:
        """With one more piece, of `ASSIGNMENTS_AT_ONCE` rows or all that are left."""
        self.rows_of(piece)
        return ReceivedAssignments(self.rows, self.pieces + 1, (*self._packed, piece))

    @property
    def complete(self) -> bool:
        return self.pieces * ASSIGNMENTS_AT_ONCE >= self.rows

    def whole(self) -> Assignments:
        """All assignments. Raises `MalformedMessage` if some are missing."""
        return np.unpackbits(self.packed(), count=self.rows)

    def packed(self) -> UInt8Array:
        """The same, packed."""
        if not self.complete:
            raise MalformedMessage("the left/right assignments of some rows are missing")
        return self._packed[0] if len(self._packed) == 1 else np.concatenate([NO_ASSIGNMENTS, *self._packed])

    def rows_of(self, piece: UInt8Array) -> int:
        """The number of rows in the next piece. Raises unless the piece has their bits."""
        rows = self.rows - self.pieces * ASSIGNMENTS_AT_ONCE
        rows = ASSIGNMENTS_AT_ONCE if rows > ASSIGNMENTS_AT_ONCE else rows if rows > 0 else 0
        if len(piece) != (rows + 7) // 8:
            raise MalformedMessage("received left/right assignments for the wrong number of rows")
        return rows


NO_ASSIGNMENTS = np.empty(0, dtype=np.uint8)
_NOTHING_RECEIVED = ReceivedAssignments(0)
NO_ROWS = NoRows(
    np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)
)
