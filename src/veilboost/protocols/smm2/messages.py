"""Messages of `smm2`, in addition to the common messages, its parameters, and the nodes that both parties score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from veilboost.config import TrainingConfig
from veilboost.fields import param
from veilboost.protocols.vertical.messages import BeginRound, Ints
from veilboost.protocols.vertical.smm import KernelOptions
from veilboost.types import Float64Array, Int64Array
from veilboost.wire.message import ArraySpec, Message, Reveals

Floats = Annotated[Float64Array, ArraySpec("float64", 1)]


@dataclass(frozen=True)
class Smm2Round(BeginRound):
    """Active to passive: a round starts; gradients are on a grid of 2^-g_exponent, hessians of 2^-h_exponent."""

    reveals = (
        *BeginRound.reveals,
        Reveals(
            "the fixed-point scale of the round, which for unbounded losses depends on the largest gradient", "passive"
        ),
    )
    g_exponent: int
    h_exponent: int


@dataclass(frozen=True)
class Smm2Kernels(Message):
    """Passive to active: kernel vectors of split columns (Alg. 4, lines 2 and 3).

    Block b belongs to the requested node `node[b]`, in order; `kernel` holds a matrix (rows of the node, vectors) for
    each block. The job's options determine the number of vectors.
    """

    reveals = (
        Reveals(
            "for every node, vectors orthogonal to its split columns and to decoys among them",
            "active",
            exact=True,
            per_bin=True,
        ),
        Reveals("into how many blocks the split columns of a node are divided", "active"),
    )
    node: Ints
    kernel: Floats


@dataclass(frozen=True)
class Smm2Masked(Message):
    """Active to passive: totals (nodes, 2) and the masked gradients and hessians of each block (Alg. 4, line 5)."""

    reveals = (
        Reveals("exact sums of gradients and hessians of every node", "passive", exact=True),
        Reveals("exact sums of gradients and hessians per node and bin of the receiver's own columns", "passive"),
        Reveals("gradient and hessian of every row, under a mask that linear algebra removes", "passive", exact=True),
    )
    depth: int
    totals: Annotated[Int64Array, ArraySpec("int64", 2)]
    masked: Floats


@dataclass(frozen=True)
class Smm2Gains(Message):
    """Passive to active: the loss reduction of its best split of each node (Alg. 4, line 18). It keeps the split."""

    reveals = (Reveals("the loss reduction of the sender's best split of every node", "active", exact=True),)
    gain: Floats


@dataclass(frozen=True)
class Smm2Options(KernelOptions):
    """How nodes are masked, and the decoys among which a passive party hides its split columns (Alg. 5, lines 6-8)."""

    l1: int = param(16, "decoy splits of a node, M' in Alg. 5", low=0, high=10_000)
    l2: int = param(32, "random real columns of a node, Y in Alg. 5", low=0, high=10_000)
    decoys: str = param(
        "random",
        "decoy splits: random bits as published, or nested steps of shuffled features",
        choices=("random", "nested"),
    )

    def added(self, rows: int) -> tuple[int, int]:
        """Decoys and real columns of a node: at most an eighth of its rows each, to leave room for split columns."""
        return min(self.l1, rows // 8), min(self.l2, rows // 8)

    def count(self, rows: int, columns: int) -> int:
        """Kernel vectors are also orthogonal to decoys and real columns."""
        return super().count(rows, columns + sum(self.added(rows)))

    def columns(self, rows: int) -> int:
        """The most split columns that may share kernel vectors, so that few vectors of the null space are sent."""
        l1, l2 = self.added(rows)
        return max(1, min(rows // 2, rows - 1 - self.count(rows, 2)) - l1 - l2)


def scored_nodes(build: Int64Array, depth: int, config: TrainingConfig) -> Int64Array:
    """Sorted positions of the nodes of a level that were masked, and of those whose sums can be derived.

    The sums of a sibling are derived from those of the parent if both use the same bins.
    """
    return np.union1d(build, build ^ 1) if depth and config.proposal == "global" else build
