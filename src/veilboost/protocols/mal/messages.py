"""What `mal` sends. Two rounds carry data: extremes and ranges with the comparer, rows and model with the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from veilboost.types import Float64Array, UInt8Array
from veilboost.wire.message import ArraySpec, Message, Reveals


@dataclass(frozen=True)
class MalColumns(Message):
    """Participant to server, with its word that it takes part: its columns' and labels' names and kinds."""

    reveals = (
        Reveals(
            "names and kinds of columns, the categories that it knows, and which columns have missing values", "server"
        ),
        Reveals("the classes of its labels, and which loss they ask for", "server"),
    )
    schema: str


@dataclass(frozen=True)
class KeysRequest(Message):
    """Participant to authority: the keys of this session."""

    reveals = ()


@dataclass(frozen=True)
class SessionKeys(Message):
    """Authority to participant: the master key and the comparison key."""

    reveals = (Reveals("the keys that encrypt and compare extremes in this session", "participant"),)
    master: Annotated[UInt8Array, ArraySpec("uint8", 1)]
    comparison: Annotated[UInt8Array, ArraySpec("uint8", 1)]


@dataclass(frozen=True)
class ComparisonKeyRequest(Message):
    """Comparer to authority: the comparison key of this session."""

    reveals = ()


@dataclass(frozen=True)
class ComparisonKey(Message):
    """Authority to comparer: the comparison key alone."""

    reveals = (Reveals("the key that compares extremes in this session", "comparer"),)
    comparison: Annotated[UInt8Array, ArraySpec("uint8", 1)]


@dataclass(frozen=True)
class EncryptedExtremes(Message):
    """Participant to comparer: lowest and highest value of every numeric column, (columns, 2, bytes).

    `ciphertexts` can be compared, `values` are sealed for the other participants; `present` is 0 where a column holds
    no value. The answer is over all of `participants`, once each of them has sent its own.
    """

    reveals = (
        Reveals(
            "the order of the participants' lowest and highest values, column by column, and whose each is", "comparer"
        ),
        Reveals("of two such values, what the chosen order-revealing encryption tells beside their order", "comparer"),
        Reveals("how many numeric columns there are, and which hold no value at a participant", "comparer"),
        Reveals("which participants train together", "comparer"),
    )
    ciphertexts: Annotated[UInt8Array, ArraySpec("uint8", 3)]
    values: Annotated[UInt8Array, ArraySpec("uint8", 3)]
    present: Annotated[UInt8Array, ArraySpec("uint8", 1)]
    participants: tuple[str, ...]


@dataclass(frozen=True)
class GlobalExtremes(Message):
    """Comparer to participant: the sealed lowest and highest value of all, (columns, 2, bytes)."""

    reveals = (
        Reveals("the exact lowest and highest value of every numeric column over all participants", "participant"),
    )
    values: Annotated[UInt8Array, ArraySpec("uint8", 3)]
    present: Annotated[UInt8Array, ArraySpec("uint8", 1)]


@dataclass(frozen=True)
class ExtremesMissing(Message):
    """Comparer to participant: nothing was compared, for these participants have sent no extremes in time."""

    reveals = (Reveals("which participants the comparer has not heard from", "participant"),)
    missing: tuple[str, ...]


@dataclass(frozen=True)
class RowsHeldBack(Message):
    """Participant to server: no rows, for the comparer has not heard from these participants."""

    reveals = (Reveals("which participants the comparer has not heard from", "server"),)
    missing: tuple[str, ...]


@dataclass(frozen=True)
class RowsRequest(Message):
    """Server to participant: what all participants' columns are together; send your rows."""

    reveals = (
        Reveals(
            "who takes part, and the categories, classes and missing values of all participants together", "participant"
        ),
    )
    schema: str
    participants: tuple[str, ...]


@dataclass(frozen=True)
class MaskedRows(Message):
    """Participant to server: every row's buckets (rows, columns), its masked labels (classes, rows), and the ranges."""

    reveals = (
        Reveals("the bucket of every row in every column, after randomized response where epsilon is set", "server"),
        Reveals(
            "labels under masks: the exact sum of labels in every bucket, and what follows from all these sums",
            "server",
        ),
        Reveals("the exact lowest and highest value of every numeric column over all participants", "server"),
        Reveals("how many rows a participant has, and how it guarded them", "server"),
    )
    buckets: Annotated[UInt8Array, ArraySpec("uint8", 2)]
    labels: Annotated[Float64Array, ArraySpec("float64", 2)]
    low: Annotated[Float64Array, ArraySpec("float64", 1)]
    high: Annotated[Float64Array, ArraySpec("float64", 1)]
    report: str


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
)


SIDES = ("low", "high")  # each has keys of its own, as every column has
