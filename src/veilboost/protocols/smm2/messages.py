"""What `smm2` sends beside the common messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from veilboost.protocols.vertical.messages import BeginRound, Ints
from veilboost.types import Float64Array, Int64Array
from veilboost.wire.message import ArraySpec, Message, Reveals

Floats = Annotated[Float64Array, ArraySpec("float64", 1)]


@dataclass(frozen=True)
class Smm2Round(BeginRound):
    """Active to passive: a round starts; gradients lie on a grid of 2^-g_exponent, hessians of 2^-h_exponent."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        *BeginRound.reveals,
        Reveals("the fixed-point scale of the round, which for unbounded losses follows the largest one", "passive"),
    )
    g_exponent: int
    h_exponent: int


@dataclass(frozen=True)
class Smm2Kernels(Message):
    """Passive to active: kernel vectors of split columns (Alg. 4, lines 2 and 3).

    Block b belongs to the node `node[b]` of those asked for, in order; `kernel` holds, block after block, a matrix
    (rows of the node, vectors). How many vectors follows from the job's options.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals(
            "for every node, vectors orthogonal to its split columns and to decoys among them",
            "active",
            exact=True,
            per_bin=True,
        ),
        Reveals("into how many blocks the split columns of a node were divided", "active"),
    )
    node: Ints
    kernel: Floats


@dataclass(frozen=True)
class Smm2Masked(Message):
    """Active to passive: totals (nodes, 2) and, block after block, masked gradients and hessians (Alg. 4, line 5)."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("exact sums of gradients and hessians of every node", "passive", exact=True),
        Reveals("exact sums of gradients and hessians per node and bin of its own columns", "passive"),
        Reveals("gradient and hessian of every row, under a mask that linear algebra removes", "passive", exact=True),
    )
    depth: int
    totals: Annotated[Int64Array, ArraySpec("int64", 2)]
    masked: Floats


@dataclass(frozen=True)
class Smm2Gains(Message):
    """Passive to active: the loss reduction of its best split of each node (Alg. 4, line 18), which split it keeps."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("the loss reduction of its best split of every node", "active", exact=True),
    )
    gain: Floats
