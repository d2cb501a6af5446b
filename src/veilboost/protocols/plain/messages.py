"""What `plain` sends beside the common messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from veilboost.protocols.vertical.messages import BeginRound, ClearSums
from veilboost.types import Int32Array
from veilboost.wire.message import ArraySpec, Message, Reveals

ROWS_AT_ONCE = 1 << 19  # gradients of so many rows are 4 MB a class


@dataclass(frozen=True)
class PlainRound(BeginRound):
    """Active to passive: the round's gradients in the clear, (trees, rows, 2) on the fixed-point grid.

    Of more than `ROWS_AT_ONCE` rows only so many; `MoreGradients` bring the others, as many at a time.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = (
        *BeginRound.reveals,
        Reveals("gradient and hessian of every row: in the first round these are the labels", "passive", exact=True),
    )
    gradients: Annotated[Int32Array, ArraySpec("int32", 3)]


@dataclass(frozen=True)
class MoreGradients(Message):
    """Active to passive: gradients of the rows that follow those told so far, (trees, rows, 2)."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("gradient and hessian of every row: in the first round these are the labels", "passive", exact=True),
    )
    gradients: Annotated[Int32Array, ArraySpec("int32", 3)]


@dataclass(frozen=True)
class PlainSums(ClearSums):
    """Passive to active: sums of (g, h) per node and bin."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals(
            "exact sums of gradients and hessians per node and bin of every column", "active", exact=True, per_bin=True
        ),
    )
