"""What `secagg` sends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from veilboost.types import Float32Array, Float64Array, Int32Array, UInt8Array, UInt32Array, UInt64Array
from veilboost.wire.message import ArraySpec, Message, Reveals


@dataclass(frozen=True)
class SecaggColumns(Message):
    """Participant to server, with its word that it takes part: its columns' and labels' names and kinds.

    `public` is its public key for this job, and `evidence` shows the other participants that it is.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("names and kinds of columns, known categories, and which columns have missing values", "server"),
        Reveals("the classes of its labels, and which loss they ask for", "server"),
        Reveals("the order of magnitude, to a power of two, of its largest sample weight", "server"),
        Reveals("whether it keeps rows for validation", "server"),
    )
    schema: str
    public: Annotated[UInt8Array, ArraySpec("uint8", 1)]
    evidence: str
    weight_exponent: int
    watches: bool


@dataclass(frozen=True)
class SecaggGroup(Message):
    """Server to participant: who takes part, with which public keys (participants, 32), and the common columns."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("who takes part, and the categories, classes and missing values of all together", "participant"),
        Reveals("the order of magnitude of the largest sample weight of all", "participant"),
    )
    schema: str
    participants: tuple[str, ...]
    publics: Annotated[UInt8Array, ArraySpec("uint8", 2)]
    evidence: tuple[str, ...]
    weight_exponent: int


@dataclass(frozen=True)
class TotalsRequest(Message):
    """Server to participant: how many rows, and the sum of their labels."""

    reveals: ClassVar[tuple[Reveals, ...]] = ()


@dataclass(frozen=True)
class MaskedTotals(Message):
    """Participant to server: its number of rows, its exact sums of weights and of labels, all under pairwise masks."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("the number of rows, the sum of weights and the sum of labels of all participants together", "server"),
    )
    rows: Annotated[UInt64Array, ArraySpec("uint64", 1)]
    weights: Annotated[UInt8Array, ArraySpec("uint8", 1)]
    labels: Annotated[UInt8Array, ArraySpec("uint8", 1)]


@dataclass(frozen=True)
class CountsRequest(Message):
    """Server to participant: how many values of each numeric column are not above these (columns, values).

    Values are float32 as whole numbers in the same order.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("how far the search for the cuts of the columns has come", "participant"),
    )
    step: int
    values: Annotated[UInt32Array, ArraySpec("uint32", 2)]


@dataclass(frozen=True)
class MaskedCounts(Message):
    """Participant to server: the counts, under pairwise masks."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("how many values of all participants together lie below each value that is asked for", "server"),
    )
    counts: Annotated[UInt64Array, ArraySpec("uint64", 2)]


@dataclass(frozen=True)
class CutsFound(Message):
    """Server to participant: the cuts of all columns, column after column."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("where columns are cut: quantiles, or steps between the lowest and highest value", "participant"),
    )
    cuts: Annotated[Float32Array, ArraySpec("float32", 1)]
    starts: Annotated[Int32Array, ArraySpec("int32", 1)]
    base_margin: Annotated[Float64Array, ArraySpec("float64", 1)]


@dataclass(frozen=True)
class LevelResult(Message):
    """What became of the last level of a round: part of the requests below.

    `leaves` got `weights`, and the nodes at `position` split by `handles` (and a set of bins, where the split is one of
    categories). Where the round ends, the nodes that these splits leave behind got the weights `ends`.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("the trees as they grow: splits and leaf weights", "participant"),
    )
    leaves: Annotated[Int32Array, ArraySpec("int32", 1)]
    weights: Annotated[Float32Array, ArraySpec("float32", 1)]
    position: Annotated[Int32Array, ArraySpec("int32", 1)]
    handles: Annotated[Int32Array, ArraySpec("int32", 1)]
    set_starts: Annotated[Int32Array, ArraySpec("int32", 1)]
    set_bins: Annotated[Int32Array, ArraySpec("int32", 1)]
    ends: Annotated[Float32Array, ArraySpec("float32", 1)]


@dataclass(frozen=True)
class ScaleRequest(LevelResult):
    """Server to participant, where the loss does not bound gradients: how fine may the grid of this round be?"""

    reveals: ClassVar[tuple[Reveals, ...]] = LevelResult.reveals
    number: int


@dataclass(frozen=True)
class ScaleAnswer(Message):
    """Participant to server: the finest grid that its own gradients fit."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("the order of magnitude, to a power of two, of a participant's largest gradient and hessian", "server"),
    )
    g_exponent: int
    h_exponent: int


@dataclass(frozen=True)
class SumsRequest(LevelResult):
    """Server to participant: sum gradients for these nodes of the next level.

    At depth 0 a round begins, with these columns (none: all) and this grid.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = LevelResult.reveals
    number: int
    depth: int
    g_exponent: int
    h_exponent: int
    columns: Annotated[Int32Array, ArraySpec("int32", 1)]
    build: Annotated[Int32Array, ArraySpec("int32", 1)]


@dataclass(frozen=True)
class MaskedSums(Message):
    """Participant to server: sums of gradients and hessians per node and bin, under pairwise masks."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("exact sums of gradients and hessians per node and bin, of all participants together", "server"),
    )
    sums: Annotated[UInt64Array, ArraySpec("uint64", 3)]


@dataclass(frozen=True)
class MetricRequest(LevelResult):
    """Server to participant, where rows are kept for validation: how good is the model after this round?"""

    reveals: ClassVar[tuple[Reveals, ...]] = LevelResult.reveals
    number: int


@dataclass(frozen=True)
class MaskedMetric(Message):
    """Participant to server: its validation rows' weights and weighted metric added up, under pairwise masks."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("weight and metric of the validation rows of all participants together", "server"),
    )
    weights: Annotated[UInt8Array, ArraySpec("uint8", 1)]
    terms: Annotated[UInt8Array, ArraySpec("uint8", 1)]


MESSAGES: tuple[type[Message], ...] = (
    SecaggColumns,
    SecaggGroup,
    TotalsRequest,
    MaskedTotals,
    CountsRequest,
    MaskedCounts,
    CutsFound,
    ScaleRequest,
    ScaleAnswer,
    SumsRequest,
    MaskedSums,
    MetricRequest,
    MaskedMetric,
)
