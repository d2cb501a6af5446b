"""Messages for sums under lattice encryption, and the division of a level's rows into blocks.

Every layout of a level (`layouts.py`) has a request and an answer of its own. `LatticeRequest` is that of runs. Both
parties compute its blocks from the same public numbers: the rows of the job, the bound on gradients that the job's
parameters give, and the scale of the ciphertexts. So a request cannot influence them.
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

_ENCRYPTED = Reveals("encrypted gradients: nothing, assuming that ring-LWE is hard", "passive")
_SUMS = Reveals(
    "exact sums of gradients and hessians per node and bin of every column, columns shuffled unless masks are reused",
    "active",
    exact=True,
    per_bin=True,
)
Bytes = Annotated[UInt8Array, ArraySpec("uint8", 1)]


@dataclass(frozen=True)
class LatticeRound(BeginRound):
    """Active to passive: a round starts. The first one has the public key of all ciphertexts."""

    reveals = (
        *BeginRound.reveals,
        Reveals("a public key: nothing about the gradients, assuming that ring-LWE is hard", "passive"),
    )
    key_seed: Bytes
    key: Bytes


@dataclass(frozen=True)
class LatticeRequest(StatisticsRequest):
    """Active to passive: a level's request, with the encrypted (g, h) of the rows of the nodes to sum.

    The rows of the nodes, in order, are divided into blocks (see `cut_into_blocks`); block k is in ciphertexts of
    `run[k]` rows each. Consecutive blocks form a span with a seed of its own (see `crypto.lattice.keys`). If there are
    very many spans, the request holds only the first; `LatticeMore` messages hold the others.
    """

    reveals = (*StatisticsRequest.reveals, _ENCRYPTED)
    log_delta: int
    run: Ints
    seed: Bytes
    ciphertext: Bytes


@dataclass(frozen=True)
class LatticeMore(Message):
    """Active to passive: ciphertexts of the next spans of a level."""

    reveals = (_ENCRYPTED,)
    ciphertext: Bytes


@dataclass(frozen=True)
class LatticeSums(Message):
    """Passive to active: sums of (g, h) per block and bin under the active party's key, re-randomised and flooded.

    They cover the blocks whose ciphertexts came with the request.
    """

    reveals = (
        _SUMS,
        Reveals("the same for each range of row numbers, if a node is divided into several blocks", "active"),
    )
    sums: Annotated[UInt64Array, ArraySpec("uint64", 3)]
    masks: Bytes


@dataclass(frozen=True)
class MasksRequest(Message):
    """Active to passive: the job reuses masks; send those of your bins from slot `first` on.

    `seed` gives the job's uniform polynomials; the sizes are those of `crypto.lattice.masks.MaskSizes`.
    """

    reveals = ()
    seed: Bytes
    log_flood: int
    sum_bits: int
    first: int


@dataclass(frozen=True)
class BinMasks(Message):
    """Passive to active: masks (slots, bytes, N) of the bins of all columns, or of some of them if there are many."""

    reveals = (Reveals("the masks of bins: nothing about the bins, assuming that ring-LWE is hard", "active"),)
    masks: Annotated[UInt8Array, ArraySpec("uint8", 3)]


@dataclass(frozen=True)
class VectorRequest(StatisticsRequest):
    """Active to passive: a level's request, with an encrypted vector of (g, h) of all rows for every node to sum.

    Values of rows outside the node are 0. A vector has a number for each row and family, `numbers` (nodes, rows,
    bytes), and a key part, `parts` (nodes, families, N, bytes). Its secret follows from its nonce and the sender's key.
    """

    reveals = (*StatisticsRequest.reveals, _ENCRYPTED)
    nonces: Annotated[UInt8Array, ArraySpec("uint8", 2)]
    numbers: Annotated[UInt8Array, ArraySpec("uint8", 3)]
    parts: Annotated[UInt8Array, ArraySpec("uint8", 4)]


@dataclass(frozen=True)
class VectorSums(Message):
    """Passive to active: sums of (g, h) per node and bin under the masks of `BinMasks`, flooded."""

    reveals = (_SUMS,)
    sums: Annotated[UInt64Array, ArraySpec("uint64", 3)]


@dataclass(frozen=True)
class ExpansionKeys(Message):
    """Active to passive, once per job: the public key and the key-switching keys of dense ciphertexts."""

    reveals = (
        Reveals(
            "public keys: nothing about the gradients, assuming that ring-LWE is hard and stays so given the images of "
            "the secret under automorphisms, encrypted under the secret",
            "passive",
        ),
    )
    seed: Bytes
    keys: Bytes


@dataclass(frozen=True)
class ExpansionReady(Message):
    """Passive to active: the keys are accepted."""

    reveals = ()


@dataclass(frozen=True)
class ExpandedRequest(StatisticsRequest):
    """Active to passive: a level's request, with the encrypted (g, h) of the rows of the nodes, 25 bytes each.

    The receiver expands node k to ciphertexts of `run[k]` rows each. Consecutive nodes form a span with a seed of its
    own (see `crypto.lattice.keys`).
    """

    reveals = (*StatisticsRequest.reveals, _ENCRYPTED)
    log_delta: int
    run: Ints
    seed: Bytes
    ciphertext: Bytes


@dataclass(frozen=True)
class ExpandedSums(Message):
    """Passive to active: sums of (g, h) per node and bin under the active party's key, re-randomised and flooded.

    Numbers have as few bits as the scale of the request allows; both fields follow the spans.
    """

    reveals = (_SUMS,)
    sums: Bytes
    masks: Bytes


def value_bits(config: TrainingConfig, weight_bits: int) -> int:
    """The power of two that bounds every gradient on the grid, for any data: see `fixedpoint.choose_scale`."""
    return min(config.gradient_bits + weight_bits + math.ceil(math.log2(amplification(config))), MAX_BITS)


def cut_into_blocks(build: RowGroups, rows: int, most: int) -> tuple[Int32Array, Int64Array]:
    """Return the node of each block and its number of rows, at most `most`, in the order of the nodes' rows.

    A node with more rows is divided at fixed row numbers: the range of the job's `rows` is halved recursively until no
    half holds more than `most` rows of the node. So a row that leaves a node does not move the others.
    """
    node, count = np.arange(build.nodes, dtype=np.int32), build.counts
    low, high = np.zeros(build.nodes, dtype=np.int64), np.full(build.nodes, rows, dtype=np.int64)
    below = low  # rows of the node before the block
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
