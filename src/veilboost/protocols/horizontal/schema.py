"""Schemas of horizontally partitioned data: each participant describes its table, the server combines them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np

from veilboost.data.schema import MOST_INFERRED_CLASSES, check_label_values, infer_objective
from veilboost.data.table import PartyTable
from veilboost.errors import (
    LabelOutOfRange,
    MalformedMessage,
    MissingColumn,
    MissingLabel,
    MixedTypes,
    VeilBoostError,
)
from veilboost.model.share import ColumnInfo
from veilboost.types import Column, Float64Array, PartyName

SAME = "give every participant the same columns, with the same names, order and types"


@dataclass(frozen=True)
class Schema:
    """Columns in order, which of them have missing values, and the type of the labels.

    Attributes
    ----------
    classes
        Names of the label's classes if it is text, else None.
    objective
        The loss that the labels imply; "auto" if they are whole numbers that are not all classes of a loss.
    kinds
        The number of classes, if the labels are classes.
    """

    columns: tuple[ColumnInfo, ...]
    missing: tuple[bool, ...]
    classes: tuple[str, ...] | None
    objective: str
    kinds: int

    @property
    def trees_per_round(self) -> int:
        return self.kinds if self.objective == "multiclass" else 1

    def to_json(self) -> str:
        return json.dumps(
            {
                "names": [info.name for info in self.columns],
                "categories": [info.categories for info in self.columns],
                "missing": self.missing,
                "classes": self.classes,
                "objective": self.objective,
                "kinds": self.kinds,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        try:
            values = cast("dict[str, Any]", json.loads(text))
            names, lists = _texts(values["names"]), values["categories"]
            columns = tuple(
                ColumnInfo(name, None if found is None else _texts(found))
                for name, found in zip(names, lists, strict=True)
            )
            missing = tuple(bool(flag) for flag in values["missing"])
            classes = None if values["classes"] is None else _texts(values["classes"])
            made = cls(columns, missing, classes, str(values["objective"]), int(values["kinds"]))
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
            raise MalformedMessage("a schema cannot be read") from error
        if len(missing) != len(columns) or len(set(names)) != len(names) or made.kinds < 1:
            raise MalformedMessage("a schema is inconsistent")
        return made


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in cast("list[Any]", values)):
        raise ValueError("not a list of texts")
    return tuple(cast("list[str]", values))


def describe(table: PartyTable, objective: str) -> Schema:
    """Return the schema of a participant's table: names, types and categories, never a value of a row."""
    if table.label is None:
        raise MissingLabel("a participant has no labels", "name the label column in its [data] section")
    found = _implied(table.label, table.label_classes) if objective == "auto" else objective
    if table.label_classes is None or found != "binary":  # the codes of text are those of all participants together
        check_label_values(table.label, found, table.label_classes)
    kinds = len(table.label_classes) if table.label_classes is not None else int(table.label.max(initial=0.0)) + 1
    return Schema(
        columns=tuple(ColumnInfo(column.name, column.categories) for column in table.columns),
        missing=tuple(has_missing(column) for column in table.columns),
        classes=table.label_classes,
        objective=found,
        kinds=max(kinds, 1),
    )


def _implied(label: Float64Array, classes: tuple[str, ...] | None) -> str:
    """The loss that the labels imply; "auto" for some of the classes 0, 1, ...: other participants have the others."""
    found = infer_objective(label, classes)
    some = found == "regression" and np.isin(label, np.arange(MOST_INFERRED_CLASSES)).all()
    return "auto" if some else found


def has_missing(column: Column) -> bool:
    if column.categories is not None:
        return bool((column.values < 0).any())
    return bool(np.isnan(column.values).any())


def differences(schemas: Mapping[PartyName, Schema]) -> dict[PartyName, VeilBoostError]:
    """The participants whose columns or labels are not those of most participants, and how they differ."""
    forms = {party: _form(schema) for party, schema in schemas.items()}
    usual = Counter(forms.values()).most_common(1)[0][0]
    most = next(party for party, form in forms.items() if form == usual)
    found: dict[PartyName, VeilBoostError] = {}
    for party, form in forms.items():
        names, numeric, text = (mine == theirs for mine, theirs in zip(form, usual, strict=True))
        if not names:
            found[party] = MissingColumn(f"{party} has other columns than {most}, or in another order", SAME)
        elif not numeric:
            at = next(at for at, (mine, theirs) in enumerate(zip(form[1], usual[1], strict=True)) if mine != theirs)
            kinds = ("numbers", "categories") if form[1][at] else ("categories", "numbers")
            found[party] = MixedTypes(
                f"column {form[0][at]!r} holds {kinds[0]} at {party} and {kinds[1]} at {most}", SAME
            )
        elif not text:
            kinds = ("text", "numbers") if form[2] else ("numbers", "text")
            found[party] = LabelOutOfRange(
                f"labels are {kinds[0]} at {party} and {kinds[1]} at {most}", "use the same type at all participants"
            )
    return found


