"""Messages of `plain`, in addition to the common messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from veilboost.protocols.vertical.messages import EXACT_SUMS, BeginRound, ClearSums
from veilboost.types import Int32Array
from veilboost.wire.message import ArraySpec, Message, Reveals

_CLEAR = Reveals("gradient and hessian of every row: in the first round these are the labels", "passive", exact=True)
ROWS_AT_ONCE = 1 << 19  # rows per message: 4 MB of gradients per class


@dataclass(frozen=True)
class PlainRound(BeginRound):
    """Active to passive: the round's gradients in the clear, (trees, rows, 2) on the fixed-point grid.

    It holds at most `ROWS_AT_ONCE` rows; `MoreGradients` messages hold the others, as many at a time.
    """

    reveals = (*BeginRound.reveals, _CLEAR)
    gradients: Annotated[Int32Array, ArraySpec("int32", 3)]


@dataclass(frozen=True)
class MoreGradients(Message):
    """Active to passive: gradients of the next rows, (trees, rows, 2)."""

    reveals = (_CLEAR,)
    gradients: Annotated[Int32Array, ArraySpec("int32", 3)]


@dataclass(frozen=True)
class PlainSums(ClearSums):
    """Passive to active: sums of (g, h) per node and bin."""

    reveals = (EXACT_SUMS,)
