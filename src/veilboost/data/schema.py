"""The selection of columns of a source, and input validation.

Every error has a code, names the column and reports counts, but never shows a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from veilboost.config import OBJECTIVE_ALIASES, OBJECTIVES
from veilboost.errors import (
    ConstantColumn,
    DuplicateColumns,
    DuplicateIds,
    EmptyColumn,
    EmptyTable,
    IdIsFeature,
    InfiniteValues,
    InvalidParameter,
    LabelNotANumber,
    LabelOutOfRange,
    MissingColumn,
    MissingLabel,
    MixedTypes,
    UnsupportedCombination,
    VeilBoostError,
)
from veilboost.fields import closest
from veilboost.types import AnyArray, BoolArray, Column, Float64Array

MOST_INFERRED_CLASSES = 100


@dataclass(frozen=True)
class SchemaRules:
    """How to treat columns that cannot split anything.

    Parameters
    ----------
    constant : {"error", "drop", "keep"}
        For columns with one value in every row and for columns without any value. Use "error" or "drop" for
        training and "keep" for prediction, where a few rows may well have equal values.
    """

    constant: Literal["error", "drop", "keep"] = "error"

    def __post_init__(self) -> None:
        if self.constant not in {"error", "drop", "keep"}:
            raise InvalidParameter(
                f"constant={self.constant!r} is not one of error, drop, keep", "choose error, drop or keep"
            )


STRICT = SchemaRules()


def count(number: int, noun: str) -> str:
    """`3 rows`, `1 row`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _labels_are(number: int) -> str:
    return f"{number} label is" if number == 1 else f"{number} labels are"


def check_names(names: Sequence[str]) -> None:
    """Refuse a table in which two columns have the same name."""
    first: dict[str, int] = {}
    for position, name in enumerate(names, start=1):
        if name in first:
            # By position: without a header line, the names of a csv file are the values of its first record.
            raise DuplicateColumns(f"columns {first[name]} and {position} have the same name")
        first[name] = position


def check_roles(selection: Selection) -> None:
    """Refuse columns that have two roles."""
    raise_first(role_errors(selection))


def role_errors(selection: Selection) -> Iterator[VeilBoostError]:
    """An error for every column that has two roles."""
    role_of: dict[str, str] = {}
    for role, name in selection.roles.items():
        if name in role_of:
            yield UnsupportedCombination(
                f"one column is named as {role_of[name]} and as {role}", f"name another column as {role}"
            )
        role_of[name] = role
    seen: set[str] = set()
    for name in selection.features or ():
        if name in seen:
            yield DuplicateColumns(f"feature {name!r} is named twice", "name every feature once")
        elif name == selection.id:
            yield IdIsFeature(f"column {name!r} is both the id and a feature")
        elif name in role_of:
            role = role_of[name]
            yield UnsupportedCombination(f"the {role} column is also a feature", f"take the {role} out of the features")
        seen.add(name)


def check_present(names: Sequence[str], selection: Selection) -> None:
    """Refuse a selection that names a missing column."""
    raise_first(absence_errors(names, selection))
    raise_first(category_errors(selection))


def absence_errors(names: Iterable[str], selection: Selection) -> Iterator[VeilBoostError]:
    """An error for every selected column that is not among the names of a source."""
    there = set(names)
    if selection.label is not None and selection.label not in there:
        yield MissingLabel(f"there is no label column {selection.label!r}", did_you_mean(selection.label, there))
    roles = [(role, name) for role, name in selection.roles.items() if role != "label"]
    for role, name in (*roles, *(("feature", feature) for feature in selection.features or ())):
        if name not in there:
            yield MissingColumn(f"there is no {role} column {name!r}", did_you_mean(name, there))


def category_errors(selection: Selection) -> Iterator[VeilBoostError]:
    """An error for every column that is declared categorical and is not a feature."""
    features = selection.features or ()
    for name in sorted(selection.categorical.difference(features)):
        yield MissingColumn(
            f"column {name!r} is declared categorical but is not a feature", did_you_mean(name, features)
        )


def raise_first(errors: Iterable[VeilBoostError]) -> None:
    """Raise the first of these errors, if there is one."""
    for error in errors:
        raise error


