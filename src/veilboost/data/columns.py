"""Convert Arrow columns for training. The only module that imports pyarrow, lazily, when a table is loaded."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Protocol, cast

import numpy as np

from veilboost.data.schema import check_finite, check_ids, check_label_present, check_weight, count, mixed
from veilboost.errors import LabelNotANumber, MissingId, MixedTypes
from veilboost.types import AnyArray, Column, Float32Array, Float64Array, Int32Array


class ArrowColumn(Protocol):
    """The subset of `pyarrow.ChunkedArray` that VeilBoost uses."""

    @property
    def type(self) -> Any: ...
    @property
    def null_count(self) -> int: ...
    def cast(self, target_type: Any, safe: bool = True) -> ArrowColumn: ...
    def to_numpy(self) -> AnyArray: ...
    def to_pylist(self) -> list[Any]: ...


class ArrowTable(Protocol):
    """The subset of `pyarrow.Table` that VeilBoost uses."""

    @property
    def column_names(self) -> list[str]: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def schema(self) -> Any: ...
    def column(self, i: int | str) -> ArrowColumn: ...
    def select(self, columns: Sequence[str]) -> ArrowTable: ...


class Kind(Enum):
    """The kind of a column's values, as trees use them. The enum's value completes "the column holds ..."."""

    NUMBER = "numbers"
    BOOLEAN = "yes and no"
    TEXT = "text"
    CATEGORY = "categories"
    TIME = "dates or times"
    BYTES = "raw bytes"
    NOTHING = "nothing"
    OTHER = "lists or other nested values"


def pyarrow(module: str = "") -> Any:
    """The module `pyarrow` or one of its submodules, imported now."""
    return importlib.import_module(f"pyarrow.{module}" if module else "pyarrow")


def table_of(columns: Mapping[str, Any]) -> ArrowTable:
    """An Arrow table of named arrays."""
    return cast(ArrowTable, pyarrow().table(dict(columns)))


def kind_of(column: ArrowColumn) -> Kind:
    """Map a column's Arrow type to a kind."""
    types = pyarrow().types
    tests: tuple[tuple[Kind, Callable[[Any], bool]], ...] = (
        (Kind.NUMBER, lambda kind: types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)),
        (Kind.BOOLEAN, types.is_boolean),
        (Kind.TEXT, _is_text),
        (Kind.CATEGORY, types.is_dictionary),
        (Kind.TIME, types.is_temporal),
        (Kind.NOTHING, types.is_null),
        # By name: binary, large, view and fixed-size, whichever the installed pyarrow has.
        (Kind.BYTES, lambda kind: "binary" in str(kind)),
    )
    return next((kind for kind, test in tests if test(column.type)), Kind.OTHER)


def is_integer(column: ArrowColumn) -> bool:
    return bool(pyarrow().types.is_integer(column.type))


def is_dictionary_of_text(column: ArrowColumn) -> bool:
    return bool(pyarrow().types.is_dictionary(column.type)) and _is_text(column.type.value_type)


def floats(column: ArrowColumn) -> Float64Array:
    """A numeric or boolean column as float64, NaN where missing."""
    # Unsafe: a 64-bit integer above 2^53 may round, as it does on its way to float32 anyway.
    plain = column.cast(pyarrow().float64(), safe=False)
    return np.asarray(plain.to_numpy(), dtype=np.float64)


_PER_DAY = {"s": 86_400, "ms": 86_400 * 10**3, "us": 86_400 * 10**6, "ns": 86_400 * 10**9}


def days(column: ArrowColumn) -> Float64Array | None:
    """Dates and times as days since 1970-01-01 (UTC), times of day as days since midnight, durations as days.

    None for calendar intervals, which have no fixed length.
    """
    pa, kind = pyarrow(), column.type
    if pa.types.is_interval(kind):
        return None
    if pa.types.is_date(kind):
        return floats(column.cast(pa.date32(), safe=False).cast(pa.int32()))
    whole = column.cast(pa.int32() if pa.types.is_time32(kind) else pa.int64())
    return floats(whole) / _PER_DAY[kind.unit]


