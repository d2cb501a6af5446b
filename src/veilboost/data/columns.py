"""From Arrow columns to what training uses: ids, features, labels, weights."""

from __future__ import annotations

import numpy as np

from veilboost.data import arrow
from veilboost.data.arrow import ArrowColumn, Kind
from veilboost.data.schema import check_finite, check_ids, check_label_present, check_weight, count, mixed
from veilboost.errors import LabelNotANumber, MissingId, MixedTypes
from veilboost.types import AnyArray, Column, Float32Array, Float64Array

NUMBER_PATTERN = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"
INTEGER_PATTERN = r"^(0|-?[1-9][0-9]{0,18})$"
WHOLE_FLOAT_PATTERN = r"^(-?(?:0|[1-9][0-9]*))\.0+$"


def feature_column(name: str, column: ArrowColumn, *, categorical: bool, typed: bool) -> Column:
    """One feature: numbers as float32, text and dictionaries (or whatever is declared so) as categories.

    Parameters
    ----------
    name : str
        Name of the feature.
    column : ArrowColumn
        Its values.
    categorical : bool
        Whether the caller declared it to be categorical.
    typed : bool
        False if the types were guessed from text (csv): then numbers among text are an error.

    Raises
    ------
    MixedTypes
        The column is neither numbers nor text, or (csv) both.
    InfiniteValues
        A number is infinite as float32.
    """
    kind = arrow.kind_of(column)
    if kind in {Kind.BYTES, Kind.OTHER} or (kind is Kind.TIME and not categorical):
        raise _unusable(name, kind)
    if categorical or kind in {Kind.TEXT, Kind.CATEGORY}:
        if not categorical and not typed:
            _refuse_numbers_among_text(name, column, has_role=False)
        if categorical and not typed and kind is Kind.TEXT:
            # csv says 1.0 where another file of the same column says 1.
            column = arrow.replace_pattern(column, WHOLE_FLOAT_PATTERN, r"\1")
        codes, categories = arrow.encode(column)
        return Column(name, codes, tuple(categories))
    values = to_float32(arrow.floats(column))
    check_finite(values, name)
    return Column(name, values)


def to_float32(values: AnyArray) -> Float32Array:
    """Numbers as float32; those it cannot hold become infinite without a warning."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def id_values(name: str, column: ArrowColumn, *, typed: bool) -> AnyArray:
    """Ids as int64 or as a unicode array, each in one row only.

    From csv, ids are whole numbers only if every one of them is written as such: 007 stays text.

    Raises
    ------
    MissingId
        A row has no id, or the empty text.
    MixedTypes
        Ids are neither whole numbers nor text.
    DuplicateIds
        Two rows have the same id.
    """
    rows_without = column.null_count
    kind = arrow.kind_of(column)
    ids: AnyArray | None = None
    if kind is Kind.TEXT or arrow.is_dictionary_of_text(column):
        texts = arrow.texts(column)
        rows_without = sum(not text for text in texts)
        if not rows_without and not typed and arrow.all_match(column, INTEGER_PATTERN):
            ids = arrow.integers(column)
        if ids is None and not rows_without:
            ids = np.array(texts, dtype=np.str_)
    elif kind is Kind.NUMBER and not arrow.is_integer(column):
        rows_without = int(np.isnan(arrow.floats(column)).sum())
    elif arrow.is_integer(column) and not rows_without:
        ids = arrow.integers(column)
    if rows_without:
        raise MissingId(f"id column {name!r} is missing in {count(rows_without, 'row')}")
    if ids is None:
        raise MixedTypes(f"id column {name!r} holds neither 64-bit whole numbers nor text", "write the ids as text")
    check_ids(ids, name)
    return ids


def label_values(name: str, column: ArrowColumn, *, typed: bool) -> tuple[Float64Array, tuple[str, ...] | None]:
    """Labels as float64, and the sorted classes they are codes of if they were text.

    Raises
    ------
    LabelNotANumber
        A row has no label.
    MixedTypes
        Labels are neither numbers nor text, or (csv) both.
    """
    kind = arrow.kind_of(column)
    if kind in {Kind.BYTES, Kind.OTHER, Kind.TIME}:
        raise _unusable(name, kind)
    if kind in {Kind.TEXT, Kind.CATEGORY}:
        if not typed:
            _refuse_numbers_among_text(name, column, has_role=True)
        codes, classes = arrow.encode(column)
        missing = int((codes < 0).sum())
        if missing:
            raise LabelNotANumber(f"label column {name!r} is missing in {count(missing, 'row')}")
        return codes.astype(np.float64), tuple(classes)
    label = arrow.floats(column)
    check_label_present(label, name)
    return label, None


def weight_values(name: str, column: ArrowColumn) -> Float64Array:
    """Row weights as float64, finite and not negative."""
    kind = arrow.kind_of(column)
    if kind not in {Kind.NUMBER, Kind.BOOLEAN, Kind.NOTHING}:
        raise MixedTypes(f"weight column {name!r} holds {kind.value}", "give weights as numbers")
    weight = arrow.floats(column)
    check_weight(weight, name)
    return weight


def _refuse_numbers_among_text(name: str, column: ArrowColumn, has_role: bool) -> None:
    if arrow.any_match(column, NUMBER_PATTERN) and not arrow.all_match(column, NUMBER_PATTERN):
        raise mixed(name, has_role)


def _unusable(name: str, kind: Kind) -> MixedTypes:
    fix = {
        Kind.TIME: "turn it into a number first, such as days since a date of your choice, or leave it out",
        Kind.BYTES: "store it as UTF-8 text or as numbers, or leave it out",
    }.get(kind, "turn it into one number or one text per row, or leave it out")
    return MixedTypes(f"column {name!r} holds {kind.value}", fix)
