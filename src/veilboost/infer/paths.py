"""What a passive party can check about the paths of rows: a row has at most one node on each level of a tree.

A passive party does not know the shape of the trees. But nodes are numbered level by level and in pairs of siblings, so
the number of a node bounds its level: level d has numbers from 2d - 1 to 2^(d+1) - 2. A row goes from each node to a
deeper one. An active party that follows the protocol always satisfies this; one that does not gets at most one
assignment for each level, `max_depth` in a tree, instead of those of all nodes.
"""

from __future__ import annotations

import numpy as np

from veilboost.errors import MalformedMessage
from veilboost.model.share import SplitRecords
from veilboost.types import Int32Array, Int64Array


class Paths:
    """The levels that rows have reached in one request, in the trees that this party splits."""

    def __init__(self, records: SplitRecords, rows: int, max_depth: int) -> None:
        self._rows, numbers = rows, records.node.astype(np.int64)
        trees, self._tree = np.unique(records.tree, return_inverse=True)
        self._least = np.frexp(numbers + 1)[1] - 1  # whole logarithm to the base 2
        self._most = np.minimum((numbers + 1) // 2, max_depth - 1)
        self._next = np.zeros((len(trees), rows), dtype=np.uint8)  # the least level of the next node of each pair

    def advance(self, records: Int32Array, rows: Int32Array) -> None:
        """Note that these rows are at the nodes of these records. Raises, and notes nothing, if they cannot be."""
        if not len(rows):
            return
        pairs: Int64Array = self._tree[records] * self._rows + rows
        # A row that is named twice in a tree would be on two nodes of one level.
        low, span = int(rows.min()), int(rows.max()) - int(rows.min()) + 1
        named = np.zeros(len(self._next) * span, dtype=np.bool_)
        named[self._tree[records] * span + (rows - low)] = True
        levels = np.maximum(self._least[records], self._next.reshape(-1)[pairs])
        if np.count_nonzero(named) != len(rows) or (levels > self._most[records]).any():
            raise MalformedMessage("a row is routed to nodes that are not on one path")
        self._next.reshape(-1)[pairs] = levels + 1