def _form(schema: Schema) -> tuple[tuple[str, ...], tuple[bool, ...], bool]:
    """What must be the same at all participants: names, which columns are numbers, and whether labels are text."""
    names = tuple(info.name for info in schema.columns)
    return names, tuple(info.categories is None for info in schema.columns), schema.classes is not None


def unify(schemas: Mapping[PartyName, Schema], objective: str) -> Schema:
    """Combine schemas. Columns must be the same; the union of categories and classes is sorted.

    Raises
    ------
    MissingColumn, MixedTypes
        The columns differ in name, order or type.
    LabelOutOfRange
        The labels are text at one participant and numbers at another, imply different losses, or do not fit the loss.
    """
    for error in differences(schemas).values():
        raise error
    first = next(iter(schemas.values()))
    everyone = list(schemas.values())
    classes = None
    if first.classes is not None:
        classes = tuple(sorted({name for schema in everyone for name in schema.classes or ()}))
    kinds = len(classes) if classes is not None else max(schema.kinds for schema in everyone)
    return Schema(
        columns=tuple(
            ColumnInfo(info.name, _union([schema.columns[at].categories for schema in everyone]))
            for at, info in enumerate(first.columns)
        ),
        missing=tuple(any(schema.missing[at] for schema in everyone) for at in range(len(first.columns))),
        classes=classes,
        objective=_objective(everyone, objective, kinds, classes),
        kinds=kinds,
    )


def _union(lists: Sequence[tuple[str, ...] | None]) -> tuple[str, ...] | None:
    if lists[0] is None:
        return None
    return tuple(sorted({name for categories in lists for name in categories or ()}))


def _objective(schemas: Sequence[Schema], wanted: str, kinds: int, classes: tuple[str, ...] | None) -> str:
    if wanted == "binary" and kinds > 2:
        raise LabelOutOfRange("there are more than two classes of labels", "set objective to multiclass")
    if wanted != "auto":
        return wanted
    if classes is not None:
        return "multiclass" if kinds > 2 else "binary"
    # A loss that `infer_objective` gives for the pooled labels, too.
    found = {schema.objective for schema in schemas} - {"auto"}
    whole = "regression" not in found and any(
        schema.kinds == kinds and schema.objective != "auto" for schema in schemas
    )
    if whole or (kinds == 2 and not found):
        return "binary" if kinds == 2 else "multiclass"
    if found <= {"regression"}:
        return "regression"
    raise LabelOutOfRange("the participants' labels imply different losses", "set objective under [training]")


def encoded_table(table: PartyTable, schema: Schema) -> tuple[tuple[Column, ...], Float64Array]:
    """Return a participant's columns and labels in the codes of the common schema."""
    own = {column.name: column for column in table.columns}
    columns = tuple(_recoded(own[info.name], info.categories) for info in schema.columns if info.name in own)
    if len(columns) != len(schema.columns) or table.label is None:
        raise MalformedMessage("the job has other columns than this participant")
    label = table.label
    if table.label_classes is not None and schema.classes is not None:
        label = _codes(table.label_classes, schema.classes).astype(np.float64)[label.astype(np.int64)]
    return columns, label


def _recoded(column: Column, categories: tuple[str, ...] | None) -> Column:
    if (column.categories is None) != (categories is None):
        raise MalformedMessage("a column of the job has another type than that of this participant")
    if column.categories is None or categories is None:
        return column
    codes = np.append(_codes(column.categories, categories), -1).astype(np.int32)
    return Column(column.name, codes[column.values], categories)  # the last entry is for the missing code -1


def _codes(own: Sequence[str], shared: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    place = {name: at for at, name in enumerate(shared)}
    if not set(own) <= set(place):
        raise MalformedMessage("the job omits categories of this participant")
    return np.array([place[name] for name in own], dtype=np.int64)
