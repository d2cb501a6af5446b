"""Messages of `secagg`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from veilboost.types import Float32Array, Float64Array, Int32Array, UInt8Array, UInt32Array, UInt64Array
from veilboost.wire.message import ArraySpec, Message, Reveals


@dataclass(frozen=True)
class SecaggColumns(Message):
    """Participant to server, when it joins: the names and types of its columns and labels.

    `public` is its public key for this job; `evidence` proves to the other participants that the key is its own.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("names and types of columns, known categories, and which columns have missing values", "server"),
        Reveals("the classes of its labels, and the loss that they imply", "server"),
        Reveals("the order of magnitude, to a power of two, of its largest sample weight", "server"),
        Reveals("whether it holds out rows for validation", "server"),
    )
    schema: str
    public: Annotated[UInt8Array, ArraySpec("uint8", 1)]
    evidence: str
    weight_exponent: int
    watches: bool


@dataclass(frozen=True)
class SecaggGroup(Message):
    """Server to participant: the participants, their public keys (participants, 32), and the common schema."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals(
            "who takes part, and the combined categories, classes and missing values of all participants", "participant"
        ),
        Reveals("the order of magnitude of the largest sample weight of all participants", "participant"),
    )
    schema: str
    participants: tuple[str, ...]
    publics: Annotated[UInt8Array, ArraySpec("uint8", 2)]
    evidence: tuple[str, ...]
    weight_exponent: int


@dataclass(frozen=True)
class TotalsRequest(Message):
    """Server to participant: send your number of rows, and the sum of their labels."""

    reveals: ClassVar[tuple[Reveals, ...]] = ()


@dataclass(frozen=True)
class MaskedTotals(Message):
    """Participant to server: its number of rows and its exact sums of weights and labels, all under pairwise masks.

    `labels` has a row: the sum of labels; with several classes a row per class: the sum of its rows' weights; with
    pseudo_huber two rows: the sums of both derivatives of the loss at margin 0.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals(
            "the number of rows over all participants and, unless epsilon is set, the sum of weights and of labels "
            "(with several classes, of weights in each class; with pseudo_huber, of the derivatives of the loss at 0)",
            "server",
        ),
    )
    rows: Annotated[UInt64Array, ArraySpec("uint64", 1)]
    weights: Annotated[UInt8Array, ArraySpec("uint8", 1)]
    labels: Annotated[UInt8Array, ArraySpec("uint8", 2)]


@dataclass(frozen=True)
class CountsRequest(Message):
    """Server to participant: count the values of each numeric column that are at most these (columns, values).

    With epsilon, values do not decrease, and each counts those above the value before.

    Values are float32 numbers, encoded as integers in the same order.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("the progress of the search for the cut points of the columns", "participant"),
    )
    step: int
    values: Annotated[UInt32Array, ArraySpec("uint32", 2)]


@dataclass(frozen=True)
class MaskedCounts(Message):
    """Participant to server: the counts, under pairwise masks."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals(
            "how many values of all participants together are below each requested value, with noise if epsilon is set",
            "server",
        ),
    )
    counts: Annotated[UInt64Array, ArraySpec("uint64", 2)]


@dataclass(frozen=True)
class CutsFound(Message):
    """Server to participant: the cut points of all columns, column by column."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("the cut points: quantiles, or equal steps between the lowest and highest value", "participant"),
    )
    cuts: Annotated[Float32Array, ArraySpec("float32", 1)]
    starts: Annotated[Int32Array, ArraySpec("int32", 1)]
    base_margin: Annotated[Float64Array, ArraySpec("float64", 1)]


@dataclass(frozen=True)
class LevelResult(Message):
    """The result of the previous level: the base of the requests below.

    `leaves` have the weights `weights`; the nodes at `position` split by `handles` (and a set of bins if the split is
    on categories). At the end of a round, the children of these splits have the weights `ends`.
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
    """Server to participant, if the loss does not bound gradients: send the finest grid for this round."""

    reveals: ClassVar[tuple[Reveals, ...]] = LevelResult.reveals
    number: int


@dataclass(frozen=True)
class ScaleAnswer(Message):
    """Participant to server: the finest grid that can hold its own gradients."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("the order of magnitude, to a power of two, of a participant's largest gradient and hessian", "server"),
    )
    g_exponent: int
    h_exponent: int


@dataclass(frozen=True)
class SumsRequest(LevelResult):
    """Server to participant: sum the gradients of these nodes of the next level.

    At depth 0 a round starts, with these columns (none: all) and this grid.
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
        Reveals(
            "sums of gradients and hessians per node and bin over all participants, exact unless epsilon adds noise",
            "server",
        ),
    )
    sums: Annotated[UInt64Array, ArraySpec("uint64", 3)]


@dataclass(frozen=True)
class MetricRequest(LevelResult):
    """Server to participant, if rows are held out for validation: send the metric of the model after this round."""

    reveals: ClassVar[tuple[Reveals, ...]] = LevelResult.reveals
    number: int


@dataclass(frozen=True)
class MaskedMetric(Message):
    """Participant to server: the sums of weights and of the weighted metric of its validation rows, under masks."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("total weight and metric of the validation rows of all participants", "server"),
    )
    weights: Annotated[UInt8Array, ArraySpec("uint8", 1)]
    terms: Annotated[UInt8Array, ArraySpec("uint8", 1)]


@dataclass(frozen=True)
class MaskedScores(Message):
    """Participant to server: the weights of its validation rows by class and interval of the score, under masks.

    The answer to `MetricRequest` if the job's metric ranks rows: auc, aucpr or ks.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("the distribution of scores of the validation rows of all participants, by class", "server"),
    )
    weights: Annotated[UInt64Array, ArraySpec("uint64", 2)]


@dataclass(frozen=True)
class RosterRequest(LevelResult):
    """Server to participant, with dropouts: who takes part in the next round, and their public keys.

    `evidence` proves a key that the participant does not know yet, of a participant that returned; else it is empty.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = (
        *LevelResult.reveals,
        Reveals("who takes part in the round", "participant"),
    )
    number: int
    participants: tuple[str, ...]
    publics: Annotated[UInt8Array, ArraySpec("uint8", 2)]
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class RosterAccepted(Message):
    """Participant to server: for each other participant, a proof that it accepts the roster (participants, 32)."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals(
            "its own sums, as the difference of rounds with it and without it, exact unless epsilon is set", "server"
        ),
    )
    proofs: Annotated[UInt8Array, ArraySpec("uint8", 2)]


@dataclass(frozen=True)
class RosterConfirmed(Message):
    """Server to participant: the proofs of all others for this participant (participants, 32)."""

    reveals: ClassVar[tuple[Reveals, ...]] = ()
    number: int
    proofs: Annotated[UInt8Array, ArraySpec("uint8", 2)]


@dataclass(frozen=True)
class MissedLevel(LevelResult):
    """Server to a participant that returns: the result of a level of a round that it missed, in order."""

    reveals: ClassVar[tuple[Reveals, ...]] = LevelResult.reveals
    number: int


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
    MaskedScores,
    RosterRequest,
    RosterAccepted,
    RosterConfirmed,
    MissedLevel,
)
