"""The body of a prediction request, checked to the last key. Refusals name columns and counts, never a value."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, cast

import numpy as np
from pydantic import ValidationError
from pydantic_core import ErrorDetails

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
from veilboost.model.part import ColumnInfo
from veilboost.service.schema import Schema
from veilboost.types import Column, Float32Array

SHAPE = 'send {"row": {...}} or {"rows": [{...}, ...]}; GET /openapi.json says what a row is'


@dataclass(frozen=True)
class Asked:
    """A request: ids as they were sent, and a table whose ids are texts in the parties' common form."""

    single: bool
    ids: tuple[Any, ...]
    table: PartyTable


def read_request(body: bytes, schema: Schema) -> Asked:
    """Raises a coded error for whatever is not exactly one row or a list of rows of this model."""
    value = _parse(body)
    if not isinstance(value, dict) or len(cast(dict[str, Any], value)) != 1:
        raise MalformedMessage("the body is not an object with the one key row or rows", SHAPE)
    (key, content), *_ = cast(dict[str, Any], value).items()
    if (key, type(content)) not in (("row", dict), ("rows", list)):
        raise MalformedMessage("the body holds neither a row nor a list of rows", SHAPE)
    sent = [content] if key == "row" else cast(list[Any], content)
    if not sent:
        raise EmptyTable("the request has no rows", "send at least one")
    most = schema.most_rows
    if len(sent) > most:
        raise OversizedMessage(f"{len(sent)} rows are more than {most} at once", "send them in several requests")
    try:
        rows = schema.rows.validate_python(sent)
    except ValidationError as error:
        raise _refusal(error, schema, len(sent)) from None  # its own words quote the body
    ids = [row.id for row in rows]
    whole = sum(isinstance(id, int) for id in ids)
    if whole not in (0, len(ids)):
        what = f"of {len(ids)} ids {whole} are 64-bit whole numbers and {len(ids) - whole} are text"
        raise MixedTypes(what, "make them all the same kind")
    columns = tuple(
        _column(column, [getattr(row, f"column_{at}") for row in rows]) for at, column in enumerate(schema.info.columns)
    )
    # As text in the common form: then 7 in one request and "7" in another can share a batch, and are seen to be equal.
    canonical = canonical_ids(np.array(ids, dtype=np.int64 if whole else np.str_))
    return Asked(key == "row", tuple(ids), PartyTable(np.array([id.decode() for id in canonical]), columns))


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


def _refusal(error: ValidationError, schema: Schema, rows: int) -> VeilBoostError:
    """What is wrong with the rows, in our own words: first what is no row, then ids, keys and values."""
    by_key: defaultdict[str, list[ErrorDetails]] = defaultdict(list)
    for each in error.errors(include_url=False, include_context=False):
        by_key[str(each["loc"][1]) if len(each["loc"]) > 1 else ""].append(each)

    def counted(errors: Sequence[ErrorDetails]) -> str:
        return count(len({each["loc"][0] for each in errors}), "row")

    if "" in by_key:
        return MalformedMessage(f"of {count(rows, 'row')} {len(by_key[''])} are not objects", SHAPE)
    key, columns = schema.id_key, schema.info.columns
    if key in by_key:
        lost = [each for each in by_key[key] if each["type"] == "missing" or each["input"] in (None, "")]
        if lost:
            return MissingId(f"{key!r} is missing in {counted(lost)}")
        what = f"{key!r} is neither text nor a 64-bit whole number in {counted(by_key[key])}"
        return MixedTypes(what, "make them all the same kind")
    wrong = [column for column in columns if column.name in by_key]
    for column in wrong:
        if any(each["type"] == "missing" for each in by_key[column.name]):
            return MissingColumn(f"a row has no {column.name!r}", "send every column, with null for a missing value")
    unknown = len(by_key) - len(wrong)
    if unknown:
        what = f"a row has {count(unknown, 'key')} that the model does not know"
        return MissingColumn(what, "GET /v1/model lists the columns")
    wanted = "a number" if wrong[0].categories is None else "a text or a number"
    what = f"column {wrong[0].name!r} holds in {counted(by_key[wrong[0].name])} something else than {wanted}"
    return MixedTypes(what, f"send {wanted} or null")


def _column(info: ColumnInfo, values: Sequence[Any]) -> Column:
    if info.categories is None:
        return Column(info.name, _numbers(info.name, values))
    # Codes into the trained categories; what training did not know counts as missing.
    code: dict[str | None, int] = {category: at for at, category in enumerate(info.categories)}
    return Column(info.name, np.array([code.get(_text(value), -1) for value in values], np.int32), info.categories)


def _numbers(name: str, values: Sequence[float | None]) -> Float32Array:
    try:
        with np.errstate(over="ignore"):
            numbers = np.array([np.nan if value is None else float(value) for value in values]).astype(np.float32)
    except OverflowError:
        numbers = np.array([np.inf], dtype=np.float32)  # a whole number that no float holds
    check_finite(numbers, name)
    return numbers


def _text(value: str | float | None) -> str | None:
    """As tables print categories: yes and no in small letters, whole numbers without a point."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else str(value)
    return None if value is None else str(value)
