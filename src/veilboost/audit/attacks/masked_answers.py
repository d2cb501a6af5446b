"""The masks and noised vectors of `masked`, put together again node by node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from veilboost.audit.replay import ReplayedLevel
from veilboost.protocols.masked.messages import Masks, NoisedVectors
from veilboost.types import Float64Array, Int32Array


@dataclass(frozen=True)
class MaskedNode:
    """A node's candidates as both parties saw them: B (candidates, W, rows) and <g>, <h> (candidates, kinds, rows)."""

    tree: int
    rows: Int32Array
    masks: Float64Array
    vectors: Float64Array


def masked_node(level: ReplayedLevel, place: int, width: int, most: int | None = None) -> MaskedNode | None:
    """The node at a place of those asked for, with its first `most` candidates of `width` noise vectors each."""
    build = level.build
    rows = build.rows[build.begin[place] : build.end[place]]
    masks: list[Float64Array] = []
    vectors: list[Float64Array] = []
    sent: Masks | None = None
    for message in level.messages:
        if isinstance(message, Masks):
            sent = message
        elif isinstance(message, NoisedVectors) and sent is not None:
            counts = build.counts[sent.nodes]
            ends = np.cumsum(counts)
            kinds = 2 if message.hessians else 1
            for at in np.flatnonzero(sent.nodes == place).tolist():
                if most is not None and len(masks) == most:
                    break
                start, end = int(ends[at] - counts[at]), int(ends[at])
                masks.append(_block(sent.masks, width, start, end))
                vectors.append(_block(message.vectors, kinds, start, end))
    if not masks:
        return None
    return MaskedNode(int(build.group[place]), rows, np.stack(masks), np.stack(vectors))


def _block(flat: np.ndarray, height: int, start: int, end: int) -> Float64Array:
    return flat[height * start : height * end].reshape(height, end - start).astype(np.float64)
