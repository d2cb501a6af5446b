"""A party's table in memory: row ids, features, and for the active party labels and weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from veilboost.data.constraints import NO_CONSTRAINTS, Constraints
from veilboost.data.schema import did_you_mean
from veilboost.errors import MissingColumn, MixedTypes
from veilboost.types import AnyArray, BoolArray, Column, Float64Array, Int32Array, Int64Array

_AT_ONCE = 1 << 20  # rows for which random numbers are drawn at a time


@dataclass(frozen=True)
class PartyTable:
    """Rows in the order of `ids`; `ids` is an int64 or a unicode array without duplicates.

    Text labels become codes 0, 1, ... into the sorted `label_classes`; otherwise `label_classes`
    is None. `constraints` are those of its columns.
    """

    ids: AnyArray
    columns: tuple[Column, ...]
    label: Float64Array | None = None
    label_classes: tuple[str, ...] | None = None
    weight: Float64Array | None = None
    constraints: Constraints = NO_CONSTRAINTS

    @property
    def rows(self) -> int:
        return len(self.ids)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def mapped(self, function: Callable[[AnyArray], AnyArray]) -> PartyTable:
        """The table with the function applied to every array."""
        return replace(
            self,
            ids=function(self.ids),
            columns=tuple(replace(column, values=function(column.values)) for column in self.columns),
            label=None if self.label is None else function(self.label),
            weight=None if self.weight is None else function(self.weight),
        )

    def take(self, rows: AnyArray) -> PartyTable:
        """These rows (positions or a mask), in this order."""
        return self.mapped(lambda values: values[rows])

    def select(self, names: Sequence[str]) -> PartyTable:
        """The table with only these features, in this order."""
        by_name = {column.name: column for column in self.columns}
        missing = [name for name in names if name not in by_name]
        if missing:
            raise MissingColumn(f"there is no column {missing[0]!r}", did_you_mean(missing[0], by_name))
        return replace(self, columns=tuple(by_name[name] for name in names))

    def followed_by(self, other: PartyTable) -> PartyTable:
        """These rows, then those of another table with the same columns; rows are renumbered."""
        other = other.select(self.names)
        columns = tuple(_concatenate(a, b) for a, b in zip(self.columns, other.columns, strict=True))
        label = weight = None
        if self.label is not None and other.label is not None:
            label = np.concatenate((self.label, other.label))
        if self.weight is not None or other.weight is not None:
            weight = np.concatenate([np.ones(t.rows) if t.weight is None else t.weight for t in (self, other)])
        return PartyTable(np.arange(self.rows + other.rows), columns, label, self.label_classes, weight)

    def without_label(self) -> PartyTable:
        return replace(self, label=None, label_classes=None, weight=None)

    def sorted_by_id(self) -> PartyTable:
        """The table in canonical row order, so that results do not depend on the order of the source."""
        order = id_order(self.ids)
        if np.array_equal(order, np.arange(len(order))):
            return self
        return self.take(order)


def id_order(ids: AnyArray) -> Int64Array:
    """The canonical order of ids: shorter texts first, equal lengths as text; numbers are ordered as their digits.

    So a number and its text have the same position, and numbers that are not negative are ordered by size.
    """
    if ids.dtype.kind == "i" and not (ids < 0).any():
        return np.argsort(ids, kind="stable")
    texts = ids.astype(np.str_)
    return np.lexsort((texts, np.char.str_len(texts)))


def _concatenate(first: Column, second: Column) -> Column:
    if (first.categories is None) != (second.categories is None):
        raise MixedTypes(f"column {first.name!r} holds numbers in one table and categories in the other")
    if first.categories is None or second.categories is None:
        return Column(first.name, np.concatenate((first.values, second.values)))
    known = tuple(sorted({*first.categories, *second.categories}))
    code = {category: at for at, category in enumerate(known)}
    codes: list[Int32Array] = []
    for column, categories in ((first, first.categories), (second, second.categories)):
        table = np.array([code[category] for category in categories] + [-1], dtype=np.int32)
        codes.append(table[column.values])  # the last entry maps the missing code -1
    return Column(first.name, np.concatenate(codes), known)


def drawn_rows(ids: AnyArray, share: float, random_state: int) -> BoolArray:
    """Sample about this share of the rows for validation, by id, so that the row order does not matter."""
    found = np.zeros(len(ids), dtype=np.bool_)
    found[id_order(ids)[drawn_places(len(ids), share, random_state)]] = True
    return found


def drawn_places(rows: int, share: float, random_state: int) -> BoolArray:
    """The same sample for rows in canonical order."""
    drawn = np.empty(rows, dtype=np.bool_)
    random = np.random.Generator(np.random.PCG64((random_state, 1)))
    for first in range(0, rows, _AT_ONCE):
        part = drawn[first : first + _AT_ONCE]
        part[:] = random.random(len(part)) < share
    return drawn
