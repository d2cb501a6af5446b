"""A round at a passive party: the order in which it sends its columns, and the nodes of its rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from veilboost import _native
from veilboost.boost.bins import BinLayout
from veilboost.boost.columns import ColumnBlock, LevelBins, Splits
from veilboost.boost.rows import Assignments, ReceivedAssignments, RowGroups
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import Csprng
from veilboost.errors import MalformedMessage
from veilboost.protocols.vertical.messages import NO_LEVELS, MoreAssignments, SplitRequest, StatisticsRequest
from veilboost.types import BoolArray, Int32Array, Int64Array, UInt8Array

_NO_BITS = np.empty(0, dtype=np.uint8)


class RoundState:
    """The nodes of the rows in the trees of the current round.

    `fit` rows are summed; `routed` rows are only routed. `bins` and the positions `build` that are summed are those of
    the level.
    """

    bins: LevelBins
    build: Int64Array

    def __init__(
        self,
        number: int,
        block: ColumnBlock,
        columns: Int32Array | None,
        shuffle: ColumnShuffle,
        fit: RowGroups,
        routed: RowGroups,
        numbers: tuple[Int32Array, Int32Array] | None = None,
    ) -> None:
        self.number, self.block, self.columns, self.shuffle = number, block, columns, shuffle
        self.fit, self.routed = fit, routed
        self.depth, self.summed = 0, False
        # The number of each node in its tree, and how many nodes each tree has so far.
        roots = fit.nodes
        self.node, self._sizes = numbers or (np.zeros(roots, dtype=np.int32), np.ones(roots, dtype=np.int32))
        # No node of the level is split yet, and no assignments were received.
        self.split_here = False  # one request splits all nodes that this party splits
        self._own, self._own_nodes = np.zeros(self.fit.nodes, dtype=np.bool_), 0
        self._own_left: tuple[Assignments, Assignments] = (_NO_BITS, _NO_BITS)
        self.unsent: Iterator[tuple[UInt8Array, UInt8Array]] = iter(())
        self._received: IncomingSplit | None = None

    def at_level(self, message: StatisticsRequest, fit: RowGroups, routed: RowGroups, build: Int64Array) -> RoundState:
        """The same round at a level with these rows; none of its nodes is split yet."""
        numbers = self.node, self._sizes
        if self.summed:
            numbers = np.empty(fit.nodes, dtype=np.int32), self._sizes.copy()
            _native.number_children(self.fit.group, message.split.astype(np.int64), numbers[1], numbers[0])
        entered = RoundState(self.number, self.block, self.columns, self.shuffle, fit, routed, numbers)
        entered.depth, entered.summed, entered.build = message.depth, True, build
        entered.bins = self.block.level_bins(fit, routed)
        return entered

    def split(self, position: Int64Array, splits: Splits) -> tuple[UInt8Array, UInt8Array]:
        """Split these nodes here, and return the first piece of their assignments to send."""
        groups = self.fit.of(position), self.routed.of(position)
        fit, routed = self.block.route(self.bins, groups[0], splits), self.block.route(self.bins, groups[1], splits)
        self.split_here, self._own[position], self._own_nodes = True, True, len(position)
        self._own_left = fit, routed
        self.unsent = zip_longest(groups[0].packed_pieces(fit), groups[1].packed_pieces(routed), fillvalue=_NO_BITS)
        return next(self.unsent)

    def receive(self, message: MoreAssignments) -> None:
        """Add a piece of the assignments at nodes that others split. Empty pieces are refused: they would never end."""
        if not len(message.fit_left) and not len(message.routed_left):
            raise MalformedMessage("a piece of left/right assignments has no rows")
        self._received = self._incoming(message.split).plus(message)

    def children(self, message: StatisticsRequest) -> tuple[RowGroups, RowGroups]:
        """The rows of the next level, from the assignments made here and those received."""
        return self._incoming(message.split).plus(message).children(self._own_left)

    def _incoming(self, split: Int32Array) -> IncomingSplit:
        """The assignments received so far for these nodes."""
        if self._received is not None:
            if not np.array_equal(split, self._received.split):
                raise MalformedMessage("pieces of left/right assignments are of different nodes")
            return self._received
        if not _native.increasing_below(split, self.fit.nodes):
            raise MalformedMessage("a node that was split is not in the level, or is named twice")
        nodes = split.astype(np.int64)
        own = self._own[nodes]
        if np.count_nonzero(own) != self._own_nodes:
            raise MalformedMessage("a node that was split here is missing")
        groups, others = (self.fit.of(nodes), self.routed.of(nodes)), (~own).nonzero()[0]
        return IncomingSplit(split, own, groups, (groups[0].receiver(others), groups[1].receiver(others)))


class IncomingSplit(NamedTuple):
    """The assignments of the rows (`groups`) of the nodes `split`: known at `own` nodes, otherwise as received."""

    split: Int32Array
    own: BoolArray
    groups: tuple[RowGroups, RowGroups]
    received: tuple[ReceivedAssignments, ReceivedAssignments]

    def plus(self, message: MoreAssignments | StatisticsRequest) -> IncomingSplit:
        fit, routed = self.received
        received = fit.plus(message.fit_left), routed.plus(message.routed_left)
        return IncomingSplit(self.split, self.own, self.groups, received)

    def children(self, own_left: tuple[Assignments, Assignments]) -> tuple[RowGroups, RowGroups]:
        (fit, routed), own = self.groups, self.own.astype(np.int32)
        return (
            fit.split_by(own, [self.received[0], own_left[0]]),
            routed.split_by(own, [self.received[1], own_left[1]]),
        )


def summed_ahead(
    children: RowGroups, message: StatisticsRequest, config: TrainingConfig
) -> tuple[Int64Array, Int64Array]:
    """The nodes that a request ahead asks for, which both parties compute when they know the rows of all nodes.

    A node needs two rows to split, and `min_node_rows` rows, like its sibling, to be summed. Returns the nodes to sum,
    and those whose sums are known then.
    """
    nodes = np.empty((2, children.nodes), dtype=np.int64)
    least = config.min_node_rows, message.smaller
    built, known = _native.nodes_ahead(children.counts, message.build, *least, nodes)
    return nodes[0, :built], nodes[1, :known]


def own_best(message: SplitRequest, kept: Mapping[int, int]) -> SplitRequest:
    """Fill in the candidates if the active party knows only that the best one won: `kept` maps position to handle."""
    if message.handles.any() or not set(message.position.tolist()) <= set(kept):
        raise MalformedMessage("a split request may only name the best candidate of a scored node")
    if len(message.handles) != len(message.position):
        raise MalformedMessage("a list of lists is inconsistent")
    handles = [kept[position] for position in message.position.tolist()]
    return replace(message, handles=np.array(handles, dtype=np.int32))


@dataclass(frozen=True)
class ColumnShuffle:
    """A permutation of columns: column f of `layout` is sent in the place of column `place[f]`."""

    layout: BinLayout
    place: Int32Array
    identity: bool = False

    @staticmethod
    def none(layout: BinLayout) -> ColumnShuffle:
        """Return the identity."""
        return ColumnShuffle(layout, np.arange(layout.features, dtype=np.int32), identity=True)

    @staticmethod
    def draw(layout: BinLayout, randomness: Csprng, limits: UInt8Array = NO_LEVELS) -> ColumnShuffle:
        """Draw a uniformly random order within each group of columns of the same shape and limits, one row each."""
        alike: defaultdict[tuple[int, int, int, bytes], list[int]] = defaultdict(list)
        limited = [row.tobytes() for row in limits] if limits.size else [b""] * layout.features
        for column, shape in enumerate(zip(layout.widths, layout.missing, layout.kind, strict=True)):
            alike[int(shape[0]), int(shape[1]), int(shape[2]), limited[column]].append(column)
        # Sorting by 64 random bits is uniform except for equal draws, whose probability is below columns^2 / 2^65.
        keys = np.frombuffer(randomness.bytes(8 * layout.features), dtype=np.uint64)
        place = np.empty(layout.features, dtype=np.int32)
        for columns in alike.values():
            order = np.array(columns, dtype=np.int32)
            place[order] = order[np.argsort(keys[order], kind="stable")]
        return ColumnShuffle(layout, place)

    @cached_property
    def starts(self) -> Int32Array:
        """The first slot of each column, in the order sent."""
        return self.layout.offsets[:-1][self.place]

    @cached_property
    def slots(self) -> Int32Array:
        """The owner's slot at each slot sent."""
        sent = np.empty(self.layout.slots, dtype=np.int32)
        own = np.arange(self.layout.slots, dtype=np.int32)
        column = np.repeat(np.arange(self.layout.features), self.layout.widths)
        sent[own - self.layout.offsets[column] + self.starts[column]] = own
        return sent

    def own_handles(self, handles: Int32Array) -> Int32Array:
        """Translate handles in the order sent into the owner's numbering."""
        return (2 * self.slots[handles >> 1] + (handles & 1)).astype(np.int32)