def did_you_mean(name: str, there: Iterable[str]) -> str | None:
    """A column of a similar name. Other names are not listed: without a header line they are somebody's values."""
    close = closest(name, there)
    return None if close is None else f"did you mean {close!r}?"


def check_size(rows: int, features: int, has_label: bool) -> None:
    """Refuse a table without rows, or without both a label and features."""
    if rows == 0:
        raise EmptyTable("the table has no rows")
    if features == 0 and not has_label:
        raise EmptyTable("the table has no label and no feature")


def check_ids(ids: AnyArray, name: str) -> None:
    """Refuse ids that repeat."""
    repeats = len(ids) - len(np.unique(ids))
    if repeats:
        raise DuplicateIds(f"id column {name!r} repeats an id in {count(repeats, 'row')}")


def mixed(name: str, has_role: bool) -> MixedTypes:
    """The error for a column of numbers and text; a column with a role cannot be declared categorical."""
    fix = "make the column all numbers or all text" if has_role else None
    return MixedTypes(f"column {name!r} mixes kinds of values, such as numbers and text", fix)


def check_finite(values: AnyArray, name: str) -> None:
    """Refuse infinite numbers, including numbers that are too large for float32."""
    infinite = int(np.isinf(values).sum())
    if infinite:
        raise InfiniteValues(f"column {name!r} is infinite, or too large for float32, in {count(infinite, 'row')}")


def check_weight(weight: Float64Array, name: str) -> None:
    """Refuse weights that are missing, infinite, negative or all zero."""
    bad = int((~np.isfinite(weight)).sum())
    if bad:
        raise InfiniteValues(
            f"weight column {name!r} is missing or infinite in {count(bad, 'row')}",
            "give every row a finite weight",
        )
    negative = int((weight < 0).sum())
    fix = "give weights of zero or more, not all zero"
    if negative:
        raise InvalidParameter(f"the weight column is negative in {count(negative, 'row')}", fix)
    if not weight.any():
        raise InvalidParameter("the weight column is zero in every row", fix)


def check_columns(columns: Iterable[Column], rules: SchemaRules = STRICT) -> tuple[Column, ...]:
    """The columns to keep, or an error, according to the rules.

    A column with one value and some missing values is not constant: present against missing is a split.
    """
    kept: list[Column] = []
    for column in columns:
        fault = column_fault(column)
        if fault is None or rules.constant == "keep":
            kept.append(column)
        elif rules.constant == "error":
            raise fault
    return tuple(kept)


def column_fault(column: Column) -> ConstantColumn | EmptyColumn | None:
    """Why no split of this column can separate rows, if so."""
    values = column.values
    missing: BoolArray = values < 0 if column.categories is not None else np.isnan(values)
    rows = len(values)
    if missing.all():
        return EmptyColumn(f"column {column.name!r} is missing in all of {count(rows, 'row')}")
    # A single row cannot show whether a column varies.
    if rows > 1 and bool((values == values[0]).all()):
        return ConstantColumn(f"column {column.name!r} has the same value in all of {count(rows, 'row')}")
    return None


def infer_objective(label: Float64Array, classes: tuple[str, ...] | None = None) -> str:
    """Infer the objective from the labels, which are codes of `classes` if they were text.

    "binary" for the two values 0 and 1 or for up to two text classes, "multiclass" for more text classes or for
    integers 0..K-1 with 3 to 100 classes, every one present, otherwise "regression".
    """
    if classes is not None:
        return "multiclass" if len(classes) > 2 else "binary"
    values = np.unique(label)
    found = len(values)
    if not 2 <= found <= MOST_INFERRED_CLASSES or not np.array_equal(values, np.arange(found)):
        return "regression"
    return "binary" if found == 2 else "multiclass"


