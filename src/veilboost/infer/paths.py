"""What a passive party can check about the paths of rows: a row has at most one node on each level of a tree.

A passive party does not know the shape of the trees. But nodes are numbered level by level and in pairs of siblings, so
the number of a node bounds its level: level d has numbers from 2d - 1 to 2^(d+1) - 2. A row goes from each node to a
deeper one. An active party that follows the protocol always satisfies this; one that does not gets at most one
assignment for each level, `max_depth` in a tree, instead of those of all nodes.
"""

from __future__ import annotations

import numpy as np

from veilboost import _native
from veilboost.errors import MalformedMessage
from veilboost.infer.messages import RouteRequest
from veilboost.model.share import SplitRecords
from veilboost.types import Float32Array, UInt8Array

# Why a request is refused, by the number that the kernel returns, less one.
_REFUSED = (
    "the arrays of a routing request are inconsistent",
    "a routing request contains rows that do not exist, or too many",
    "a routing request contains a node that this party does not split",
    "a routing request repeats a node",
    "a node of a routing request comes after none of its tree",
    "two nodes of a routing request come after the same one, or one has its own rows",
    "a row is routed to nodes that are not on one path",
)


class Paths:
    """The levels that the rows of one request have reached, in the trees that this party splits."""

    def __init__(self, records: SplitRecords, values: Float32Array, max_depth: int) -> None:
        self._records, self._values, self._max_depth = records, np.ascontiguousarray(values), max_depth
        self._next = np.zeros((records.trees, values.shape[1]), dtype=np.uint8)  # the least level of the next node

    def answer(self, request: RouteRequest) -> UInt8Array:
        """The assignments of the rows at the nodes that they reach, packed. Raises if they cannot reach the nodes."""
        records, deepest = self._records, self._max_depth
        most = min(len(request.rows) * deepest, len(request.node) * self._values.shape[1])
        left = np.empty((most + 7) // 8, dtype=np.uint8)
        asked = request.tree, request.node, request.starts, request.rows, request.after
        rules, levels = records.rule_arrays, records.levels
        number = _native.answer_route(
            records.sorted_keys, *rules, self._values, *levels, deepest, self._next, *asked, left
        )
        if number < 0:
            raise MalformedMessage(_REFUSED[-number - 1])
        return left[: (number + 7) // 8]
