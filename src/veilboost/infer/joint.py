"""Joint prediction by routing: only nodes that rows really visit are asked for, all trees in parallel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from veilboost.errors import MissingPart
from veilboost.infer.messages import BeginPrediction, RouteAnswer, RouteRequest
from veilboost.infer.walk import Pairs, Walk, unpack
from veilboost.model.part import Part, Skeleton
from veilboost.types import Column, Float32Array, Float64Array, PartyName
from veilboost.wire.channel import Peers
from veilboost.wire.message import Done

PAIRS_AT_ONCE = 1 << 22  # bounds memory: so many (tree, row) pairs walk together


def predict_joint(part: Part, columns: Sequence[Column], rows: int, peers: Peers) -> Float64Array:
    """Margins (K, rows), with at most one exchange per level and batch of rows."""
    skeleton = skeleton_of(part, peers)
    values = part.matrix(columns, rows)
    peers.ask({name: BeginPrediction(rows) for name in peers.names}, Done)
    batch = max(1, PAIRS_AT_ONCE // max(1, len(skeleton.trees)))
    parts = [_walk(skeleton, part, values, low, min(low + batch, rows), peers) for low in range(0, rows, batch)]
    return np.concatenate(parts, axis=1) if parts else np.empty((skeleton.trees_per_round, 0))


def skeleton_of(part: Part, peers: Peers) -> Skeleton:
    """The skeleton of an active part whose other parties can all be reached."""
    if part.skeleton is None:
        raise MissingPart(f"the part of {part.party} has no skeleton: only the active party can predict")
    absent = [name for name in part.skeleton.parties if name not in (part.party, *peers.names)]
    if absent:
        raise MissingPart(f"{', '.join(absent)} cannot be asked")
    return part.skeleton


def _walk(skeleton: Skeleton, part: Part, values: Float32Array, low: int, high: int, peers: Peers) -> Float64Array:
    walk = Walk(skeleton, high - low)
    me = skeleton.parties.index(part.party)
    while walk.moving:
        waiting = dict(walk.waiting())
        foreign: Mapping[PartyName, Pairs] = {
            skeleton.parties[owner]: pairs for owner, pairs in waiting.items() if owner != me
        }
        pending = peers.send(
            {
                name: RouteRequest(pairs.tree, pairs.node, pairs.starts, pairs.rows + np.int32(low))
                for name, pairs in foreign.items()
            }
        )
        if me in waiting:
            pairs = waiting[me]
            records = np.repeat(part.records.find(pairs.tree, pairs.node), pairs.counts)
            walk.move(pairs.index, part.records.goes_left(values, records, pairs.rows + low))
        for name, answer in peers.collect(pending, RouteAnswer).items():
            walk.move(foreign[name].index, unpack(name, answer.left, len(foreign[name].rows)))
        walk.settle()
    return walk.margins()
