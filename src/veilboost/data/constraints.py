"""Constraints of a party's columns, by name: directions of predictions, and sets of columns that may interact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from veilboost.errors import UnsupportedCombination


@dataclass(frozen=True)
class Constraints:
    """The constraints of some columns.

    `monotone`: the direction in which predictions may depend on a column, 1 or -1. `sets`: by name, the columns of
    each set; sets of the same name at several parties are one set. None: the party declares no sets.
    """

    monotone: Mapping[str, int] = field(default_factory=dict[str, int])
    sets: Mapping[str, tuple[str, ...]] | None = None

    def __bool__(self) -> bool:
        return any(self.monotone.values()) or self.sets is not None

    @property
    def columns(self) -> set[str]:
        """The columns that are named."""
        return set(self.monotone).union(*(self.sets or {}).values())

    def only(self, names: set[str]) -> Constraints:
        """What concerns these columns. A party whose columns are in no set declares sets all the same."""
        sets = None
        if self.sets is not None:
            own = {name: tuple(column for column in columns if column in names) for name, columns in self.sets.items()}
            sets = {name: columns for name, columns in own.items() if columns}
        return Constraints({name: way for name, way in self.monotone.items() if name in names}, sets)

    def joined(self, other: Constraints) -> Constraints:
        """These constraints and those of `other`."""
        for name in self.monotone.keys() & other.monotone.keys():
            if self.monotone[name] != other.monotone[name]:
                raise UnsupportedCombination(
                    "monotone_constraints of the job and of the table give a column two directions",
                    "change or remove one of them",
                )
        sets = None
        if self.sets is not None or other.sets is not None:
            first, second = self.sets or {}, other.sets or {}
            sets = {
                name: tuple(dict.fromkeys((*first.get(name, ()), *second.get(name, ()))))
                for name in dict.fromkeys((*first, *second))
            }
        return Constraints({**self.monotone, **other.monotone}, sets)


NO_CONSTRAINTS = Constraints()
