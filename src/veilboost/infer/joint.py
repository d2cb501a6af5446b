"""Joint prediction by the active party and the passive parties, by routing or in one exchange.

By routing, the active party only asks about nodes that rows visit, for all trees in parallel, with at most one exchange
per level and batch of rows. In one exchange, every passive party sends the assignments of all its splits, and the
active party does the rest alone: this takes fewer rounds, but reveals the left/right assignment of every row at every
split, visited or not. A passive party only answers which rows go left at its own nodes.
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
    skeleton, values = _begin(share, columns, rows, peers)
    batch = max(1, PAIRS_AT_ONCE // max(1, len(skeleton.trees)))

    def walk(low: int) -> Float64Array:
        def ask(waiting: Mapping[PartyName, Pairs]) -> Callable[[], Bits]:
            requests = {
                name: RouteRequest(pairs.tree, pairs.node, pairs.starts, pairs.rows + np.int32(low))
                for name, pairs in waiting.items()
            }
            pending = peers.send(requests)
            return lambda: {
                name: _unpack(name, answer.left, len(waiting[name].rows))
                for name, answer in peers.collect(pending, RouteAnswer).items()
            }

        return _walk(skeleton, share, values[:, low : low + batch], ask)

    shares = [walk(low) for low in range(0, rows, batch)]
    return np.concatenate(shares, axis=1) if shares else np.empty((skeleton.trees_per_round, 0))


def predict_oneshot(share: ModelShare, columns: Sequence[Column], rows: int, peers: Peers) -> Float64Array:
    """Margins (K, rows), in one exchange."""
    skeleton, values = _begin(share, columns, rows, peers)
    answers = peers.ask({name: AllSplitsRequest() for name in peers.names}, AllSplits)
    for name, answer in answers.items():
        if len(answer.tree) != len(answer.node) or answer.left.shape != (len(answer.tree), (rows + 7) // 8):
            raise MalformedMessage(f"{name} answered for the wrong number of rows or splits")

    def look_up(waiting: Mapping[PartyName, Pairs]) -> Callable[[], Bits]:
        return lambda: {name: _look_up(name, answers[name], pairs) for name, pairs in waiting.items()}

    return _walk(skeleton, share, values, look_up)


def _begin(share: ModelShare, columns: Sequence[Column], rows: int, peers: Peers) -> tuple[Skeleton, Float32Array]:
    """The skeleton of an active party's share whose other parties can all be reached, and its own values."""
    if share.skeleton is None:
        raise MissingShare(f"the share of {share.party} has no skeleton: only the active party can predict")
    absent = [name for name in share.skeleton.parties if name not in (share.party, *peers.names)]
    if absent:
        raise MissingShare(f"{', '.join(absent)} cannot be reached")
    values = share.matrix(columns, rows)
    peers.ask({name: BeginPrediction(rows) for name in peers.names}, Done)
    return share.skeleton, values


def _walk(
    skeleton: Skeleton,
    share: ModelShare,
    values: Float32Array,
    ask: Callable[[Mapping[PartyName, Pairs]], Callable[[], Bits]],
) -> Float64Array:
    """Margins of these rows. The result of `ask` is called after this party's own pairs have moved."""
    walk = Walk(skeleton, values.shape[1])
    while walk.moving:
        waiting = {skeleton.parties[owner]: pairs for owner, pairs in walk.waiting()}
        own = waiting.pop(share.party, None)
        answered = ask(waiting)
        if own is not None:
            records = np.repeat(share.records.find(own.tree, own.node), own.counts)
            walk.move(own.index, share.records.goes_left(values, records, own.rows))
        for name, left in answered().items():
            walk.move(waiting[name].index, left)
        walk.settle()
    return walk.margins()


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


class Walk:
    """The current node of every (tree, row) pair. Nodes are numbered over all trees, tree after tree."""

    def __init__(self, skeleton: Skeleton, rows: int) -> None:
        self._skeleton = skeleton
        self._rows = rows
        sizes = [tree.nodes for tree in skeleton.trees]
        first = np.cumsum(np.array([0, *sizes], dtype=np.int64))
        self._tree_of = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
        self._node_of = (np.arange(int(first[-1]), dtype=np.int64) - np.repeat(first[:-1], sizes)).astype(np.int32)
        self._left = np.concatenate(
            [np.where(t.left == LEAF, LEAF, t.left + at) for t, at in zip(skeleton.trees, first[:-1], strict=True)]
        ).astype(np.int32)
        self._owner = np.concatenate([tree.owner for tree in skeleton.trees])
        self._weight = np.concatenate([tree.weight for tree in skeleton.trees])
        self._at = np.repeat(first[:-1].astype(np.int32), rows)  # pair = tree * rows + row
        self._moving = np.flatnonzero(self._left[self._at] != LEAF)

    def waiting(self) -> Iterator[tuple[int, Pairs]]:
        """For each owner, the pairs at its nodes, in node order."""
        nodes = self._at[self._moving]
        owners = self._owner[nodes]
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
                    self._tree_of[visited],
                    self._node_of[visited],
                    np.append(starts, len(pairs)).astype(np.int32),
                    (pairs % self._rows).astype(np.int32),
                ),
            )

    def move(self, pairs: Int64Array, left: BoolArray | UInt8Array) -> None:
        self._at[pairs] = self._left[self._at[pairs]] + (left == 0)

    def settle(self) -> None:
        """Drop pairs that reached a leaf."""
        self._moving = self._moving[self._left[self._at[self._moving]] != LEAF]

    @property
    def moving(self) -> bool:
        return len(self._moving) > 0

    def margins(self) -> Float64Array:
        """Base margin and leaf weights, summed tree after tree: (K, rows)."""
        groups = self._skeleton.trees_per_round
        margin = np.repeat(self._skeleton.base_margin[:, None], self._rows, axis=1)
        weights = self._weight[self._at].reshape(-1, self._rows)
        for tree in range(len(weights)):
            margin[tree % groups] += weights[tree]
        return margin


class PredictionResponder:
    """Answers for the rows of one prediction request."""

    def __init__(self, share: ModelShare, columns: Sequence[Column], rows: int) -> None:
        self._records = share.records
        self._values = share.matrix(columns, rows)

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
