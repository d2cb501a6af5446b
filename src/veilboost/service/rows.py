"""Requests and responses of the service: pydantic models of the model's columns, and the validation of requests.

The OpenAPI document shows the models. Errors name columns and counts, never a value.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NoReturn, cast, get_args

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    Strict,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    TypeAdapter,
    ValidationError,
)
from pydantic import create_model as create
from pydantic_core import ErrorDetails

from veilboost.align.ids import canonical_ids
from veilboost.data.schema import check_finite, count
from veilboost.data.table import PartyTable
from veilboost.errors import (
    DuplicateColumns,
    EmptyTable,
    InvalidParameter,
    MalformedMessage,
    MissingColumn,
    MissingId,
    MixedTypes,
    OversizedMessage,
    VeilBoostError,
)
from veilboost.infer.scores import ModelInfo, meaning
from veilboost.model.share import ColumnInfo
from veilboost.party.deployments import Unknown
from veilboost.types import Column, Float32Array

# A NUL at the end of a text would be lost in transit, and the id would match another record.
Whole = Annotated[int, Strict(), Field(ge=-(2**63), lt=2**63)]
Text = Annotated[str, Strict(), Field(min_length=1, pattern="^[^\0]*$")]
Number = StrictInt | StrictFloat | StrictBool | None  # boolean columns are trained as numbers
Category = StrictStr | StrictInt | StrictFloat | StrictBool | None
REFERENCE = "#/components/schemas/{model}"
UNKNOWN = get_args(Unknown)
REASONS, MOST_REASONS = 4, 100  # reason codes of an explained row, unless the request says how many
UNKNOWN_ROWS = (
    "a row that a party does not know: `error` refuses the request, `skip` gives the row no score, `default` takes the "
    "direction of missing values at the nodes of that party"
)
REASONED = "the features that raised the score most, the strongest first; null if the row was skipped"
SHAPE = 'send {"row": {...}} or {"rows": [{...}, ...]}; GET /openapi.json describes a row'


class Refusal(BaseModel):
    """Why a request was refused."""

    code: str = Field(examples=["VB-1409"])
    what: str = Field(description="what is wrong")
    fix: str = Field(description="what to do")


class ColumnAbout(BaseModel):
    name: str
    kind: Literal["number", "category"]
    categories: list[str] | None


class About(BaseModel):
    """The model: what it predicts, and the columns of a row of this party."""

    model: str
    version: int
    objective: str
    score: str
    classes: list[str] | None
    party: str
    parties: list[str]
    protocol: str
    trees: int
    id: str
    columns: list[ColumnAbout]
    most_rows: int


class Health(BaseModel):
    """Whether the service runs (it answers), and which parties can be reached; null: the party dials this one."""

    status: Literal["ok", "degraded"]
    model: str
    waiting: int
    peers: dict[str, bool | None]


class Feature(BaseModel):
    """A feature of an explanation: a column of this party, or what another party shows of its columns."""

    name: str = Field(examples=["income", "shop#3", "shop"])
    party: str


class Schema:
    """The schemas of rows, scores and explanations of one model."""

    def __init__(self, info: ModelInfo, version: int, most_rows: int) -> None:
        self.info, self.version, self.most_rows = info, version, most_rows
        taken = {column.name for column in info.columns}
        self.id_key = next(name for name in ("id", info.id_name, "row_id", "__id__") if name not in taken)
        kinds = [(column.name, Number if column.categories is None else Category) for column in info.columns]
        # Columns may have any name, so names are aliases.
        fields = {f"column_{at}": (kind, Field(alias=name)) for at, (name, kind) in enumerate(kinds)}
        row = _closed("Row", id=(Whole | Text, Field(alias=self.id_key)), **fields)
        listed: Any = list[row]
        self.rows: TypeAdapter[list[Any]] = TypeAdapter(listed)
        self._row, self._listed = row, listed
        status = (str, Field(description="`known`, or the parties that do not know the row", examples=["known"]))
        score: dict[str, Any] = {"id": (Whole | Text, ...), **_scores(info), "status": status}
        entry = _closed("Score", **score, reasons=(list[str] | None, Field(None, description=REASONED)))
        explained = _closed(
            "Explained", **score, **_contributions(info), reasons=(list[str] | None, Field(description=REASONED))
        )
        model: dict[str, Any] = {"model": (str, ...), "version": (int, ...)}
        self.scores = _closed("OneScore", **model, prediction=(entry, ...)) | _closed(
            "ManyScores", **model, predictions=(list[entry], ...)
        )
        model["features"] = (list[Feature], ...)
        self.explanations = _closed("OneExplanation", **model, explanation=(explained, ...)) | _closed(
            "ManyExplanations", **model, explanations=(list[explained], ...)
        )

    def about(self) -> About:
        info = self.info
        return About(
            model=info.name,
            version=self.version,
            objective=info.objective,
            score=meaning(info),
            classes=None if info.classes is None else list(info.classes),
            party=info.party,
            parties=list(info.parties),
            protocol=info.protocol,
            trees=info.trees,
            id=self.id_key,
            columns=[
                ColumnAbout(
                    name=column.name,
                    kind="number" if column.categories is None else "category",
                    categories=None if column.categories is None else list(column.categories),
                )
                for column in info.columns
            ],
            most_rows=self.most_rows,
        )

    def body(self, one: str, many: str, reasons: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """The JSON schema of a request, under these names, and the definitions that it refers to."""
        about = "number of reason codes of a row; the other parties must allow explanations"
        options = {
            "unknown": (Unknown, Field("error", description=UNKNOWN_ROWS)),
            "reasons": (int, Field(reasons, ge=0, le=MOST_REASONS, description=about)),
        }
        rows = (self._listed, Field(min_length=1, max_length=self.most_rows))
        bodies = _closed(one, row=(self._row, ...), **options) | _closed(many, rows=rows, **options)
        schema = TypeAdapter[Any](bodies).json_schema(ref_template=REFERENCE)
        return schema, schema.pop("$defs")


def _closed(name: str, **fields: Any) -> Any:
    """A model that forbids other keys."""
    return create(name, __config__=ConfigDict(extra="forbid"), **fields)


def _scores(info: ModelInfo) -> dict[str, Any]:
    """The scores of a row; null if it was skipped."""
    if info.objective != "multiclass":
        return {"score": (float | None, ...)}
    name: Any = Literal[info.classes or ()]
    return {"scores": (dict[name, float] | None, ...), "predicted": (name | None, ...)}


def _contributions(info: ModelInfo) -> dict[str, Any]:
    """The expected margin and the contributions of a row; null if it was skipped."""
    margin, by_feature = float, dict[str, float]
    if info.objective == "multiclass":
        name: Any = Literal[info.classes or ()]
        margin, by_feature = dict[name, float], dict[name, dict[str, float]]
    return {
        "expected": (margin | None, Field(description="the expected margin: the score before the link function")),
        "contributions": (
            by_feature | None,
            Field(description="of each feature; with `expected`, they add up to the margin"),
        ),
    }


@dataclass(frozen=True)
class ParsedRequest:
    """A valid request: ids as sent, and a table whose ids are texts in canonical form."""

    single: bool
    ids: tuple[Any, ...]
    table: PartyTable
    unknown: Unknown
    reasons: int


def read_request(body: bytes, schema: Schema, reasons: int = 0) -> ParsedRequest:
    """Parse a request. Raises a coded error unless it is exactly one row or a list of rows of this model.

    `reasons`: the number of reason codes, unless the request has another.
    """
    value = _parse(body)
    if not isinstance(value, dict):
        raise MalformedMessage("the body is not an object", SHAPE)
    parts = cast(dict[str, Any], value)
    unknown = parts.pop("unknown", UNKNOWN[0])
    if unknown not in UNKNOWN:
        raise InvalidParameter("unknown has none of its values", f"send one of {', '.join(UNKNOWN)}, or leave it out")
    reasons = parts.pop("reasons", reasons)
    if type(reasons) is not int or not 0 <= reasons <= MOST_REASONS:
        raise InvalidParameter(
            f"reasons is not a whole number from 0 to {MOST_REASONS}", "send how many reason codes a row should have"
        )
    if len(parts) != 1:
        raise MalformedMessage("the body does not have exactly one of the keys row and rows", SHAPE)
    (key, content), *_ = parts.items()
    if (key, type(content)) not in (("row", dict), ("rows", list)):
        raise MalformedMessage("the body contains neither a row nor a list of rows", SHAPE)
    sent = [content] if key == "row" else cast(list[Any], content)
    if not sent:
        raise EmptyTable("the request has no rows", "send at least one")
    most = schema.most_rows
    if len(sent) > most:
        raise OversizedMessage(f"{len(sent)} rows are more than the limit of {most}", "send them in several requests")
    try:
        rows = schema.rows.validate_python(sent)
    except ValidationError as error:
        raise _refusal(error, schema, len(sent)) from None  # its own text quotes the body
    ids = [row.id for row in rows]
    whole = sum(isinstance(id, int) for id in ids)
    if whole not in (0, len(ids)):
        what = f"of {len(ids)} ids {whole} are 64-bit whole numbers and {len(ids) - whole} are text"
        raise MixedTypes(what, "make them all the same kind")
    columns = tuple(
        _column(column, [getattr(row, f"column_{at}") for row in rows]) for at, column in enumerate(schema.info.columns)
    )
    canonical = canonical_ids(np.array(ids, dtype=np.int64 if whole else np.str_))
    table = PartyTable(np.array([id.decode() for id in canonical]), columns)
    return ParsedRequest(key == "row", tuple(ids), table, unknown, reasons)


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_constant)
    except VeilBoostError:
        raise
    except (ValueError, RecursionError):
        # The parser's own text may quote the body.
        raise MalformedMessage("the body is not JSON in UTF-8", SHAPE) from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise DuplicateColumns("an object in the body has a key twice", "send every key once")
    return found


def _no_constant(_: str) -> NoReturn:
    raise MalformedMessage(
        "the body contains NaN or Infinity, which JSON does not have", "send null for a missing value"
    )


def _refusal(error: ValidationError, schema: Schema, rows: int) -> VeilBoostError:
    """The error for invalid rows: first entries that are not rows, then ids, keys and values."""
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
        return MixedTypes(what, "send every id as text, or every id as a whole number")
    wrong = [column for column in columns if column.name in by_key]
    for column in wrong:
        if any(each["type"] == "missing" for each in by_key[column.name]):
            return MissingColumn(f"a row has no {column.name!r}", "send every column, with null for a missing value")
    unknown = len(by_key) - len(wrong)
    if unknown:
        what = f"a row has {count(unknown, 'key')} that the model does not know"
        return MissingColumn(what, "GET /v1/model lists the columns")
    wanted = "a number" if wrong[0].categories is None else "a text or a number"
    what = f"column {wrong[0].name!r} is not {wanted} in {counted(by_key[wrong[0].name])}"
    return MixedTypes(what, f"send {wanted} or null")


def _column(info: ColumnInfo, values: Sequence[Any]) -> Column:
    if info.categories is None:
        return Column(info.name, _numbers(info.name, values))
    # Codes of the trained categories; categories that did not occur in training count as missing.
    code: dict[str | None, int] = {category: at for at, category in enumerate(info.categories)}
    return Column(info.name, np.array([code.get(_text(value), -1) for value in values], np.int32), info.categories)


def _numbers(name: str, values: Sequence[float | None]) -> Float32Array:
    try:
        with np.errstate(over="ignore"):
            numbers = np.array([np.nan if value is None else float(value) for value in values]).astype(np.float32)
    except OverflowError:
        numbers = np.array([np.inf], dtype=np.float32)  # an integer that is too large for a float
    check_finite(numbers, name)
    return numbers


def _text(value: str | float | None) -> str | None:
    """Text as in tables of categories: lower-case true and false, integers without a decimal point."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else str(value)
    return None if value is None else str(value)
