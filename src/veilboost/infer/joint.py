"""Joint prediction by the active party and the passive parties, by routing or in one exchange.

By routing, the active party only asks about nodes that rows visit, for all trees in parallel, with at most one exchange
per level and batch of rows: rows move through its own nodes without one, until each waits at a node of another party.
In one exchange, every passive party sends the assignments of all its splits, and the active party does the rest alone:
this takes fewer rounds, but reveals the left/right assignment of every row at every split, visited or not. A passive
party only answers which rows go left at its own nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from veilboost.boost.grower import LEAF
from veilboost.errors import MalformedMessage, MissingShare, UnexpectedMessage
from veilboost.infer.messages import AllSplits, AllSplitsRequest, BeginPrediction, RouteAnswer, RouteRequest
from veilboost.model.share import ModelShare, Skeleton
from veilboost.types import BoolArray, Column, Float32Array, Float64Array, Int32Array, Int64Array, PartyName, UInt8Array
from veilboost.wire.channel import Peers
from veilboost.wire.message import Done, Message

PAIRS_AT_ONCE = 1 << 22  # limits memory: (tree, row) pairs that are routed together
Bits = Mapping[PartyName, BoolArray | UInt8Array]  # for each party, whether the pairs at its nodes go left


def predict_joint(share: ModelShare, columns: Sequence[Column], rows: int, peers: Peers) -> Float64Array:
    """Margins (K, rows), by routing."""
    values = share.matrix(columns, rows)
    return JointModel(share).margins(values, peers, {name: BeginPrediction(rows) for name in peers.names})


def predict_oneshot(share: ModelShare, columns: Sequence[Column], rows: int, peers: Peers) -> Float64Array:
    """Margins (K, rows), in one exchange."""
    model = JointModel(share)
    model.check_reached(peers)
    values = share.matrix(columns, rows)
    peers.hold({name: BeginPrediction(rows) for name in peers.names}, Done)
    answers = peers.ask({name: AllSplitsRequest() for name in peers.names}, AllSplits)
    for name, answer in answers.items():
        if len(answer.tree) != len(answer.node) or answer.left.shape != (len(answer.tree), (rows + 7) // 8):
            raise MalformedMessage(f"{name} answered for the wrong number of rows or splits")

    def look_up(waiting: Mapping[PartyName, Pairs]) -> Bits:
        return {name: _look_up(name, answers[name], pairs) for name, pairs in waiting.items()}

    return model.walk(values, look_up)


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
            def ask(waiting: Mapping[PartyName, Pairs]) -> Bits:
                new = waiting.keys() - begun
                begun.update(new)
                peers.hold({name: begin[name] for name in new}, Done)
                requests = {
                    name: RouteRequest(pairs.tree, pairs.node, pairs.starts, pairs.rows + np.int32(low))
                    for name, pairs in waiting.items()
                }
                answers = peers.ask(requests, RouteAnswer)
                return {name: _unpack(name, answers[name].left, len(pairs.rows)) for name, pairs in waiting.items()}

            return self.walk(values[:, low : low + batch], ask)

        shares = [walk(low) for low in range(0, rows, batch)]
        return np.concatenate(shares, axis=1) if shares else np.empty((self.skeleton.trees_per_round, 0))

    def walk(self, values: Float32Array, ask: Callable[[Mapping[PartyName, Pairs]], Bits]) -> Float64Array:
        """Margins of these rows. `ask` is called when every pair waits at a node of another party."""
        walk = Walk(self._routes, values.shape[1])
        while True:
            while len(own := walk.at_nodes_of(self._own)):
                records = self._record_of[walk.nodes(own)]
                walk.move(own, self.share.records.goes_left(values, records, own % values.shape[1]))
                walk.settle()
            if not walk.moving:
                return walk.margins()
            waiting = {self.skeleton.parties[owner]: pairs for owner, pairs in walk.waiting()}
            for name, left in ask(waiting).items():
                walk.move(waiting[name].index, left)
            walk.settle()


def _unpack(name: PartyName, packed: UInt8Array, count: int) -> UInt8Array:
    if len(packed) != (count + 7) // 8:
        raise MalformedMessage(f"{name} answered for the wrong number of rows")
    return np.unpackbits(packed, count=count)


def _look_up(name: PartyName, answer: AllSplits, pairs: Pairs) -> BoolArray:
    known = {key: k for k, key in enumerate(zip(answer.tree.tolist(), answer.node.tolist(), strict=True))}
    try:
        splits = [known[key] for key in zip(pairs.tree.tolist(), pairs.node.tolist(), strict=True)]
    except KeyError as error:
        raise MalformedMessage(f"{name} omitted one of its splits") from error
    packed = answer.left[np.repeat(splits, pairs.counts), pairs.rows >> 3]
    return (packed >> (7 - (pairs.rows & 7)).astype(np.uint8)) & 1 == 1


@dataclass(frozen=True)
class Pairs:
    """Pairs that wait at nodes of one owner: rows[starts[k]:starts[k+1]] are at node[k] of tree[k]."""

    index: Int64Array
    tree: Int32Array
    node: Int32Array
    starts: Int32Array
    rows: Int32Array

    @property
    def counts(self) -> Int32Array:
        return np.diff(self.starts)


class Routes:
    """The nodes of all trees, tree after tree, as arrays: what every walk of a model needs."""

    def __init__(self, skeleton: Skeleton) -> None:
        sizes = [tree.nodes for tree in skeleton.trees]
        ends = np.cumsum(np.array([0, *sizes], dtype=np.int64))
        self.base_margin, self.groups, self.nodes, self.first = (
            skeleton.base_margin,
            skeleton.trees_per_round,
            int(ends[-1]),
            ends[:-1],
        )
        self.tree_of = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
        self.node_of = (np.arange(self.nodes, dtype=np.int64) - np.repeat(self.first, sizes)).astype(np.int32)
        self.left = np.concatenate(
            [np.where(t.left == LEAF, LEAF, t.left + at) for t, at in zip(skeleton.trees, self.first, strict=True)]
        ).astype(np.int32)
        self.owner = np.concatenate([tree.owner for tree in skeleton.trees])
        self.weight = np.concatenate([tree.weight for tree in skeleton.trees])


class Walk:
    """The current node of every (tree, row) pair, numbered tree * rows + row."""

    def __init__(self, routes: Routes, rows: int) -> None:
        self._routes, self._rows = routes, rows
        self._at = np.repeat(routes.first.astype(np.int32), rows)
        self._moving = np.flatnonzero(routes.left[self._at] != LEAF)

    def nodes(self, pairs: Int64Array) -> Int32Array:
        """The nodes at which these pairs are."""
        return self._at[pairs]

    def at_nodes_of(self, owner: int) -> Int64Array:
        """The pairs that wait at nodes of one owner."""
        return self._moving[self._routes.owner[self._at[self._moving]] == owner]

    def waiting(self) -> Iterator[tuple[int, Pairs]]:
        """For each owner, the pairs at its nodes, in node order."""
        owners = self._routes.owner[self._at[self._moving]]
        for owner in np.unique(owners):
            pairs = self._moving[owners == owner]
            at = self._at[pairs]
            order = np.argsort(at, kind="stable")
            pairs, at = pairs[order], at[order]
            starts = np.flatnonzero(np.concatenate(([True], at[1:] != at[:-1])))
            visited = at[starts]
            yield (
                int(owner),
                Pairs(
                    pairs,
                    self._routes.tree_of[visited],
                    self._routes.node_of[visited],
                    np.append(starts, len(pairs)).astype(np.int32),
                    (pairs % self._rows).astype(np.int32),
                ),
            )

    def move(self, pairs: Int64Array, left: BoolArray | UInt8Array) -> None:
        self._at[pairs] = self._routes.left[self._at[pairs]] + (left == 0)

    def settle(self) -> None:
        """Drop pairs that reached a leaf."""
        self._moving = self._moving[self._routes.left[self._at[self._moving]] != LEAF]

    @property
    def moving(self) -> bool:
        return len(self._moving) > 0

    def margins(self) -> Float64Array:
        """Base margin and leaf weights, summed tree after tree: (K, rows)."""
        margin = np.repeat(self._routes.base_margin[:, None], self._rows, axis=1)
        weights = self._routes.weight[self._at].reshape(-1, self._rows)
        for tree in range(len(weights)):
            margin[tree % self._routes.groups] += weights[tree]
        return margin


class PredictionResponder:
    """Answers for the rows of one prediction request, given as `ModelShare.matrix` encodes them."""

    def __init__(self, share: ModelShare, values: Float32Array) -> None:
        self._records, self._values = share.records, values

    def handle(self, message: Message) -> Message:
        rows = self._values.shape[1]
        if isinstance(message, BeginPrediction):
            if message.rows != rows:
                raise MalformedMessage("the request has the wrong number of rows")
            return Done()
        if isinstance(message, RouteRequest):
            return self._route(message, rows)
        if isinstance(message, AllSplitsRequest):
            every = np.arange(rows, dtype=np.int32)
            bits = [
                np.packbits(self._records.goes_left(self._values, np.repeat(np.int32(k), rows), every))
                for k in range(self._records.count)
            ]
            left = np.array(bits, dtype=np.uint8).reshape(self._records.count, (rows + 7) // 8)
            return AllSplits(self._records.tree, self._records.node, left)
        raise UnexpectedMessage(f"{message.type_name()} is not a request for a prediction")

    def _route(self, message: RouteRequest, rows: int) -> RouteAnswer:
        nodes = len(message.tree)
        fits = len(message.node) == nodes and len(message.starts) == nodes + 1
        if not fits or message.starts[0] != 0 or message.starts[-1] != len(message.rows):
            raise MalformedMessage("the arrays of a routing request are inconsistent")
        counts = np.diff(message.starts)
        inside = len(message.rows) == 0 or (message.rows.min() >= 0 and message.rows.max() < rows)
        if (counts < 0).any() or not inside:
            raise MalformedMessage("a routing request contains rows that do not exist")
        records = self._records.find(message.tree, message.node)
        if (records < 0).any():
            raise MalformedMessage("a routing request contains a node that this party does not split")
        # So no request can ask for more than the splits of all rows.
        if len(np.unique(records)) != nodes or (counts > rows).any():
            raise MalformedMessage("a routing request repeats a node, or has more rows at a node than exist")
        left = self._records.goes_left(self._values, np.repeat(records, counts), message.rows)
        return RouteAnswer(np.packbits(left))
