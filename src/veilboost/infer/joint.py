"""Joint prediction by the active party and the passive parties.

The active party asks about nodes that rows visit, for all trees in parallel, with at most one exchange per level and
batch of rows: rows move through its own nodes without one, until each waits at a node of another party. The
other party answers for that node and for those of its nodes that the row reaches from there without leaving them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from veilboost import _native
from veilboost.boost.grower import LEAF
from veilboost.errors import MalformedMessage, MissingShare, UnexpectedMessage
from veilboost.infer.messages import BeginPrediction, RouteAnswer, RouteRequest
from veilboost.infer.paths import Paths
from veilboost.model.share import ModelShare, Skeleton, SplitRecords
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
        self._split_of = np.full(self._routes.nodes, -1, dtype=np.int32)
        self._split_of[self._routes.first[share.records.tree] + share.records.node] = np.arange(share.records.count)

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
                requests = {name: walk.request(pairs, low) for name, pairs in waiting.items()}
                for name, answer in peers.ask(requests, RouteAnswer).items():
                    if not walk.follow(waiting[name], answer.left):
                        raise MalformedMessage(f"{name} answered for the wrong number of rows")

            return self.walk(values[:, low : low + batch], ask)

        shares = [walk(low) for low in range(0, rows, batch)]
        return np.concatenate(shares, axis=1) if shares else np.empty((self.skeleton.trees_per_round, 0))

    def walk(self, values: Float32Array, ask: Callable[[Walk, Mapping[PartyName, Pairs]], None]) -> Float64Array:
        """Margins of these rows. When every pair waits at a node of another party, `ask` moves them on."""
        walk, values = Walk(self._routes, values.shape[1]), np.ascontiguousarray(values)
        while walk.move_own(self._split_of, self.share.records, values):
            ask(walk, {self.skeleton.parties[owner]: pairs for owner, pairs in walk.waiting().items()})
        return walk.margins()


@dataclass(frozen=True)
class Pairs:
    """Pairs that wait at nodes of one owner, sorted by node, and the number of nodes of a request for them."""

    index: Int64Array
    asked: int


class Routes:
    """The nodes of all trees, tree after tree, as arrays: what every walk of a model needs."""

    def __init__(self, skeleton: Skeleton) -> None:
        sizes = [tree.nodes for tree in skeleton.trees]
        ends = np.cumsum(np.array([0, *sizes], dtype=np.int64))
        self.base_margin, self.nodes, self.first = skeleton.base_margin, int(ends[-1]), ends[:-1]
        self.tree_of = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
        self.node_of = (np.arange(self.nodes, dtype=np.int64) - np.repeat(self.first, sizes)).astype(np.int32)
        self.left: Int32Array = np.concatenate(
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
        members = inner[np.argsort(run[inner], kind="stable")]  # run after run, in the order of nodes
        self.run_starts = np.searchsorted(run[members], np.arange(self.nodes + 1))
        place = np.empty(self.nodes, dtype=np.int64)  # of a node in its run
        place[members] = np.arange(len(inner)) - self.run_starts[run[members]]
        parent = parents[members]
        self.members = members.astype(np.int32)
        # `RouteRequest.after`, less twice the place of the run in the request
        self.after = (2 * place[parent] + (members != self.left[parent])).astype(np.int32)


class Walk:
    """The current node of every (tree, row) pair, numbered tree * rows + row."""

    def __init__(self, routes: Routes, rows: int) -> None:
        self._routes, self._rows = routes, rows
        self._at = np.repeat(routes.first.astype(np.int32), rows)
        self.moving = np.arange(len(self._at))  # pairs that are not known to be at a leaf
        self.settle()

    def nodes(self, pairs: Int64Array) -> Int32Array:
        """The nodes at which these pairs are."""
        return self._at[pairs]

    def move_own(self, split_of: Int32Array, records: SplitRecords, values: Float32Array) -> bool:
        """Move pairs until each is at a leaf or at a node that these records do not split. False: all are at leaves."""
        left, moving = self._routes.left, self.moving
        self.moving = moving[: _native.walk_own(left, split_of, *records.rule_arrays, values, self._at, moving)]
        return len(self.moving) > 0

    def waiting(self) -> Mapping[int, Pairs]:
        """For each owner that has some, the pairs at its nodes."""
        routes, pairs = self._routes, np.empty_like(self.moving)
        sizes = np.empty((routes.owners, 2), dtype=np.int64)
        _native.sort_pairs(routes.owner, routes.run_starts, self._at, self.moving, self._rows, pairs, sizes)
        found, low = dict[int, Pairs](), 0
        for owner, (count, asked) in enumerate(sizes.tolist()):
            if count:
                found[owner] = Pairs(pairs[low : low + count], asked)
            low += count
        return found

    def request(self, pairs: Pairs, low: int) -> RouteRequest:
        """The request for these pairs, whose rows are numbered from `low`, at all nodes of their runs."""
        routes = self._routes
        tree, node, after = np.empty((3, pairs.asked), dtype=np.int32)
        starts, rows = np.empty(pairs.asked + 1, dtype=np.int32), np.empty(len(pairs.index), dtype=np.int32)
        runs = routes.run_starts, routes.members, routes.after, routes.tree_of, routes.node_of
        _native.route_request(*runs, self._at, pairs.index, self._rows, low, tree, node, starts, rows, after)
        return RouteRequest(tree, node, starts, rows, after)

    def move(self, pairs: Int64Array, left: UInt8Array) -> None:
        """Move pairs to a child of their node."""
        self._at[pairs] = self._routes.left[self._at[pairs]] + (left == 0)

    def follow(self, pairs: Pairs, packed: UInt8Array) -> bool:
        """Move pairs through the nodes of their runs, as an answer to `request` says. False: it does not fit."""
        return _native.follow_route(self._routes.left, self._routes.follows, pairs.index, packed, self._at)

    def settle(self) -> None:
        """Drop pairs that reached a leaf."""
        self.moving = self.moving[self._routes.left[self._at[self.moving]] != LEAF]

    def margins(self) -> Float64Array:
        """Base margin and leaf weights, summed tree after tree: (K, rows)."""
        base = np.repeat(self._routes.base_margin[:, None], self._rows, axis=1)
        weights = self._routes.weight[self._at].reshape(-1, *base.shape)  # every round has a tree of each group
        sums = np.concatenate((base[None], weights))
        return np.add.accumulate(sums, out=sums)[-1].copy()  # unlike `sum`, which may add pairwise


class PredictionResponder:
    """Answers for the rows of one prediction request, given as `ModelShare.matrix` encodes them.

    `max_depth` is that of the model's job, as this party knows it.
    """

    def __init__(self, share: ModelShare, values: Float32Array, max_depth: int) -> None:
        self._rows, self._paths = values.shape[1], Paths(share.records, values, max_depth)

    def handle(self, message: Message) -> Message:
        if isinstance(message, BeginPrediction):
            if message.rows != self._rows:
                raise MalformedMessage("the request has the wrong number of rows")
            return Done()
        if isinstance(message, RouteRequest):
            return RouteAnswer(self._paths.answer(message))
        raise UnexpectedMessage(f"{message.type_name()} is not a request for a prediction")