def without_markers(column: ArrowColumn, markers: Sequence[str]) -> ArrowColumn:
    """The column with nulls for the values that stand for missing ones: texts that are equal, and equal numbers."""
    kind = kind_of(column)
    if not markers or kind not in {Kind.NUMBER, Kind.TEXT, Kind.CATEGORY}:
        return column
    pa, compute = pyarrow(), pyarrow("compute")
    if kind is Kind.CATEGORY:
        column = column.cast(column.type.value_type)
    if _is_text(column.type):
        column = column.cast(pa.large_string())
        found = compute.is_in(column, pa.array(list(markers), pa.large_string()))
    else:
        numbers = [number for number in map(_number, markers) if number is not None]
        found = compute.is_in(column.cast(pa.float64(), safe=False), pa.array(numbers, pa.float64()))
    return cast(ArrowColumn, compute.if_else(found, pa.scalar(None, column.type), column))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def integers(column: ArrowColumn) -> AnyArray | None:
    """A column of integers or of digits as int64; None if that would lose information."""
    try:
        return np.asarray(column.cast(pyarrow().int64()).to_numpy(), dtype=np.int64)
    except ValueError:
        return None


def texts(column: ArrowColumn) -> list[str | None]:
    """A column of text, plain or dictionary, row by row."""
    return cast("list[str | None]", column.cast(pyarrow().large_string()).to_pylist())


def _present(column: ArrowColumn) -> int:
    """The number of values that are not missing."""
    return len(cast(Any, column)) - column.null_count


def replace_pattern(column: ArrowColumn, pattern: str, replacement: str) -> ArrowColumn:
    text = column.cast(pyarrow().large_string())
    return cast(ArrowColumn, pyarrow("compute").replace_substring_regex(text, pattern, replacement))


def encode(column: ArrowColumn) -> tuple[Int32Array, list[str]]:
    """Codes into the sorted distinct texts of a column, -1 where missing.

    Numbers are converted to text; integers without ".0", so a column that became float because of a missing value
    keeps its categories.
    """
    pa = pyarrow()
    if pa.types.is_dictionary(column.type):
        # Decoded first: a dictionary may hold values that no row uses, or the same value twice.
        column = column.cast(column.type.value_type)
    if _is_text(column.type):
        # 64-bit offsets: chunks of short strings beyond 2 GB would not combine into one.
        column = column.cast(pa.large_string())
    coded = cast(Any, column).combine_chunks().dictionary_encode()
    printed = _print_all(coded.dictionary)
    categories = sorted({text for text in printed if text is not None})
    place = {text: code for code, text in enumerate(categories)}
    recode = np.array([-1 if text is None else place[text] for text in printed] + [-1], dtype=np.int32)
    indices = coded.indices.cast(pa.int64()).fill_null(len(printed)).to_numpy(zero_copy_only=False)
    return recode[np.asarray(indices, dtype=np.int64)], categories


def _print_all(values: Any) -> list[str | None]:
    pa = pyarrow()
    texts = cast("list[str | None]", values.cast(pa.large_string()).to_pylist())
    if not pa.types.is_floating(values.type):
        return texts
    numbers = cast("list[float | None]", values.to_pylist())
    return [_print_float(*pair) for pair in zip(numbers, texts, strict=True)]


def _print_float(number: float | None, text: str | None) -> str | None:
    if number is None or math.isnan(number):
        return None
    # Arrow's text is the shortest that parses to the same value, also for float32.
    return str(int(number)) if number.is_integer() else text


def _matches(column: ArrowColumn, pattern: str) -> int:
    """The number of texts that match."""
    compute = pyarrow("compute")
    hits = compute.match_substring_regex(column.cast(pyarrow().large_string()), pattern)
    return int(compute.sum(hits).as_py() or 0)


def _is_text(kind: Any) -> bool:
    # By name, because pyarrow.types.is_string_view is newer than the oldest supported pyarrow.
    return str(kind) in {"string", "large_string", "string_view"}


# --- columns for training: ids, features, labels, weights -----------------------------------------------------------

NUMBER_PATTERN = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"
INTEGER_PATTERN = r"^(0|-?[1-9][0-9]{0,18})$"
WHOLE_FLOAT_PATTERN = r"^(-?(?:0|[1-9][0-9]*))\.0+$"


