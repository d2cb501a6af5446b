"""What the service takes and gives, as pydantic models of this very model's columns: checked, and shown by OpenAPI."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict, StrictBool, StrictFloat, StrictInt, StrictStr, TypeAdapter
from pydantic import create_model as create

from veilboost.infer.scores import ModelInfo, meaning

# A NUL at the end of a text would be lost on the way, and another person be meant.
Whole = Annotated[int, Strict(), Field(ge=-(2**63), lt=2**63)]
Text = Annotated[str, Strict(), Field(min_length=1, pattern="^[^\0]*$")]
Number = StrictInt | StrictFloat | StrictBool | None  # a column of yes and no was trained as numbers
Category = StrictStr | StrictInt | StrictFloat | StrictBool | None
REFERENCE = "#/components/schemas/{model}"


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
    """The model: what it predicts, and what a row of this party holds."""

    model: str
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
    """Whether the service runs (it answers), and which parties can be reached; null: it dials us."""

    status: Literal["ok", "degraded"]
    model: str
    waiting: int
    peers: dict[str, bool | None]


class Schema:
    """The rows and scores of one model."""

    def __init__(self, info: ModelInfo, most_rows: int) -> None:
        self.info, self.most_rows = info, most_rows
        taken = {column.name for column in info.columns}
        self.id_key = next(name for name in ("id", info.id_name, "row_id", "__id__") if name not in taken)
        kinds = [(column.name, Number if column.categories is None else Category) for column in info.columns]
        # Columns may have any name, so they are aliases.
        fields = {f"column_{at}": (kind, Field(alias=name)) for at, (name, kind) in enumerate(kinds)}
        row = _closed("Row", id=(Whole | Text, Field(alias=self.id_key)), **fields)
        listed: Any = list[row]
        self.rows: TypeAdapter[list[Any]] = TypeAdapter(listed)
        many = (listed, Field(min_length=1, max_length=most_rows))
        self._body = TypeAdapter[Any](_closed("OneRow", row=(row, ...)) | _closed("ManyRows", rows=many))
        entry = _closed("Score", id=(Whole | Text, ...), **_scores(info))
        self.answer = _closed("OneScore", model=(str, ...), prediction=(entry, ...)) | _closed(
            "ManyScores", model=(str, ...), predictions=(list[entry], ...)
        )

    def about(self) -> About:
        info = self.info
        return About(
            model=info.name,
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

    def body(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The JSON schema of a request, and of what it refers to."""
        schema = self._body.json_schema(ref_template=REFERENCE)
        return schema, schema.pop("$defs")


def _closed(name: str, **fields: Any) -> Any:
    """A model without other keys than these."""
    return create(name, __config__=ConfigDict(extra="forbid"), **fields)


def _scores(info: ModelInfo) -> dict[str, Any]:
    if info.objective != "multiclass":
        return {"score": (float, ...)}
    name = Literal[info.classes or ()]
    return {"scores": (dict[name, float], ...), "predicted": (name, ...)}
