"""How a level's rows are cut into blocks that are summed together under encryption.

Both parties compute it from the same public numbers, so that a request has no say in it: the rows of the job, the bound
on gradients that the job's parameters give, and the scale of the ciphertexts.
"""

from __future__ import annotations

import math

import numpy as np

from veilboost.boost.booster import amplification
from veilboost.boost.rows import RowGroups
from veilboost.config import TrainingConfig
from veilboost.fixedpoint import MAX_BITS
from veilboost.types import Int32Array, Int64Array


def value_bits(config: TrainingConfig, weight_bits: int) -> int:
    """The power of two that no gradient on the grid exceeds, whatever the data: see `fixedpoint.choose_scale`."""
    return min(config.gradient_bits + weight_bits + math.ceil(math.log2(amplification(config))), MAX_BITS)


def cut_into_blocks(build: RowGroups, rows: int, most: int) -> tuple[Int32Array, Int64Array]:
    """The node of each block, and its rows, at most `most`. Blocks follow each other as the rows of the nodes do.

    A node of more rows is cut at fixed row numbers: the job's `rows` numbers are halved, and the halves again, until
    none holds more than `most` rows of the node. So a row that leaves a node leaves the places of all others alone.
    """
    node, count = np.arange(build.nodes, dtype=np.int32), build.counts
    low, high = np.zeros(build.nodes, dtype=np.int64), np.full(build.nodes, rows, dtype=np.int64)
    below = low  # how many rows of the node come before the block
    while (large := count > most).any():
        middle = (low[large] + high[large]) // 2
        left = build.counts_below(node[large], middle) - below[large]
        halves = (
            (node[large], left, low[large], middle, below[large]),
            (node[large], count[large] - left, middle, high[large], below[large] + left),
        )
        kept = (node[~large], count[~large], low[~large], high[~large], below[~large])
        every = zip(kept, *([column[half[1] > 0] for column in half] for half in halves), strict=True)
        node, count, low, high, below = (np.concatenate(columns) for columns in every)
    order = np.lexsort((low, node))
    return node[order], count[order]
