"""Prediction in one exchange: every passive party sends the bits of all its splits, the active party walks alone.

Fewer rounds than `joint`, but it reveals the side of every cut for every row, visited or not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veilboost.errors import MalformedMessage
from veilboost.infer.joint import skeleton_of
from veilboost.infer.messages import AllSplits, AllSplitsRequest, BeginPrediction
from veilboost.infer.walk import Walk
from veilboost.model.part import Part
from veilboost.types import BoolArray, Column, Float64Array, Int32Array
from veilboost.wire.channel import Peers
from veilboost.wire.message import Done


def predict_oneshot(part: Part, columns: Sequence[Column], rows: int, peers: Peers) -> Float64Array:
    """Margins (K, rows)."""
    skeleton = skeleton_of(part, peers)
    values = part.matrix(columns, rows)
    peers.ask({name: BeginPrediction(rows) for name in peers.names}, Done)
    answers = peers.ask({name: AllSplitsRequest() for name in peers.names}, AllSplits)
    for name, answer in answers.items():
        if len(answer.tree) != len(answer.node) or answer.left.shape != (len(answer.tree), (rows + 7) // 8):
            raise MalformedMessage(f"{name} answered for another number of rows or splits")
    me = skeleton.parties.index(part.party)
    walk = Walk(skeleton, rows)
    while walk.moving:
        for owner, pairs in walk.waiting():
            if owner == me:
                records = np.repeat(part.records.find(pairs.tree, pairs.node), pairs.counts)
                walk.move(pairs.index, part.records.goes_left(values, records, pairs.rows))
            else:
                name = skeleton.parties[owner]
                walk.move(
                    pairs.index,
                    _look_up(name, answers[name], pairs.tree, pairs.node, pairs.counts, pairs.rows),
                )
        walk.settle()
    return walk.margins()


def _look_up(
    name: str, answer: AllSplits, tree: Int32Array, node: Int32Array, counts: Int32Array, rows: Int32Array
) -> BoolArray:
    known = {key: k for k, key in enumerate(zip(answer.tree.tolist(), answer.node.tolist(), strict=True))}
    try:
        splits = [known[key] for key in zip(tree.tolist(), node.tolist(), strict=True)]
    except KeyError as error:
        raise MalformedMessage(f"{name} left out one of its splits") from error
    packed = answer.left[np.repeat(splits, counts), rows >> 3]
    return (packed >> (7 - (rows & 7)).astype(np.uint8)) & 1 == 1
