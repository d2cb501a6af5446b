"""The messages of prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from veilboost.types import Int32Array, UInt8Array
from veilboost.wire.message import ArraySpec, Done, Message, Reveals

Ints = Annotated[Int32Array, ArraySpec("int32", 1)]


@dataclass(frozen=True)
class BeginPrediction(Message):
    """Active to passive: rows to predict are aligned, so many of them."""

    reveals: ClassVar[tuple[Reveals, ...]] = (Reveals("how many rows are predicted", "passive"),)
    rows: int


@dataclass(frozen=True)
class RouteRequest(Message):
    """Active to passive: at node `node[k]` of tree `tree[k]`, which of `rows[starts[k]:starts[k+1]]` go left?"""

    reveals: ClassVar[tuple[Reveals, ...]] = (Reveals("which rows reach which of its nodes", "passive"),)
    tree: Ints
    node: Ints
    starts: Ints
    rows: Ints


@dataclass(frozen=True)
class RouteAnswer(Message):
    """Passive to active: the left/right bits, packed."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("on which side of the cuts they meet the rows' values lie", "active"),
    )
    left: Annotated[UInt8Array, ArraySpec("uint8", 1)]


@dataclass(frozen=True)
class AllSplitsRequest(Message):
    """Active to passive: send the bits of all of your splits at once."""

    reveals: ClassVar[tuple[Reveals, ...]] = ()


@dataclass(frozen=True)
class AllSplits(Message):
    """Passive to active: for each of its nodes the bits of all rows, packed row by row."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("on which side of every one of its cuts every row's value lies, visited or not", "active"),
    )
    tree: Ints
    node: Ints
    left: Annotated[UInt8Array, ArraySpec("uint8", 2)]


PREDICTION_MESSAGES: tuple[type[Message], ...] = (
    BeginPrediction,
    RouteRequest,
    RouteAnswer,
    AllSplitsRequest,
    AllSplits,
    Done,
)
