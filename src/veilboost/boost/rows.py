"""Rows grouped by node, level by level."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from veilboost import _native
from veilboost.types import BoolArray, Int32Array, Int64Array, UInt8Array


@dataclass(frozen=True)
class RowGroups:
    """The rows of each node of a level: node k holds rows[begin[k]:end[k]] of tree `group[k]`.

    With K trees growing side by side (multiclass) every row is in K groups.
    """

    rows: Int32Array
    begin: Int64Array
    end: Int64Array
    group: Int32Array

    @staticmethod
    def root(rows: Int32Array, groups: int) -> RowGroups:
        edges = np.arange(groups + 1, dtype=np.int64) * len(rows)
        every = np.tile(rows, groups) if groups > 1 else rows
        return RowGroups(every, edges[:-1].copy(), edges[1:].copy(), np.arange(groups, dtype=np.int32))

    @property
    def nodes(self) -> int:
        return len(self.begin)

    @property
    def counts(self) -> Int64Array:
        return self.end - self.begin

    @cached_property
    def size(self) -> int:
        """How many rows all nodes hold together."""
        return int(self.counts.sum())

    def of(self, nodes: Int64Array) -> RowGroups:
        """The same rows, but only these nodes."""
        return RowGroups(self.rows, self.begin[nodes], self.end[nodes], self.group[nodes])

    def listed(self) -> Int32Array:
        """The rows of all nodes, node after node."""
        if self.nodes and self.begin[0] == 0 and np.array_equal(self.begin[1:], self.end[:-1]):
            return self.rows[: self.end[-1]]
        if not self.nodes:
            return self.rows[:0]
        return np.concatenate([self.rows[b:e] for b, e in zip(self.begin, self.end, strict=True)])

    def split(self, left: UInt8Array) -> RowGroups:
        """The children of all nodes, left and right of each in turn; `left` has a 0/1 per row of `listed()`."""
        group = self.group.repeat(2)
        if not len(left):
            nowhere = np.zeros(len(group), dtype=np.int64)
            return RowGroups(self.rows[:0], nowhere, nowhere, group)
        children = np.empty(len(left), dtype=np.int32)
        starts = np.empty(2 * self.nodes + 1, dtype=np.int64)
        _native.split_rows(self.rows, self.begin, self.end, left, children, starts)
        return RowGroups(children, starts[:-1], starts[1:], group)

    def take(self, chosen: BoolArray, whole: UInt8Array) -> UInt8Array:
        """Of one value per row of `listed()`, those of the chosen nodes."""
        part = np.empty(int(self.counts[chosen].sum()), dtype=np.uint8)
        _native.take_nodes(self.counts, chosen, whole, part)
        return part

    def put(self, chosen: BoolArray, part: UInt8Array, whole: UInt8Array) -> None:
        """Lay the values of the chosen nodes at their places in `whole`."""
        _native.put_nodes(self.counts, chosen, part, whole)
