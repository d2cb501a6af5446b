"""What is reproduced: the papers, their tables and figures, what is printed there, and how to judge what we measure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from papers.fingerprint import Probe, digest, digest_of_table
from papers.rows import Line, Row, Rows
from papers.rules import Rule
from papers.tables import load, sampled
from veilboost.data.table import PartyTable
from veilboost.errors import InvalidParameter

PAPERS = {  # how we call each, in folders and in headings
    "maskedxgboost": "MaskedXGBoost",
    "fedxgboost": "FedXGBoost",
    "elxgb": "ELXGB",
    "mal": "MAL",
}
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


DRAWINGS = 3  # of noise and of rows, for accuracy and attacks; seconds and bytes are measured once


@dataclass(frozen=True)
class Context:
    """A folder of data sets (NAME.parquet with columns id and label), and whether fewer repetitions do."""

    data: Path
    quick: bool = False
    _loaded: dict[str, PartyTable] = field(default_factory=dict[str, PartyTable], repr=False, compare=False)
    _digests: dict[str, str] = field(default_factory=dict[str, str], repr=False, compare=False)

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

    def fingerprint(self, cell: Cell) -> str:
        """Of everything that decides a cell's result: its small run, and the rows of its data set."""
        name = str(cell.key.get("data", ""))
        if name not in self._digests:
            self._digests[name] = digest_of_table(self.table(name)) if name and self.file(name).exists() else ""
        return digest([cell.probe(), self._digests[name]])

    @property
    def seeds(self) -> range:
        """Of the drawings of a cell with noise."""
        return range(1 if self.quick else DRAWINGS)


@dataclass(frozen=True)
class Cell:
    """One measurement. `key` names it (method, data, seed, ...); `probe` is a small run with fixed noise, whose result
    changes when that of `measure` would; `seconds` is a first guess of what it takes, before any was measured."""

    key: Row
    measure: Callable[[], Row]
    probe: Probe
    seconds: float = 1.0


@dataclass(frozen=True)
class Near:
    """How far a second measurement may be from the first."""

    absolute: float = 0.0
    relative: float = 0.0

    def of(self, value: float) -> float:
        return self.absolute + self.relative * abs(value)


EXACT = Near(1e-9)
SECONDS = Near(0.05, 1.0)  # twice as long, on another machine or a busy one


@dataclass(frozen=True)
class Claim:
    """The row of prose: what the paper reports, what was measured, and which measured quantities explain it."""

    reported: str
    measured: str
    why: str


@dataclass(frozen=True)
class Target:
    """A table or figure of a paper.

    `sets` are the data sets it wants, by the names of their files; `published` are the numbers that the paper prints,
    typed in. `cells` lists what is to be measured, with those of the data sets that are at hand. `table` adds to the
    lines over all seeds what is to stand there too, as the published numbers. `rule` decides whether the claim holds.
    `claim` and `plot` (an SVG, given how its title begins) read these lines. `repeats` are the values that a second
    measurement must give again. `group` is what several targets can be asked for by together ("appendix-h"). `reads` is
    another target of the paper whose cells are this one's too: what is measured for one of them is not measured again.
    """

    paper: str
    name: str
    title: str
    sets: tuple[str, ...]
    published: tuple[Row, ...]
    cells: Callable[[Context, Sequence[str]], Sequence[Cell]]
    table: Callable[[list[Line]], Rows]
    rule: Rule
    claim: Callable[[Rows], Claim]
    plot: Callable[[Rows, str], str]
    repeats: Mapping[str, Near]
    group: str = ""
    reads: str = ""

    def planned(self, context: Context) -> Sequence[Cell]:
        return self.cells(context, context.at_hand(self.sets))

    def drawn(self, rows: Rows) -> str:
        """The plot, whose title begins as "MAL, Table 3"."""
        return self.plot(rows, f"{PAPERS.get(self.paper, self.paper)}, {self.name.replace('-', ' ').title()}")


def targets_of(paper: str) -> tuple[Target, ...]:
    """All targets of a paper, in the paper's order: `TARGETS` of its package, which loads only when it is asked for."""
    if paper not in PAPERS:
        raise InvalidParameter(f"there is no paper {paper!r}", f"choose one of {', '.join(PAPERS)}")
    return import_module(f"papers.{paper}").TARGETS


def targets_named(paper: str, name: str) -> tuple[Target, ...]:
    """The target of this name, or all targets of the group of this name."""
    every = targets_of(paper)
    found = tuple(target for target in every if name in (target.name, target.group))
    if not found:
        known = dict.fromkeys(name for target in every for name in (target.name, target.group) if name)
        raise InvalidParameter(f"{paper} has no target {name!r}", f"choose one of {', '.join(known)}")
    return found
