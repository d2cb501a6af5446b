"""What is sent where sums are made under lattice encryption, and how a level's rows are cut into blocks for it.

Both parties compute the blocks from the same public numbers, so that a request has no say in it: the rows of the job,
the bound on gradients that the job's parameters give, and the scale of the ciphertexts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from veilboost.boost.booster import amplification
from veilboost.boost.rows import RowGroups
from veilboost.config import TrainingConfig
from veilboost.fixedpoint import MAX_BITS
from veilboost.protocols.vertical.messages import BeginRound, Ints, StatisticsRequest
from veilboost.types import Int32Array, Int64Array, UInt8Array, UInt64Array
from veilboost.wire.message import ArraySpec, Message, Reveals

_ENCRYPTED = Reveals("encrypted gradients: nothing, as long as ring-LWE is hard", "passive")
Bytes = Annotated[UInt8Array, ArraySpec("uint8", 1)]


@dataclass(frozen=True)
class LatticeRound(BeginRound):
    """Active to passive: a round starts, with the public key its ciphertexts are under."""

    reveals = (
        *BeginRound.reveals,
        Reveals("a public key: nothing of the gradients, as long as ring-LWE is hard", "passive"),
    )
    key_seed: Bytes
    key: Bytes


@dataclass(frozen=True)
class LatticeRequest(StatisticsRequest):
    """Active to passive: a level's request, with the encrypted (g, h) of the rows of the nodes to sum.

    The rows of the nodes, in their order, are cut into blocks (see `cut_into_blocks`); block k lies in ciphertexts of
    `run[k]` rows each. Consecutive blocks are a span with a seed of its own (see `crypto.lattice.keys`). Of very many
    spans only the first are here; `LatticeMore` bring the others.
    """

    reveals = (*StatisticsRequest.reveals, _ENCRYPTED)
    log_delta: int
    run: Ints
    seed: Bytes
    ciphertext: Bytes


@dataclass(frozen=True)
class LatticeMore(Message):
    """Active to passive: ciphertexts of the spans of a level that follow those told so far."""

    reveals = (_ENCRYPTED,)
    ciphertext: Bytes


@dataclass(frozen=True)
class LatticeSums(Message):
    """Passive to active: sums of (g, h) per block and bin under the active party's key, re-randomised and flooded.

    Of the blocks whose ciphertexts came with the request.
    """

    reveals = (
        Reveals(
            "exact sums of gradients and hessians per node and bin of every column, columns shuffled",
            "active",
            exact=True,
            per_bin=True,
        ),
        Reveals("the same for each range of row numbers, where a node is cut into several blocks", "active"),
    )
    sums: Annotated[UInt64Array, ArraySpec("uint64", 3)]
    masks: Bytes


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
