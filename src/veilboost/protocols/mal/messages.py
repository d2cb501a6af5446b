"""Messages of `mal`. Two exchanges carry data: extremes with the comparer, rows and model with the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from veilboost.protocols.horizontal.full_model import TrainedModel
from veilboost.types import Float64Array, UInt8Array
from veilboost.wire.message import ArraySpec, Message, Reveals


@dataclass(frozen=True)
class MalColumns(Message):
    """Participant to server, when it joins: the names and types of its columns and labels."""

    reveals = (
        Reveals("names and types of columns, known categories, and which columns have missing values", "server"),
        Reveals("the classes of its labels, and the loss that they imply", "server"),
        Reveals("whether it holds out rows for validation", "server"),
    )
    schema: str
    watches: bool


@dataclass(frozen=True)
class KeysRequest(Message):
    """Participant to authority: send the keys of this session."""

    reveals = ()


@dataclass(frozen=True)
class SessionKeys(Message):
    """Authority to participant: the master key and the comparison key."""

    reveals = (Reveals("the keys that encrypt and compare extremes in this session", "participant"),)
    master: Annotated[UInt8Array, ArraySpec("uint8", 1)]
    comparison: Annotated[UInt8Array, ArraySpec("uint8", 1)]


@dataclass(frozen=True)
class ComparisonKeyRequest(Message):
    """Comparer to authority: send the comparison key of this session."""

    reveals = ()


@dataclass(frozen=True)
class ComparisonKey(Message):
    """Authority to comparer: only the comparison key."""

    reveals = (Reveals("the key that compares extremes in this session", "comparer"),)
    comparison: Annotated[UInt8Array, ArraySpec("uint8", 1)]


@dataclass(frozen=True)
class EncryptedExtremes(Message):
    """Participant to comparer: lowest and highest value of every numeric column, (columns, 2, bytes).

    `ciphertexts` can be compared, `values` are encrypted for the other participants; `present` is 0 if a column has no
    value. The answer covers all of `participants`; the comparer sends it when each of them has sent its own extremes.
    """

    reveals = (
        Reveals(
            "for each column, the order of the participants' lowest and highest values, and whose they are", "comparer"
        ),
        Reveals(
            "what the chosen order-revealing encryption reveals about two such values besides their order", "comparer"
        ),
        Reveals("the number of numeric columns, and which of them have no value at a participant", "comparer"),
        Reveals("which participants train together", "comparer"),
    )
    ciphertexts: Annotated[UInt8Array, ArraySpec("uint8", 3)]
    values: Annotated[UInt8Array, ArraySpec("uint8", 3)]
    present: Annotated[UInt8Array, ArraySpec("uint8", 1)]
    participants: tuple[str, ...]


@dataclass(frozen=True)
class GlobalExtremes(Message):
    """Comparer to participant: the encrypted global lowest and highest values, (columns, 2, bytes)."""

    reveals = (
        Reveals("the exact lowest and highest value of every numeric column over all participants", "participant"),
    )
    values: Annotated[UInt8Array, ArraySpec("uint8", 3)]
    present: Annotated[UInt8Array, ArraySpec("uint8", 1)]


@dataclass(frozen=True)
class ExtremesMissing(Message):
    """Comparer to participant: nothing was compared, because these participants sent no extremes in time."""

    reveals = (Reveals("from which participants the comparer received no extremes", "participant"),)
    missing: tuple[str, ...]


@dataclass(frozen=True)
class RowsHeldBack(Message):
    """Participant to server: no rows, because the comparer received no extremes from these participants."""

    reveals = (Reveals("from which participants the comparer received no extremes", "server"),)
    missing: tuple[str, ...]


@dataclass(frozen=True)
class RowsRequest(Message):
    """Server to participant: the combined schema of all participants; send your rows."""

    reveals = (
        Reveals(
            "who takes part, and the combined categories, classes and missing values of all participants", "participant"
        ),
    )
    schema: str
    participants: tuple[str, ...]


@dataclass(frozen=True)
class MaskedRows(Message):
    """Participant to server: every row's buckets (rows, columns), its masked labels (classes, rows), and the ranges.

    `weights` are the distinct sample weights, and `weight_of` is the place of each row's own among them; both are empty
    if there are none. Masks cancel in every bucket, among the rows of each weight.
    """

    reveals = (
        Reveals("the bucket of every row in every column, after randomized response if epsilon is set", "server"),
        Reveals(
            "labels under masks: the exact sum of labels in every bucket, and whatever follows from these sums",
            "server",
        ),
        Reveals("the sample weight of every row, and the exact sums of labels apart for each weight", "server"),
        Reveals("the exact lowest and highest value of every numeric column over all participants", "server"),
        Reveals("the number of rows of a participant, and how it guarded them", "server"),
    )
    buckets: Annotated[UInt8Array, ArraySpec("uint8", 2)]
    labels: Annotated[Float64Array, ArraySpec("float64", 2)]
    low: Annotated[Float64Array, ArraySpec("float64", 1)]
    high: Annotated[Float64Array, ArraySpec("float64", 1)]
    weights: Annotated[Float64Array, ArraySpec("float64", 1)]
    weight_of: Annotated[UInt8Array, ArraySpec("uint8", 1)]
    report: str


@dataclass(frozen=True)
class MetricsRequest(TrainedModel):
    """Server to participant, if rows are held out for validation: send the metric of this model after each round."""

    reveals = TrainedModel.reveals


@dataclass(frozen=True)
class RoundMetrics(Message):
    """Participant to server: the total weight of its validation rows, and their weighted metric after each round."""

    reveals = (
        Reveals("total weight of a participant's validation rows, and their exact metric after each round", "server"),
    )
    weight: float
    terms: Annotated[Float64Array, ArraySpec("float64", 1)]


MESSAGES: tuple[type[Message], ...] = (
    MalColumns,
    RowsRequest,
    KeysRequest,
    SessionKeys,
    EncryptedExtremes,
    ComparisonKeyRequest,
    ComparisonKey,
    GlobalExtremes,
    ExtremesMissing,
    MaskedRows,
    RowsHeldBack,
    MetricsRequest,
    RoundMetrics,
)


# What a participant reports about its rows: all of it follows from the buckets that it sends.
REPORT = ("rows", "rank", "largest_leverage", "merged_cells", "dropped_rows", "exposed_rows")
EXTREMES = ("low", "high")  # each has its own keys, and so has every column
