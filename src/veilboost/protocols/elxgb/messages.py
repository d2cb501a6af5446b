"""Messages of `elxgb` for its later trees, in addition to the common messages and those of encryption."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from veilboost.protocols.vertical.messages import BeginRound
from veilboost.types import Float64Array, Int32Array
from veilboost.wire.message import ArraySpec, Message, Reveals


@dataclass(frozen=True)
class NoisyRound(BeginRound):
    """Active to passive: the noisy gradients of a later tree, (trees, rows, 1 or 2), on a grid of 2^-exponent."""

    reveals = (
        *BeginRound.reveals,
        Reveals("gradient and hessian of every sampled row, with noise, for every tree after the first", "passive"),
    )
    g_exponent: int
    h_exponent: int
    gradients: Annotated[Int32Array, ArraySpec("int32", 3)]


@dataclass(frozen=True)
class LocalGains(Message):
    """Passive to active: the best gain of every requested node. The passive party keeps the candidate to itself."""

    reveals = (
        Reveals(
            "the best gain of every node, from sums of noisy gradients, for every tree after the first",
            "active",
            exact=True,
        ),
    )
    gain: Annotated[Float64Array, ArraySpec("float64", 1)]
