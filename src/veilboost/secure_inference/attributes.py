"""The directory of attributes, which defines the serial numbers (ELXGB 2.1: the authority marks each attribute).

An attribute with missing values has two numbers: one where missing counts as below every value and one where it counts
as above. The owner of a node uses the one that matches its direction of missing values. A column that is split one
category against the rest has separate numbers for every category.

Floats become integers in the same order, so that comparing encrypted integers is exactly comparing the floats.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np

from veilboost.errors import ForeignColumns, MalformedMessage, UnsupportedCombination
from veilboost.fixedpoint import to_ordered
from veilboost.model.share import ColumnInfo, ModelShare, SplitRecords
from veilboost.types import Column, Float32Array, Int64Array, PartyName

MISSING = 1 << 31  # above every value; negated, below every value
ONE = 1 << 30  # any other category; as large as an ordinary float's integer
MOST_NUMBERS = 1 << 16


def ordered(values: Float32Array) -> Int64Array:
    """x < y if and only if ordered(x) < ordered(y); both zeros are 0. Not for missing values."""
    found = to_ordered(values).astype(np.int64) - (1 << 31)
    return found + (found < 0)


def at_most(threshold: np.float32) -> int:
    """The largest integer that goes left by x < threshold (the paper compares u <= tau)."""
    return int(ordered(np.array([threshold], dtype=np.float32))[0]) - 1


@dataclass(frozen=True)
class Attribute:
    """A column as registered by its owner."""

    party: PartyName
    name: str
    categories: tuple[str, ...] | None = None
    one_hot: bool = False
    missing: bool = False


@dataclass(frozen=True)
class Number:
    """The meaning of one serial number."""

    attribute: int
    category: int | None
    missing_left: bool


def attributes_of(party: PartyName, columns: Sequence[Column], categories: str) -> tuple[Attribute, ...]:
    """The attributes that a party registers for its training columns; `categories` as in the job's parameters."""
    if categories == "sets" and any(column.categories is not None for column in columns):
        raise UnsupportedCombination(
            "a node of the encrypted model compares one number, not a set of categories",
            "train with categories='onehot' or 'ordinal'",
        )
    found: list[Attribute] = []
    for column in columns:
        coded = column.categories is not None
        missing = bool((column.values < 0).any() if coded else np.isnan(column.values).any())
        found.append(Attribute(party, column.name, column.categories, coded and categories == "onehot", missing))
    return tuple(found)


@dataclass(frozen=True)
class Directory:
    """All attributes, in the order of their numbers."""

    attributes: tuple[Attribute, ...]

    @cached_property
    def numbers(self) -> tuple[Number, ...]:
        """Entry k belongs to serial number k + 1."""
        found: list[Number] = []
        for at, attribute in enumerate(self.attributes):
            shares = range(len(attribute.categories or ())) if attribute.one_hot else (None,)
            for category in shares:
                found += [Number(at, category, left) for left in ((True, False) if attribute.missing else (False,))]
        return tuple(found)

    @property
    def size(self) -> int:
        """The paper's M."""
        return len(self.numbers)

    def nodes_of(self, party: PartyName, columns: Sequence[ColumnInfo], records: SplitRecords) -> list[tuple[int, int]]:
        """The serial number and threshold of every split record: left is u <= threshold."""
        place = {(a.party, a.name): at for at, a in enumerate(self.attributes)}
        serial = {number: k + 1 for k, number in enumerate(self.numbers)}
        found: list[tuple[int, int]] = []
        for record in range(records.count):
            rule = records.rule(record)
            at = place.get((party, columns[rule.feature].name))
            if at is None:
                raise ForeignColumns(f"a split of {party} uses a column that was not registered")
            category, threshold = None, at_most(rule.threshold)
            if rule.left_set is not None:
                if len(rule.left_set) != 1 or not self.attributes[at].one_hot:
                    raise UnsupportedCombination("a split uses a set of categories", "train with categories='onehot'")
                category, threshold = rule.left_set[0], ONE // 2  # the category itself is 0, the others are ONE
            number = serial.get(Number(at, category, rule.default_left))
            if number is None:
                raise ForeignColumns(f"a split of {party} uses a column that was registered with another type")
            found.append((number, threshold))
        return found

    def rows_of(self, columns: Mapping[str, Column], rows: int) -> Int64Array:
        """A user's rows as integers, (rows, size); categories that did not occur in training count as missing."""
        absent = sorted({a.name for a in self.attributes} - set(columns))
        if absent:
            raise ForeignColumns(f"the rows lack {', '.join(absent)}")
        values = np.empty((rows, self.size), dtype=np.int64)
        floats = [
            ModelShare(a.party, (ColumnInfo(a.name, a.categories),), SplitRecords.of({})).encode([columns[a.name]])[0]
            for a in self.attributes
        ]
        for k, number in enumerate(self.numbers):
            own = floats[number.attribute]
            missing = np.isnan(own)
            known = np.where(missing, np.float32(0), own)
            integers = ordered(known) if number.category is None else np.where(known == number.category, 0, ONE)
            values[:, k] = np.where(missing, -MISSING if number.missing_left else MISSING, integers)
        return values

    def to_json(self) -> str:
        return json.dumps([asdict(attribute) for attribute in self.attributes])

    @staticmethod
    def from_json(text: str) -> Directory:
        try:
            entries = cast("list[dict[str, Any]]", json.loads(text))
            found = tuple(_attribute(entry) for entry in entries)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise MalformedMessage("a directory of attributes cannot be read") from error
        made = Directory(found)
        if len({(a.party, a.name) for a in found}) != len(found) or not 0 < made.size <= MOST_NUMBERS:
            raise MalformedMessage("a directory of attributes is empty, too long or repeats an attribute")
        return made


def _attribute(entry: dict[str, Any]) -> Attribute:
    listed = entry["categories"]
    categories = None if listed is None else tuple(str(name) for name in cast("list[Any]", listed))
    made = Attribute(
        str(entry["party"]), str(entry["name"]), categories, bool(entry["one_hot"]), bool(entry["missing"])
    )
    if set(entry) != {"party", "name", "categories", "one_hot", "missing"} or (made.one_hot and not categories):
        raise ValueError("not an attribute")
    return made
