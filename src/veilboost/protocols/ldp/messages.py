"""Messages of `ldp`, in addition to the common messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from veilboost.protocols.vertical.messages import SHARED_NODES, BeginRound, Ints, StatisticsRequest
from veilboost.types import Float64Array, Int32Array, Int64Array
from veilboost.wire.message import ArraySpec, Message, Reveals

NoisyGradients = Annotated[Int32Array, ArraySpec("int32", 3)]


@dataclass(frozen=True)
class LdpRound(BeginRound):
    """Active to passive: the round's noisy gradients, (trees, rows, 1 or 2), on a grid of 2^-exponent.

    Empty if every level has its own.
    """

    reveals = (
        *BeginRound.reveals,
        Reveals("the gradient and, with score='second', the hessian of every sampled row, with noise", "passive"),
    )
    g_exponent: int
    h_exponent: int
    gradients: NoisyGradients


@dataclass(frozen=True)
class LdpRequest(StatisticsRequest):
    """Active to passive: a level to score.

    `gradients` is empty without `per_node`, `totals` (nodes, 1 or 2) without `paper_form`.
    """

    reveals = (
        SHARED_NODES,
        Reveals("with per_node, gradients and hessians of the level's rows with fresh noise", "passive"),
        Reveals("with paper_form, exact sums of gradients and hessians of every node", "passive"),
    )
    gradients: NoisyGradients
    totals: Annotated[Int64Array, ArraySpec("int64", 2)]


@dataclass(frozen=True)
class LdpScores(Message):
    """Passive to active: the best candidate of every node and its score."""

    reveals = (
        Reveals("the best candidate of every node and its score, from sums of noisy gradients", "active", exact=True),
    )
    handle: Ints
    gain: Annotated[Float64Array, ArraySpec("float64", 1)]
