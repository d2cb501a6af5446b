"""The one door to pyarrow, which brings no types of its own and loads only when a table does.

Everything here speaks of single columns and knows nothing of ids, labels or features.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Protocol, cast

import numpy as np

from veilboost.types import AnyArray, Float64Array, Int32Array


class ArrowColumn(Protocol):
    """What we use of a `pyarrow.ChunkedArray`."""

    @property
    def type(self) -> Any: ...
    @property
    def null_count(self) -> int: ...
    def cast(self, target_type: Any, safe: bool = True) -> ArrowColumn: ...
    def to_numpy(self) -> AnyArray: ...
    def to_pylist(self) -> list[Any]: ...


class ArrowTable(Protocol):
    """What we use of a `pyarrow.Table`."""

    @property
    def column_names(self) -> list[str]: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def schema(self) -> Any: ...
    def column(self, i: int | str) -> ArrowColumn: ...
    def select(self, columns: Sequence[str]) -> ArrowTable: ...


class Kind(Enum):
    """What a column holds, as far as a tree is concerned. The value completes "the column holds ..."."""

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
    """Sort a column's Arrow type into one of the kinds."""
    types = pyarrow().types
    tests: tuple[tuple[Kind, Callable[[Any], bool]], ...] = (
        (
            Kind.NUMBER,
            lambda kind: types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind),
        ),
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


def integers(column: ArrowColumn) -> AnyArray | None:
    """A column of whole numbers or of digits as int64; None if that would lose anything."""
    try:
        return np.asarray(column.cast(pyarrow().int64()).to_numpy(), dtype=np.int64)
    except ValueError:
        return None


def texts(column: ArrowColumn) -> list[str | None]:
    """A column of text, plain or dictionary, row by row."""
    return cast("list[str | None]", column.cast(pyarrow().large_string()).to_pylist())


def all_match(column: ArrowColumn, pattern: str) -> bool:
    """Whether every non-missing text matches; true when there is none."""
    return _matches(column, pattern) == len(cast(Any, column)) - column.null_count


def any_match(column: ArrowColumn, pattern: str) -> bool:
    """Whether some non-missing text matches."""
    return _matches(column, pattern) > 0


def replace_pattern(column: ArrowColumn, pattern: str, replacement: str) -> ArrowColumn:
    text = column.cast(pyarrow().large_string())
    return cast(ArrowColumn, pyarrow("compute").replace_substring_regex(text, pattern, replacement))


def encode(column: ArrowColumn) -> tuple[Int32Array, list[str]]:
    """Codes into the sorted distinct texts of a column, -1 where missing.

    Numbers are printed; whole ones without ".0", so a column that became float because of a missing value
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
    # Arrow's text is the shortest that reads back, also for float32.
    return str(int(number)) if number.is_integer() else text


def _matches(column: ArrowColumn, pattern: str) -> int:
    compute = pyarrow("compute")
    hits = compute.match_substring_regex(column.cast(pyarrow().large_string()), pattern)
    return int(compute.sum(hits).as_py() or 0)


def _is_text(kind: Any) -> bool:
    # By name, because pyarrow.types.is_string_view is younger than the oldest pyarrow we support.
    return str(kind) in {"string", "large_string", "string_view"}
