"""What `masked` sends beside the common messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from veilboost.protocols.vertical.messages import TOGETHER, Ints, StatisticsRequest
from veilboost.types import Float32Array, Float64Array
from veilboost.wire.message import ArraySpec, Message, Reveals

Numbers = Annotated[Float32Array, ArraySpec("float32", 1)]


@dataclass(frozen=True)
class MaskedLevel(StatisticsRequest):
    """Active to passive: a level begins. `totals` are G and H of the nodes of `build` (Alg. 2, line 5: H sums h)."""

    reveals = (
        TOGETHER,
        Reveals("which nodes may still split", "passive"),
        Reveals(
            "exact sums of gradients and hessians of every node: at the first root, how many labels are 1", "passive"
        ),
    )
    totals: Annotated[Float64Array, ArraySpec("float64", 2)]


@dataclass(frozen=True)
class Masks(Message):
    """Passive to active: noise vectors of some candidates (Alg. 1), the `number`-th such message of the level.

    `nodes[i]` is the place in `build` of the node that candidate i splits. `masks` holds, candidate after candidate,
    W vectors of as many numbers as the node has rows.
    """

    reveals = (
        Reveals("how many candidates each node has, in the order of columns and cuts", "active"),
        Reveals("noise whose covariance depends on who is left of each cut: many masks together show it", "active"),
        Reveals("where scale is adaptive, how many rows each candidate sends left", "active"),
    )
    number: int
    nodes: Ints
    masks: Numbers


@dataclass(frozen=True)
class NoisedVectors(Message):
    """Active to passive: gradients and hessians under the masks just sent (Alg. 2), in their order.

    `vectors` holds for each candidate the node's noised gradients, then its noised hessians; without the latter where
    `hessians` is false, because every hessian is 1 (Remark 2).
    """

    reveals = (Reveals("gradients and hessians under masks that the receiver made: it can take them off", "passive"),)
    number: int
    hessians: bool
    vectors: Numbers


@dataclass(frozen=True)
class BestGains(Message):
    """Passive to active: the best score of each node of `build`, minus infinity where it has no candidate (Alg. 3)."""

    reveals = (Reveals("the best noisy score of each node", "active"),)
    gains: Annotated[Float64Array, ArraySpec("float64", 1)]
