"""Prediction by the active party together with the others, in one of two ways.

By routing only nodes that rows really visit are asked for, all trees in parallel, with at most one exchange per level
and batch of rows. In one exchange every passive party sends the bits of all its splits, and the active party walks
alone: fewer rounds, but it reveals the side of every cut for every row, visited or not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from veilboost.errors import MalformedMessage, MissingPart
from veilboost.infer.messages import AllSplits, AllSplitsRequest, BeginPrediction, RouteAnswer, RouteRequest
from veilboost.infer.walk import Pairs, Walk
from veilboost.model.part import Part, Skeleton
from veilboost.types import BoolArray, Column, Float32Array, Float64Array, PartyName, UInt8Array
from veilboost.wire.channel import Peers
from veilboost.wire.message import Done

PAIRS_AT_ONCE = 1 << 22  # bounds memory: so many (tree, row) pairs walk together
Bits = Mapping[PartyName, BoolArray | UInt8Array]  # of the pairs at nodes of each party: whether they go left


def predict_joint(part: Part, columns: Sequence[Column], rows: int, peers: Peers) -> Float64Array:
    """Margins (K, rows), by routing."""
    skeleton, values = _begin(part, columns, rows, peers)
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

        return _walk(skeleton, part, values[:, low : low + batch], ask)

    parts = [walk(low) for low in range(0, rows, batch)]
    return np.concatenate(parts, axis=1) if parts else np.empty((skeleton.trees_per_round, 0))


def predict_oneshot(part: Part, columns: Sequence[Column], rows: int, peers: Peers) -> Float64Array:
    """Margins (K, rows), in one exchange."""
    skeleton, values = _begin(part, columns, rows, peers)
    answers = peers.ask({name: AllSplitsRequest() for name in peers.names}, AllSplits)
    for name, answer in answers.items():
        if len(answer.tree) != len(answer.node) or answer.left.shape != (len(answer.tree), (rows + 7) // 8):
            raise MalformedMessage(f"{name} answered for another number of rows or splits")

    def look_up(waiting: Mapping[PartyName, Pairs]) -> Callable[[], Bits]:
        return lambda: {name: _look_up(name, answers[name], pairs) for name, pairs in waiting.items()}

    return _walk(skeleton, part, values, look_up)


def _begin(part: Part, columns: Sequence[Column], rows: int, peers: Peers) -> tuple[Skeleton, Float32Array]:
    """The skeleton of an active part whose other parties can all be reached, and its own values."""
    if part.skeleton is None:
        raise MissingPart(f"the part of {part.party} has no skeleton: only the active party can predict")
    absent = [name for name in part.skeleton.parties if name not in (part.party, *peers.names)]
    if absent:
        raise MissingPart(f"{', '.join(absent)} cannot be asked")
    values = part.matrix(columns, rows)
    peers.ask({name: BeginPrediction(rows) for name in peers.names}, Done)
    return part.skeleton, values


def _walk(
    skeleton: Skeleton,
    part: Part,
    values: Float32Array,
    ask: Callable[[Mapping[PartyName, Pairs]], Callable[[], Bits]],
) -> Float64Array:
    """Margins of these rows. What `ask` gives is called when our own pairs have moved."""
    walk = Walk(skeleton, values.shape[1])
    while walk.moving:
        waiting = {skeleton.parties[owner]: pairs for owner, pairs in walk.waiting()}
        own = waiting.pop(part.party, None)
        answered = ask(waiting)
        if own is not None:
            records = np.repeat(part.records.find(own.tree, own.node), own.counts)
            walk.move(own.index, part.records.goes_left(values, records, own.rows))
        for name, left in answered().items():
            walk.move(waiting[name].index, left)
        walk.settle()
    return walk.margins()


def _unpack(name: PartyName, packed: UInt8Array, count: int) -> UInt8Array:
    if len(packed) != (count + 7) // 8:
        raise MalformedMessage(f"{name} answered for another number of rows")
    return np.unpackbits(packed, count=count)


def _look_up(name: PartyName, answer: AllSplits, pairs: Pairs) -> BoolArray:
    known = {key: k for k, key in enumerate(zip(answer.tree.tolist(), answer.node.tolist(), strict=True))}
    try:
        splits = [known[key] for key in zip(pairs.tree.tolist(), pairs.node.tolist(), strict=True)]
    except KeyError as error:
        raise MalformedMessage(f"{name} left out one of its splits") from error
    packed = answer.left[np.repeat(splits, pairs.counts), pairs.rows >> 3]
    return (packed >> (7 - (pairs.rows & 7)).astype(np.uint8)) & 1 == 1
