"""Where a reproduction finds its data, and how much of it is to be done."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from papers.tables import load, sampled
from veilboost.data.table import PartyTable

# How the papers call the data sets, by the names of their files.
PAPER_NAMES = {
    "give_credit": "Credit 1",
    "default_credit": "Credit 2",
    "adult": "Adult",
    "bank": "Bank",
    "higgs46k": "Higgs",
    "nomao": "Nomao",
    "susy40k": "SUSY",
    "codrna": "Cod-rna",
    "diabetes": "Diabetes",
}


@dataclass(frozen=True)
class Context:
    """A folder of data sets (NAME.parquet with columns id and label), and whether fewer repetitions do."""

    data: Path
    quick: bool = False
    _loaded: dict[str, PartyTable] = field(default_factory=dict[str, PartyTable], repr=False, compare=False)

    def file(self, name: str) -> Path:
        return self.data / f"{name}.parquet"

    def at_hand(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if self.file(name).exists()]

    def missing(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if not self.file(name).exists()]

    def table(self, name: str, rows: int = 0) -> PartyTable:
        """A data set in the order of its ids, or a random sample of so many of its rows."""
        if name not in self._loaded:
            self._loaded[name] = load(self.file(name))
        return sampled(self._loaded[name], rows) if rows else self._loaded[name]
