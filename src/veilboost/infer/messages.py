"""The messages of prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from veilboost.types import Int32Array, UInt8Array
from veilboost.wire.message import ArraySpec, Done, Message, Reveals

Ints = Annotated[Int32Array, ArraySpec("int32", 1)]


@dataclass(frozen=True)
class BeginPrediction(Message):
    """Active to passive: the number of aligned rows to predict."""

    reveals: ClassVar[tuple[Reveals, ...]] = (Reveals("how many rows are predicted", "passive"),)
    rows: int


@dataclass(frozen=True)
class BeginScoring(Message):
    """Active to passive: the rows to score in a deployment, by the slots of this generation of its index.

    -1: a record that the passive party does not have. All of its values are missing, so it goes the default direction.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("which of its rows are scored when, and how many others are scored without it", "passive"),
    )
    generation: int
    slots: Ints


@dataclass(frozen=True)
class RouteRequest(Message):
    """Active to passive: which of `rows[starts[k]:starts[k+1]]` go left at node `node[k]` of tree `tree[k]`."""

    reveals: ClassVar[tuple[Reveals, ...]] = (Reveals("which rows reach which of its nodes", "passive"),)
    tree: Ints
    node: Ints
    starts: Ints
    rows: Ints


@dataclass(frozen=True)
class RouteAnswer(Message):
    """Passive to active: the left/right assignments, as packed bits."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("the left/right assignments of the rows at the splits that they reach", "active"),
        Reveals("the default direction of these splits, from records that the passive party does not have", "active"),
    )
    left: Annotated[UInt8Array, ArraySpec("uint8", 1)]


@dataclass(frozen=True)
class AllSplitsRequest(Message):
    """Active to passive: send the left/right assignments of all of your splits at once."""

    reveals: ClassVar[tuple[Reveals, ...]] = ()


@dataclass(frozen=True)
class AllSplits(Message):
    """Passive to active: the assignments of all rows at each of its nodes, packed row by row."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("the left/right assignments of every row at every one of its splits, visited or not", "active"),
    )
    tree: Ints
    node: Ints
    left: Annotated[UInt8Array, ArraySpec("uint8", 2)]


PREDICTION_MESSAGES: tuple[type[Message], ...] = (
    BeginPrediction,
    BeginScoring,
    RouteRequest,
    RouteAnswer,
    AllSplitsRequest,
    AllSplits,
    Done,
)