def check_labels(label: Float64Array, objective: str, classes: tuple[str, ...] | None = None) -> None:
    """Refuse labels that do not fit the objective; they are codes of `classes` if they were text.

    Binary labels are exactly 0 and 1; multiclass labels are 0..K-1 with every class present; a Poisson label is not
    negative; no label is missing or infinite. "auto" checks against the result of `infer_objective`.
    """
    objective = OBJECTIVE_ALIASES.get(objective, objective)
    if objective not in OBJECTIVES:
        raise InvalidParameter(
            f"objective={objective!r} is not one of {', '.join(OBJECTIVES)}", "set objective to one of these"
        )
    check_size(len(label), 0, has_label=True)
    if objective == "auto":
        objective = infer_objective(label, classes)
    check_label_values(label, objective, classes)
    if objective == "binary" and len(np.unique(label)) < 2:
        raise LabelOutOfRange("every label is of the same class, and binary needs both", "give rows of both classes")
    if objective == "multiclass":
        _check_multiclass(label, classes)


def check_label_values(label: Float64Array, objective: str, classes: tuple[str, ...] | None = None) -> None:
    """Refuse labels for which the loss is not defined. Some classes may be absent: other participants may have them."""
    check_label_present(label, None)
    infinite = int(np.isinf(label).sum())
    if infinite:
        raise LabelOutOfRange(f"{_labels_are(infinite)} infinite", "drop these rows")
    if objective not in {"binary", "multiclass"} and classes is not None:
        raise LabelOutOfRange(f"the labels are text, and {objective} predicts numbers")
    if objective in {"poisson", "tweedie"} and (label < 0).any():
        predicted = "counts" if objective == "poisson" else "amounts of 0 or more"
        raise LabelOutOfRange(f"{_labels_are(int((label < 0).sum()))} negative, and {objective} predicts {predicted}")
    if objective == "gamma" and (label <= 0).any():
        raise LabelOutOfRange(f"{_labels_are(int((label <= 0).sum()))} not above 0, and gamma predicts such amounts")
    other = int(((label != 0) & (label != 1)).sum()) if objective == "binary" else 0
    if other:
        raise LabelOutOfRange(f"{_labels_are(other)} neither 0 nor 1, and binary needs exactly these")
    wrong = int(((label < 0) | (label != np.floor(label))).sum()) if objective == "multiclass" else 0
    if wrong:
        raise LabelOutOfRange(f"{_labels_are(wrong)} negative or not whole, and multiclass needs 0, 1, ..., K-1")


def check_label_present(label: Float64Array, name: str | None) -> None:
    """Refuse rows without a label."""
    missing = int(np.isnan(label).sum())
    if missing:
        what = "the label" if name is None else f"label column {name!r}"
        raise LabelNotANumber(f"{what} is missing in {count(missing, 'row')}")


def _check_multiclass(label: Float64Array, classes: tuple[str, ...] | None) -> None:
    present = len(np.unique(label))
    expected = int(label.max()) + 1 if classes is None else len(classes)
    if present < 2:
        raise LabelOutOfRange("every label is of the same class", "give rows of two or more classes")
    if present != expected:
        # The expected number would reveal the largest label, so only the present classes are counted.
        raise LabelOutOfRange(
            f"the labels hold {present} classes, which are not 0, 1, ..., {present - 1}",
            "number the classes 0, 1, ... without gaps, or give them as text",
        )


@dataclass(frozen=True)
class Selection:
    """The columns that the caller selects. `features` is None for every column without another role."""

    id: str | None = None
    label: str | None = None
    weight: str | None = None
    features: tuple[str, ...] | None = None
    categorical: frozenset[str] = frozenset()
    missing_values: tuple[str, ...] = ()  # texts and numbers that stand for missing values

    @property
    def roles(self) -> dict[str, str]:
        """Role to column name, for the roles that are set."""
        named = {"id": self.id, "label": self.label, "weight": self.weight}
        return {role: name for role, name in named.items() if name is not None}

    @property
    def spelled(self) -> frozenset[str]:
        """Columns that must be read as text where types are inferred (csv): ids and declared categories."""
        return self.categorical if self.id is None else self.categorical | {self.id}

    def choose(self, names: Sequence[str]) -> list[str]:
        """The selected names among those of a source, so that only these are read."""
        if self.features is None:
            return list(names)
        wanted = {*self.features, *self.roles.values()}
        return [name for name in names if name in wanted]