def feature_column(name: str, column: ArrowColumn, *, categorical: bool, typed: bool) -> Column:
    """One feature: numbers and dates (`days`) as float32, text, dictionaries and declared columns as categories.

    Not `typed`: the types were inferred from text (csv), and numbers among text are an error.
    """
    kind = kind_of(column)
    if kind in {Kind.BYTES, Kind.OTHER}:
        raise _unusable(name, kind)
    if categorical or kind in {Kind.TEXT, Kind.CATEGORY}:
        if not categorical and not typed:
            _refuse_numbers_among_text(name, column, has_role=False)
        if categorical and not typed and kind is Kind.TEXT:
            # A csv file may contain 1.0 where another file with the same column contains 1.
            column = replace_pattern(column, WHOLE_FLOAT_PATTERN, r"\1")
        codes, categories = encode(column)
        return Column(name, codes, tuple(categories))
    numbers = days(column) if kind is Kind.TIME else floats(column)
    if numbers is None:
        raise _unusable(name, kind)
    values = to_float32(numbers)
    check_finite(values, name)
    return Column(name, values)


def to_float32(values: AnyArray) -> Float32Array:
    """Numbers as float32; numbers that are too large become infinite without a warning."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def id_values(name: str, column: ArrowColumn, *, typed: bool) -> AnyArray:
    """Ids as int64 or as a unicode array, each in one row only.

    From csv, ids are integers only if every one of them is written as such: 007 stays text.
    """
    rows_without = column.null_count
    kind = kind_of(column)
    ids: AnyArray | None = None
    if kind is Kind.TEXT or is_dictionary_of_text(column):
        found = texts(column)
        rows_without = sum(not text for text in found)
        if not rows_without and not typed and _matches(column, INTEGER_PATTERN) == _present(column):
            ids = integers(column)
        if ids is None and not rows_without:
            ids = np.array(found, dtype=np.str_)
    elif kind is Kind.NUMBER and not is_integer(column):
        rows_without = int(np.isnan(floats(column)).sum())
    elif is_integer(column) and not rows_without:
        ids = integers(column)
    if rows_without:
        raise MissingId(f"id column {name!r} is missing in {count(rows_without, 'row')}")
    if ids is None:
        raise MixedTypes(f"id column {name!r} holds neither 64-bit whole numbers nor text", "write the ids as text")
    check_ids(ids, name)
    return ids


def label_values(name: str, column: ArrowColumn, *, typed: bool) -> tuple[Float64Array, tuple[str, ...] | None]:
    """Labels as float64, and the sorted classes that they encode if they were text."""
    kind = kind_of(column)
    if kind in {Kind.BYTES, Kind.OTHER, Kind.TIME}:
        raise _unusable(name, kind)
    if kind in {Kind.TEXT, Kind.CATEGORY}:
        if not typed:
            _refuse_numbers_among_text(name, column, has_role=True)
        codes, classes = encode(column)
        missing = int((codes < 0).sum())
        if missing:
            raise LabelNotANumber(f"label column {name!r} is missing in {count(missing, 'row')}")
        return codes.astype(np.float64), tuple(classes)
    label = floats(column)
    check_label_present(label, name)
    return label, None


def weight_values(name: str, column: ArrowColumn) -> Float64Array:
    """Row weights as float64, finite and not negative."""
    kind = kind_of(column)
    if kind not in {Kind.NUMBER, Kind.BOOLEAN, Kind.NOTHING}:
        raise MixedTypes(f"weight column {name!r} holds {kind.value}", "give weights as numbers")
    weight = floats(column)
    check_weight(weight, name)
    return weight


def _refuse_numbers_among_text(name: str, column: ArrowColumn, has_role: bool) -> None:
    if 0 < _matches(column, NUMBER_PATTERN) < _present(column):
        raise mixed(name, has_role)


def _unusable(name: str, kind: Kind) -> MixedTypes:
    fix = {
        Kind.TIME: "turn it into a number first, such as days since a date of your choice, or leave it out",
        Kind.BYTES: "store it as UTF-8 text or as numbers, or leave it out",
    }.get(kind, "turn it into one number or one text per row, or leave it out")
    return MixedTypes(f"column {name!r} holds {kind.value}", fix)
