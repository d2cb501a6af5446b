"""Joint prediction by the active party and the passive parties.

The active party asks about nodes that rows visit, for all trees in parallel, with at most one exchange per level and
batch of rows: rows move through its own nodes without one, until each waits at a node of another party. The
other party answers for that node and for those of its nodes that the row reaches from there without leaving them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from veilboost.boost.grower import LEAF
from veilboost.errors import MalformedMessage, MissingShare, UnexpectedMessage
from veilboost.infer.messages import BeginPrediction, RouteAnswer, RouteRequest
from veilboost.infer.paths import Paths
from veilboost.model.share import ModelShare, Skeleton
from veilboost.types import BoolArray, Column, Float32Array, Float64Array, Int32Array, Int64Array, PartyName, UInt8Array
from veilboost.wire.channel import Peers
from veilboost.wire.message import Done, Message

PAIRS_AT_ONCE = 1 << 22  # limits memory: (tree, row) pairs that are routed together


def predict_joint(share: ModelShare, columns: Sequence[Column], rows: int, peers: Peers) -> Float64Array:
    """Margins (K, rows)."""
    values = share.matrix(columns, rows)
    return JointModel(share).margins(values, peers, {name: BeginPrediction(rows) for name in peers.names})


class JointModel:
    """The active party's share, prepared once to predict many times."""

    def __init__(self, share: ModelShare) -> None:
        if share.skeleton is None:
            raise MissingShare(f"the share of {share.party} has no skeleton: only the active party can predict")
        self.share, self.skeleton = share, share.skeleton
        self._routes = Routes(share.skeleton)
        self._own = share.skeleton.parties.index(share.party) if share.party in share.skeleton.parties else -1
        self._record_of = np.full(self._routes.nodes, -1, dtype=np.int32)
        self._record_of[self._routes.first[share.records.tree] + share.records.node] = np.arange(share.records.count)

    def check_reached(self, peers: Peers) -> None:
        """Raise unless all other parties of the model are among these peers."""
        absent = [name for name in self.skeleton.parties if name not in (self.share.party, *peers.names)]
        if absent:
            raise MissingShare(f"{', '.join(absent)} cannot be reached")

    def margins(self, values: Float32Array, peers: Peers, begin: Mapping[PartyName, Message]) -> Float64Array:
        """Margins (K, rows) of encoded rows, by routing.

        A peer receives its message of `begin` together with the first question; if no row reaches its nodes, neither.
        """
        self.check_reached(peers)
        rows, begun = values.shape[1], set[PartyName]()
        batch = max(1, PAIRS_AT_ONCE // max(1, len(self.skeleton.trees)))

        def walk(low: int) -> Float64Array:
            def ask(walk: Walk, waiting: Mapping[PartyName, Pairs]) -> None:
                new = waiting.keys() - begun
                begun.update(new)
                peers.hold({name: begin[name] for name in new}, Done)
                requests = {name: self._routes.request(pairs, low) for name, pairs in waiting.items()}
                for name, answer in peers.ask(requests, RouteAnswer).items():
                    if not walk.follow(waiting[name].index, answer.left):
                        raise MalformedMessage(f"{name} answered for the wrong number of rows")

            return self.walk(values[:, low : low + batch], ask)

        shares = [walk(low) for low in range(0, rows, batch)]
        return np.concatenate(shares, axis=1) if shares else np.empty((self.skeleton.trees_per_round, 0))

    def walk(self, values: Float32Array, ask: Callable[[Walk, Mapping[PartyName, Pairs]], None]) -> Float64Array:
        """Margins of these rows. When every pair waits at a node of another party, `ask` moves them on."""
        walk = Walk(self._routes, values.shape[1])
        while True:
            self._move_own(walk, values)
            if not walk.moving:
                return walk.margins()
            ask(walk, {self.skeleton.parties[owner]: pairs for owner, pairs in walk.waiting()})
            walk.settle()

    def _move_own(self, walk: Walk, values: Float32Array) -> None:
        """Move the pairs at nodes of this party until each is at a leaf or waits for another party."""
        pairs = walk.at_nodes_of(self._own)
        records = self._record_of[walk.nodes(pairs)]
        while len(pairs):
            at = walk.move(pairs, self.share.records.goes_left(values, records, pairs % values.shape[1]))
            records = self._record_of[at]
            own = records >= 0
            pairs, records = pairs[own], records[own]
        walk.settle()


@dataclass(frozen=True)
class Pairs:
    """Pairs that wait at nodes of one owner: rows[starts[k]:starts[k+1]] are at node at[k], counted over all trees."""

    index: Int64Array
    at: Int32Array
    starts: Int32Array
    rows: Int32Array

    @property
    def counts(self) -> Int32Array:
        return self.starts[1:] - self.starts[:-1]


class Routes:
    """The nodes of all trees, tree after tree, as arrays: what every walk of a model needs."""

    def __init__(self, skeleton: Skeleton) -> None:
        sizes = [tree.nodes for tree in skeleton.trees]
        ends = np.cumsum(np.array([0, *sizes], dtype=np.int64))
        self.base_margin, self.nodes, self.first = skeleton.base_margin, int(ends[-1]), ends[:-1]
        self.tree_of = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
        self.node_of = (np.arange(self.nodes, dtype=np.int64) - np.repeat(self.first, sizes)).astype(np.int32)
        self.left = np.concatenate(
            [np.where(t.left == LEAF, LEAF, t.left + at) for t, at in zip(skeleton.trees, self.first, strict=True)]
        ).astype(np.int32)
        self.owner = np.concatenate([tree.owner for tree in skeleton.trees])
        self.owners = len(skeleton.parties)
        self.weight = np.concatenate([tree.weight for tree in skeleton.trees])
        inner = np.flatnonzero(self.left != LEAF)
        parents = np.full(self.nodes, LEAF, dtype=np.int32)
        for side in (0, 1):
            parents[self.left[inner] + side] = inner
        # A run is a node and those below it that are reached through nodes of the same owner only.
        self.follows: BoolArray = (parents != LEAF) & (self.owner == self.owner[parents])
        self.follows &= self.left != LEAF
        run = np.where(self.follows, parents, np.arange(self.nodes))
        while ((further := run[run]) != run).any():
            run = further
        self._members = inner[np.argsort(run[inner], kind="stable")]  # run after run, in the order of nodes
        self._run_starts = np.searchsorted(run[self._members], np.arange(self.nodes + 1))
        place = np.empty(self.nodes, dtype=np.int64)  # of a node in its run
        place[self._members] = np.arange(len(inner)) - self._run_starts[run[self._members]]
        parent = parents[self._members]
        after = 2 * (place[parent] - place[self._members]) + (self._members != self.left[parent])
        self._after = after.astype(np.int32)  # `RouteRequest.after`, less twice the place of the node in the request

    def keys(self, at: Int32Array) -> Iterator[tuple[int, int]]:
        """The tree and the node number of each of these nodes."""
        return zip(self.tree_of[at].tolist(), self.node_of[at].tolist(), strict=True)

    def request(self, pairs: Pairs, low: int) -> RouteRequest:
        """The request for these pairs, whose rows are numbered from `low`, at all nodes of their runs."""
        begin = self._run_starts[pairs.at]
        sizes = self._run_starts[pairs.at + 1] - begin
        ends = np.cumsum(sizes)
        first = ends - sizes  # where each run begins in the request
        numbers = np.arange(ends[-1], dtype=np.int32)
        members = numbers + np.repeat(begin - first, sizes)
        nodes, after = self._members[members], self._after[members] + 2 * numbers
        after[first] = -1
        starts = np.zeros(len(nodes) + 1, dtype=np.int32)
        starts[first + 1] = pairs.counts
        return RouteRequest(
            self.tree_of[nodes], self.node_of[nodes], starts.cumsum(dtype=np.int32), pairs.rows + np.int32(low), after
        )


class Walk:
    """The current node of every (tree, row) pair, numbered tree * rows + row."""

    def __init__(self, routes: Routes, rows: int) -> None:
        self.routes, self._rows = routes, rows
        self._at = np.repeat(routes.first.astype(np.int32), rows)
        self._moving = np.flatnonzero(routes.left[self._at] != LEAF)

    def nodes(self, pairs: Int64Array) -> Int32Array:
        """The nodes at which these pairs are."""
        return self._at[pairs]

    def at_nodes_of(self, owner: int) -> Int64Array:
        """The pairs that wait at nodes of one owner."""
        return self._moving[self.routes.owner[self._at[self._moving]] == owner]

    def waiting(self) -> Iterator[tuple[int, Pairs]]:
        """For each owner, the pairs at its nodes, in node order."""
        owners = self.routes.owner[self._at[self._moving]]
        for owner in range(self.routes.owners):
            pairs = self._moving[owners == owner]
            if not len(pairs):
                continue
            at = self._at[pairs]
            order = np.argsort(at, kind="stable")
            pairs, at = pairs[order], at[order]
            begins = np.ones(len(at), dtype=np.bool_)
            np.not_equal(at[1:], at[:-1], out=begins[1:])
            visited = at[begins]
            starts = np.full(len(visited) + 1, len(pairs), dtype=np.int32)
            starts[:-1] = begins.nonzero()[0]
            rows = (pairs % self._rows).astype(np.int32)
            yield owner, Pairs(pairs, visited, starts, rows)

    def move(self, pairs: Int64Array, left: BoolArray | UInt8Array) -> Int32Array:
        """Move pairs to a child of their node, and return the nodes at which they are then."""
        at = self.routes.left[self._at[pairs]] + (left == 0)
        self._at[pairs] = at
        return at

    def follow(self, pairs: Int64Array, packed: UInt8Array) -> bool:
        """Move pairs through the nodes of their runs, as an answer to `Routes.request` says. False: it does not fit."""
        left, used = np.unpackbits(packed), 0
        while len(pairs) and used + len(pairs) <= len(left):
            at = self.move(pairs, left[used : used + len(pairs)])
            used += len(pairs)
            pairs = pairs[self.routes.follows[at]]
        return not len(pairs) and len(packed) == (used + 7) // 8

    def settle(self) -> None:
        """Drop pairs that reached a leaf."""
        self._moving = self._moving[self.routes.left[self._at[self._moving]] != LEAF]

    @property
    def moving(self) -> bool:
        return len(self._moving) > 0

    def margins(self) -> Float64Array:
        """Base margin and leaf weights, summed tree after tree: (K, rows)."""
        base = np.repeat(self.routes.base_margin[:, None], self._rows, axis=1)
        weights = self.routes.weight[self._at].reshape(-1, *base.shape)  # every round has a tree of each group
        sums = np.concatenate((base[None], weights))
        return np.add.accumulate(sums, out=sums)[-1].copy()  # unlike `sum`, which may add pairwise


class PredictionResponder:
    """Answers for the rows of one prediction request, given as `ModelShare.matrix` encodes them.

    `max_depth` is that of the model's job, as this party knows it.
    """

    def __init__(self, share: ModelShare, values: Float32Array, max_depth: int) -> None:
        self._records, self._values = share.records, values
        self._paths = Paths(share.records, values.shape[1], max_depth)

    def handle(self, message: Message) -> Message:
        rows = self._values.shape[1]
        if isinstance(message, BeginPrediction):
            if message.rows != rows:
                raise MalformedMessage("the request has the wrong number of rows")
            return Done()
        if isinstance(message, RouteRequest):
            return self._route(message, rows)
        raise UnexpectedMessage(f"{message.type_name()} is not a request for a prediction")

    def _route(self, message: RouteRequest, rows: int) -> RouteAnswer:
        nodes, after = len(message.tree), message.after
        fits = len(message.node) == len(after) == nodes and len(message.starts) == nodes + 1
        if not fits or message.starts[0] != 0 or message.starts[-1] != len(message.rows):
            raise MalformedMessage("the arrays of a routing request are inconsistent")
        counts = np.subtract(message.starts[1:], message.starts[:-1], dtype=np.int64)  # so that none wraps around
        if not _all_within(counts, 0, rows) or not _all_within(message.rows, 0, rows - 1):
            raise MalformedMessage("a routing request contains rows that do not exist, or too many")
        records = self._records.find(message.tree, message.node)
        if (records < 0).any():
            raise MalformedMessage("a routing request contains a node that this party does not split")
        # So no request can ask for more than the splits of all rows.
        used = np.zeros(self._records.count, dtype=np.bool_)
        used[records] = True
        if np.count_nonzero(used) != nodes:
            raise MalformedMessage("a routing request repeats a node")
        at, of_rows, child = np.repeat(np.arange(nodes), counts), message.rows, _children(message, counts)
        left: list[BoolArray] = []
        while len(at):
            self._paths.advance(records[at], of_rows)
            left.append(self._records.goes_left(self._values, records[at], of_rows))
            at = child[2 * at + ~left[-1]]
            on = at >= 0
            at, of_rows = at[on], of_rows[on]
        return RouteAnswer(np.packbits(np.concatenate(left)) if left else np.empty(0, dtype=np.uint8))


def _all_within(values: Int32Array | Int64Array, least: int, most: int) -> bool:
    return not len(values) or bool(values.min() >= least and values.max() <= most)


def _children(message: RouteRequest, counts: Int64Array) -> Int64Array:
    """For both sides of each node of a request, the place of the node that comes after it, or -1."""
    child = np.full(2 * len(message.tree), -1, dtype=np.int64)
    (below,) = (message.after != -1).nonzero()
    if len(below):
        after = message.after[below]
        parent = after >> 1
        # A parent comes first, so there is no circle.
        if after.min() < 0 or (parent >= below).any() or (message.tree[parent] != message.tree[below]).any():
            raise MalformedMessage("a node of a routing request comes after none of its tree")
        child[after] = below
        if (child[after] != below).any() or counts[below].any():
            raise MalformedMessage("two nodes of a routing request come after the same one, or one has its own rows")
    return child
