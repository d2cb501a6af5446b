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
    `explain`: the scores are explained, if the owner's policy allows it.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("which of its rows are scored when, and how many others are scored without it", "passive"),
        Reveals("that the scores are explained", "passive", given=("explain",)),
    )
    generation: int
    slots: Ints
    explain: bool = False


@dataclass(frozen=True)
class RouteRequest(Message):
    """Active to passive: which of `rows[starts[k]:starts[k+1]]` go left at node `node[k]` of tree `tree[k]`.

    Every node comes once. If `after[k]` is not -1, node k is a child of node `after[k] // 2` of the request, an earlier
    one: its rows are those that go left there or, if `after[k]` is odd, right.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("which rows reach which of its nodes", "passive"),
        Reveals("which of its nodes is the child of which other one of its nodes", "passive"),
    )
    tree: Ints
    node: Ints
    starts: Ints
    rows: Ints
    after: Ints


@dataclass(frozen=True)
class RouteAnswer(Message):
    """Passive to active: the left/right assignments, as packed bits.

    First those of the requested rows, in their order; then those of the rows that reach another node of the request, in
    the same order; and so on.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("the left/right assignments of the rows at the splits that they reach", "active"),
        Reveals("the default direction of these splits, from records that the passive party does not have", "active"),
    )
    left: Annotated[UInt8Array, ArraySpec("uint8", 1)]


@dataclass(frozen=True)
class AllSplits(Message):
    """Passive to active: the assignments of the rows at each of its nodes, packed row by row."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("the left/right assignments of every row at every one of its splits, visited or not", "active"),
        Reveals("the default direction of its splits, from records that the passive party does not have", "active"),
    )
    tree: Ints
    node: Ints
    left: Annotated[UInt8Array, ArraySpec("uint8", 2)]


@dataclass(frozen=True)
class AllSplitsOfRows(Message):
    """Active to passive: send the left/right assignments of the rows `begin` to `end` at all of your splits.

    For an explanation of scores. The answer is `AllSplits`.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = (Reveals("which rows are explained", "passive"),)
    begin: int
    end: int


@dataclass(frozen=True)
class SplitColumnsRequest(Message):
    """Active to passive: which of your splits share a column, as far as your policy allows?"""

    reveals: ClassVar[tuple[Reveals, ...]] = ()


@dataclass(frozen=True)
class SplitColumns(Message):
    """Passive to active: a number for the column of each of its splits, in the order of trees and nodes.

    Columns are numbered in the order in which they first occur: in each tree anew, or over the whole model. `names` are
    those of the numbered columns, if the owner's policy allows them.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("which of its splits in one tree share a column", "active"),
        Reveals("which of its splits share a column over all trees", "active", given=("over_trees",)),
        Reveals("the names of the columns that its splits use", "active", given=("names",)),
    )
    column: Ints
    over_trees: bool = False
    names: tuple[str, ...] = ()


PREDICTION_MESSAGES: tuple[type[Message], ...] = (
    BeginPrediction,
    BeginScoring,
    RouteRequest,
    RouteAnswer,
    Done,
)
EXPLANATION_MESSAGES: tuple[type[Message], ...] = (
    BeginPrediction,
    SplitColumnsRequest,
    SplitColumns,
    AllSplitsOfRows,
    AllSplits,
    Done,
)
