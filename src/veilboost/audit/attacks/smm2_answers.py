"""The kernel vectors and masked gradients of `smm2`, put together again block by block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from veilboost.audit.attacks.projector_program import used_vectors
from veilboost.audit.replay import ReplayedLevel
from veilboost.protocols.smm2.messages import Smm2Kernels, Smm2Masked
from veilboost.protocols.smm2.options import Smm2Options
from veilboost.protocols.vertical.kernels import blocks_of
from veilboost.types import Float64Array, Int32Array, Int64Array


@dataclass(frozen=True)
class MaskedBlock:
    """(I - ZZ') times the gradients and hessians (rows, 2) of a node's rows, and Z: those of the sender's vectors."""

    place: int
    tree: int
    rows: Int32Array
    hidden: Float64Array
    seen: Float64Array
    totals: Int64Array


def masked_blocks(level: ReplayedLevel, options: Smm2Options) -> list[MaskedBlock]:
    """All blocks of all nodes of a level."""
    kernels = next((each for each in level.messages if isinstance(each, Smm2Kernels)), None)
    answer = next((each for each in level.messages if isinstance(each, Smm2Masked)), None)
    if kernels is None or answer is None:
        return []
    build = level.build
    counts = build.counts[kernels.node].tolist()
    vectors = blocks_of(kernels.kernel, [(rows, options.count(rows, 2)) for rows in counts])
    values = blocks_of(answer.masked, [(rows, 2) for rows in counts])
    found: list[MaskedBlock] = []
    for place, kernel, pairs in zip(kernels.node.tolist(), vectors, values, strict=True):
        rows = build.rows[build.begin[place] : build.end[place]]
        hidden, seen = used_vectors(kernel, np.asarray(pairs, dtype=np.float64))
        found.append(MaskedBlock(place, int(build.group[place]), rows, hidden, seen, answer.totals[place]))
    return found
