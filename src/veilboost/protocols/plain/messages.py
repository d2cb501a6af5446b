"""What `plain` sends beside the common messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from veilboost.protocols.vertical.messages import EXACT_SUMS, BeginRound, ClearSums
from veilboost.types import Int32Array
from veilboost.wire.message import ArraySpec, Message, Reveals

_CLEAR = Reveals("gradient and hessian of every row: in the first round these are the labels", "passive", exact=True)
ROWS_AT_ONCE = 1 << 19  # gradients of so many rows are 4 MB a class


@dataclass(frozen=True)
class PlainRound(BeginRound):
    """Active to passive: the round's gradients in the clear, (trees, rows, 2) on the fixed-point grid.

    Of more than `ROWS_AT_ONCE` rows only so many; `MoreGradients` bring the others, as many at a time.
    """

    reveals = (*BeginRound.reveals, _CLEAR)
    gradients: Annotated[Int32Array, ArraySpec("int32", 3)]


@dataclass(frozen=True)
class MoreGradients(Message):
    """Active to passive: gradients of the rows that follow those told so far, (trees, rows, 2)."""

    reveals = (_CLEAR,)
    gradients: Annotated[Int32Array, ArraySpec("int32", 3)]


@dataclass(frozen=True)
class PlainSums(ClearSums):
    """Passive to active: sums of (g, h) per node and bin."""

    reveals = (EXACT_SUMS,)
