"""The body of a prediction request, checked to the last key. Refusals name columns and counts, never a value."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, cast

import numpy as np

from veilboost.align.ids import canonical_ids
from veilboost.data.schema import check_finite, count
from veilboost.data.table import PartyTable
from veilboost.errors import (
    DuplicateColumns,
    EmptyTable,
    MalformedMessage,
    MissingColumn,
    MissingId,
    MixedTypes,
    OversizedMessage,
    VeilBoostError,
)
from veilboost.infer.scores import ModelInfo
from veilboost.model.part import ColumnInfo
from veilboost.types import AnyArray, Column, Float32Array, Int32Array

SHAPE = 'send {"row": {...}} or {"rows": [{...}, ...]}; GET /openapi.json says what a row is'


@dataclass(frozen=True)
class Asked:
    """A request: ids as they were sent, and a table whose ids are texts in the parties' common form."""

    single: bool
    ids: tuple[Any, ...]
    table: PartyTable


def read_request(body: bytes, info: ModelInfo, most_rows: int) -> Asked:
    """Raises a coded error for whatever is not exactly one row or a list of rows of this model."""
    value = _parse(body)
    if not isinstance(value, dict) or len(cast(dict[str, Any], value)) != 1:
        raise MalformedMessage("the body is not an object with the one key row or rows", SHAPE)
    (key, content), *_ = cast(dict[str, Any], value).items()
    if key == "row" and isinstance(content, dict):
        rows = [cast(dict[str, Any], content)]
    elif key == "rows" and isinstance(content, list):
        rows = _objects(cast(list[Any], content))
    else:
        raise MalformedMessage("the body holds neither a row nor a list of rows", SHAPE)
    if not rows:
        raise EmptyTable("the request has no rows", "send at least one")
    if len(rows) > most_rows:
        raise OversizedMessage(f"{len(rows)} rows are more than {most_rows} at once", "send them in several requests")
    ids = _ids(rows, info.id_key)
    _check_keys(rows, info)
    columns = tuple(_column(column, [row[column.name] for row in rows]) for column in info.columns)
    # As text in the common form: then 7 in one request and "7" in another can share a batch, and are seen to be equal.
    common = np.array([each.decode() for each in canonical_ids(_id_array(ids))], dtype=np.str_)
    return Asked(key == "row", tuple(ids), PartyTable(common, columns))


def joined(tables: Sequence[PartyTable]) -> PartyTable:
    """The rows of several requests as one table; all were read for the same model."""
    if len(tables) == 1:
        return tables[0]
    columns = tuple(
        Column(first.name, np.concatenate([table.columns[at].values for table in tables]), first.categories)
        for at, first in enumerate(tables[0].columns)
    )
    return PartyTable(np.concatenate([table.ids for table in tables]), columns)


# --- JSON -------------------------------------------------------------------------------------------------


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_constant)
    except VeilBoostError:
        raise
    except (ValueError, RecursionError):
        # The parser's own words may quote the body.
        raise MalformedMessage("the body is not JSON in UTF-8", SHAPE) from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise DuplicateColumns("an object in the body has a key twice", "send every key once")
    return found


def _no_constant(_: str) -> NoReturn:
    raise MalformedMessage("the body holds NaN or Infinity, which JSON does not have", "send null for a missing value")


def _objects(content: list[Any]) -> list[dict[str, Any]]:
    wrong = sum(not isinstance(row, dict) for row in content)
    if wrong:
        raise MalformedMessage(f"of {count(len(content), 'row')} {wrong} are not objects", SHAPE)
    return cast(list[dict[str, Any]], content)


# --- ids and keys -----------------------------------------------------------------------------------------


def _ids(rows: Sequence[Mapping[str, Any]], key: str) -> list[int | str]:
    missing = sum(row.get(key) is None or row[key] == "" for row in rows)
    if missing:
        raise MissingId(f"{key!r} is missing in {count(missing, 'row')}")
    ids = [row[key] for row in rows]
    whole = sum(type(value) is int and -(2**63) <= value < 2**63 for value in ids)
    # A trailing NUL would be lost on the way, and another person be meant.
    text = sum(isinstance(value, str) and "\0" not in value for value in ids)
    if len(ids) not in (whole, text):
        raise MixedTypes(
            f"of {len(ids)} ids {whole} are 64-bit whole numbers and {text} are text", "make them all the same kind"
        )
    return ids


def _id_array(ids: Sequence[int | str]) -> AnyArray:
    return np.array(ids, dtype=np.int64 if isinstance(ids[0], int) else np.str_)


def _check_keys(rows: Sequence[Mapping[str, Any]], info: ModelInfo) -> None:
    wanted = {column.name for column in info.columns} | {info.id_key}
    for row in rows:
        if set(row) == wanted:
            continue
        absent = [column.name for column in info.columns if column.name not in row]
        if absent:
            raise MissingColumn(f"a row has no {absent[0]!r}", "send every column, with null for a missing value")
        raise MissingColumn(
            f"a row has {count(len(set(row) - wanted), 'key')} that the model does not know",
            "GET /v1/model lists the columns",
        )


# --- values -----------------------------------------------------------------------------------------------


def _column(info: ColumnInfo, values: Sequence[Any]) -> Column:
    if info.categories is None:
        return Column(info.name, _numbers(info.name, values))
    return Column(info.name, _codes(info.name, info.categories, values), info.categories)


def _numbers(name: str, values: Sequence[Any]) -> Float32Array:
    # A column of yes and no was trained as numbers, so true and false are welcome.
    _refuse(name, values, lambda value: isinstance(value, (int, float)), "a number")
    try:
        with np.errstate(over="ignore"):
            numbers = np.array([np.nan if value is None else float(value) for value in values]).astype(np.float32)
    except OverflowError:
        numbers = np.array([np.inf], dtype=np.float32)  # a whole number that no float holds
    check_finite(numbers, name)
    return numbers


def _codes(name: str, categories: Sequence[str], values: Sequence[Any]) -> Int32Array:
    """Codes into the trained categories; what training did not know counts as missing."""
    _refuse(name, values, lambda value: isinstance(value, (str, int, float)), "a text or a number")
    code: dict[str | None, int] = {category: at for at, category in enumerate(categories)}
    return np.array([code.get(_text(value), -1) for value in values], dtype=np.int32)


def _refuse(name: str, values: Sequence[Any], fits: Callable[[Any], bool], wanted: str) -> None:
    wrong = sum(value is not None and not fits(value) for value in values)
    if wrong:
        what = f"column {name!r} holds in {count(wrong, 'row')} something else than {wanted}"
        raise MixedTypes(what, f"send {wanted} or null")


def _text(value: str | float | None) -> str | None:
    """As tables print categories: yes and no in small letters, whole numbers without a point."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else str(value)
    return None if value is None else str(value)
