"""Messages of `smm1`, in addition to the common messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from veilboost.protocols.vertical.messages import EXACT_SUMS, Ints, StatisticsRequest
from veilboost.types import Float64Array, UInt8Array
from veilboost.wire.message import ArraySpec, Message, Reveals


@dataclass(frozen=True)
class Smm1Request(StatisticsRequest):
    """Active to passive: a level's request with the kernel vectors of the nodes to sum (Alg. 1, lines 1 and 2).

    `kernel` holds a matrix (rows of the node, vectors) for each node. The job's options determine the number of
    vectors. A node with `halves` has two matrices: one orthogonal to h, one to g or g + h.
    """

    reveals = (
        *StatisticsRequest.reveals,
        Reveals(
            "for every node that is summed, vectors orthogonal to its gradients and to its hessians",
            "passive",
            exact=True,
        ),
        Reveals("in which nodes all rows except one have proportional gradients and hessians", "passive"),
    )
    halves: Annotated[UInt8Array, ArraySpec("uint8", 1)]
    kernel: Annotated[Float64Array, ArraySpec("float64", 1)]


@dataclass(frozen=True)
class Smm1Response(Message):
    """Passive to active: masked indicator columns of the nodes' bins (Alg. 1, lines 3 and 4).

    `slots[starts[k]:starts[k+1]]` are the bins of node k that have rows. The last such bin of every feature is omitted,
    because it is the node minus the others. `masked` holds a matrix (bins, rows of the node) for each node, two if the
    request had halves.
    """

    reveals = (
        EXACT_SUMS,
        Reveals(
            "which rows are in which bin, under a mask that linear programming removes",
            "active",
            exact=True,
            per_bin=True,
        ),
    )
    starts: Ints
    slots: Ints
    masked: Annotated[Float64Array, ArraySpec("float64", 1)]
