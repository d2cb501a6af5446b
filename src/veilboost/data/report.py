"""What is wrong or unusual in a table, all in one report. It names columns and counts rows; it never shows a value."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from veilboost.data.categories import MAX_CATEGORIES, MIN_CATEGORY_ROWS, category_counts, frequent_codes
from veilboost.data.columns import NUMBER_PATTERN, Kind
from veilboost.data.schema import SchemaRules, column_fault, infer_objective, raise_first
from veilboost.data.table import PartyTable
from veilboost.errors import EmptyColumn, VeilBoostError
from veilboost.types import Column

_MANY_NUMBERS = 0.5  # the share of numbers from which a text column probably should be numeric


class DataWarning(UserWarning):
    """A table can be used, but something in it is unusual."""


@dataclass(frozen=True)
class Note:
    """Something unusual, and what to do. A warning probably is a mistake; a note says what training does."""

    level: Literal["warning", "note"]
    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.what}; {self.fix}"


def describe_columns(table: PartyTable) -> list[dict[str, Any]]:
    """The columns without their values: name, type, and the numbers of missing and of distinct values."""
    found: list[dict[str, Any]] = []
    for column in table.columns:
        values, text = np.asarray(column.values), column.categories is not None
        missing = values < 0 if text else np.isnan(values)
        about = {"missing": int(missing.sum()), "distinct": len(np.unique(values[~missing]))}
        found.append({"name": column.name, "type": "category" if text else "number", **about})
    return found


@dataclass(frozen=True)
class TableReport:
    """The result of `check_table`.

    Attributes
    ----------
    rows : int
        Number of rows; 0 if the source cannot be read.
    errors : tuple of VeilBoostError
        Everything that training refuses, in the order of the columns.
    notes : tuple of Note
        Everything that training accepts but that you should know.
    table : PartyTable or None
        The table, if there is no error.
    """

    rows: int = 0
    errors: tuple[VeilBoostError, ...] = ()
    notes: tuple[Note, ...] = ()
    table: PartyTable | None = None

    @property
    def usable(self) -> PartyTable:
        """The table; raises the first error if there is one."""
        raise_first(self.errors)
        if self.table is None:
            raise TypeError("a report without errors has a table")
        return self.table

    @property
    def objective(self) -> str | None:
        """The objective that the labels imply; None without labels."""
        if self.table is None or self.table.label is None:
            return None
        return infer_objective(self.table.label, self.table.label_classes)

    def to_dict(self) -> dict[str, Any]:
        """The report for JSON."""
        return {
            "usable": not self.errors,
            "rows": self.rows,
            "features": None if self.table is None else len(self.table.columns),
            "objective": self.objective,
            "errors": [{"code": each.code, "what": each.what, "fix": each.remedy} for each in self.errors],
            "warnings": [_plain(each) for each in self.notes if each.level == "warning"],
            "notes": [_plain(each) for each in self.notes if each.level == "note"],
        }

    def warn(self, party: str | None = None) -> None:
        """Emit every note as a `DataWarning`, and every error but the first, which `usable` raises."""
        for each in (*self.errors[1:], *self.notes):
            warnings.warn(f"{'' if party is None else f'{party}: '}{each}", DataWarning, stacklevel=2)


def _plain(note: Note) -> dict[str, str]:
    return {"what": note.what, "fix": note.fix}


def column_notes(
    column: Column, kind: Kind, rules: SchemaRules, declared: bool, max_categories: int = MAX_CATEGORIES
) -> Iterator[Note]:
    """Notes on a column that can be used. `kind` is that of the source; `declared`: it is declared categorical."""
    fault = column_fault(column)
    if isinstance(fault, EmptyColumn):
        yield Note("warning", fault.what, "training ignores it; leave it out")
    elif fault is not None and rules.constant == "drop":
        yield Note("note", fault.what, "training drops it")
    if kind is Kind.TIME and column.categories is None:
        yield Note(
            "note",
            f"column {column.name!r} holds dates or times",
            "training uses it as days, since 1970-01-01 (UTC) or midnight; compute a feature if you mean another one",
        )
    if column.categories is not None:
        yield from _category_notes(column, column.categories, kind, declared, max_categories)


def _category_notes(
    column: Column, categories: tuple[str, ...], kind: Kind, declared: bool, max_categories: int
) -> Iterator[Note]:
    counts = category_counts(column)
    if kind is Kind.TEXT and not declared:
        number = re.compile(NUMBER_PATTERN)
        rows = sum(int(rows) for text, rows in zip(categories, counts, strict=True) if number.match(text))
        if rows and rows >= _MANY_NUMBERS * counts.sum():
            yield Note(
                "warning",
                f"column {column.name!r} is text, but {rows} of {int(counts.sum())} values are numbers",
                "convert it to numbers, list other spellings in missing_values, or declare it categorical",
            )
    if len(categories) > max_categories:
        kept = len(frequent_codes(counts, max_categories))
        yield Note(
            "warning",
            f"column {column.name!r} has {len(categories)} categories, more than {max_categories}: training uses the "
            f"{kept} most frequent that have at least {MIN_CATEGORY_ROWS} rows, and treats the others as missing",
            "leave it out if it identifies rows, group its values, or raise max_categories",
        )
