"""Which columns of a source are wanted, and as what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Selection:
    """The caller's names. `features` is None for every column without another role."""

    id: str | None = None
    label: str | None = None
    weight: str | None = None
    features: tuple[str, ...] | None = None
    categorical: frozenset[str] = frozenset()

    @property
    def roles(self) -> dict[str, str]:
        """Role to column name, for those that are named."""
        named = {"id": self.id, "label": self.label, "weight": self.weight}
        return {role: name for role, name in named.items() if name is not None}

    @property
    def spelled(self) -> frozenset[str]:
        """Columns whose spelling matters where types are only guessed (csv): ids and declared categories."""
        return self.categorical if self.id is None else self.categorical | {self.id}

    def choose(self, names: Sequence[str]) -> list[str]:
        """The wanted ones among the names of a source, so that nothing else need be read."""
        if self.features is None:
            return list(names)
        wanted = {*self.features, *self.roles.values()}
        return [name for name in names if name in wanted]
