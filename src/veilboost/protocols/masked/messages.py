"""Messages of `masked`, in addition to the common messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from veilboost.protocols.vertical.messages import SHARED_NODES, Ints, StatisticsRequest
from veilboost.types import Float32Array, Float64Array
from veilboost.wire.message import ArraySpec, Message, Reveals

Numbers = Annotated[Float32Array, ArraySpec("float32", 1)]


@dataclass(frozen=True)
class MaskedLevel(StatisticsRequest):
    """Active to passive: a level starts."""

    reveals = (SHARED_NODES, Reveals("which nodes may still split", "passive"))


@dataclass(frozen=True)
class Masks(Message):
    """Passive to active: noise vectors of some candidates (Alg. 1), the `number`-th such message of the level.

    `nodes[i]` is the index in `build` of the node that candidate i splits. `masks` holds for each candidate W vectors
    with one number per row of the node.
    """

    reveals = (
        Reveals("the number of candidates of each node, in the order of columns and thresholds", "active"),
        Reveals(
            "noise whose covariance depends on which rows are left of each split: many masks together reveal them",
            "active",
        ),
        Reveals("with scale='adaptive', how many rows each candidate sends left", "active"),
    )
    number: int
    nodes: Ints
    masks: Numbers


@dataclass(frozen=True)
class NoisedVectors(Message):
    """Active to passive: gradients and hessians under the masks just received (Alg. 2), in the same order.

    `vectors` holds for each candidate the node's noised gradients, then its noised hessians. The hessians are omitted
    if `hessians` is false, because every hessian is 1 (Remark 2). The first such message of a level has the `totals` G
    and H of all nodes of its request (Alg. 2, line 5: H sums h).
    """

    reveals = (
        Reveals("gradients and hessians under masks that the receiver made and can remove", "passive"),
        Reveals(
            "exact sums of gradients and hessians of every node: at the first root, the number of labels that are 1",
            "passive",
            given=("totals",),
        ),
    )
    number: int
    hessians: bool
    vectors: Numbers
    totals: Annotated[Float64Array, ArraySpec("float64", 2)]


@dataclass(frozen=True)
class BestGains(Message):
    """Passive to active: the best score of each node in `build`, minus infinity without a candidate (Alg. 3)."""

    reveals = (Reveals("the best noisy score of each node", "active"),)
    gains: Annotated[Float64Array, ArraySpec("float64", 1)]
