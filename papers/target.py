"""What is reproduced: a table or a figure, what the paper prints there, and how to judge what we measure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from papers.context import Context

Row = Mapping[str, Any]  # one line of a table, or the coordinates or values of a cell: what JSON can hold
Holds = Literal["yes", "partly", "no", "open"]  # open: nothing was measured that could tell


@dataclass(frozen=True)
class Cell:
    """One measurement. `key` names it (method, data, seed, ...); `seconds` is about what it takes on two cores."""

    key: Row
    measure: Callable[[], Row]
    seconds: float = 1.0


@dataclass(frozen=True)
class Claim:
    """The row of prose: what the paper reports, what was measured, whether the claim holds, and why (not)."""

    reported: str
    measured: str
    holds: Holds
    why: str


@dataclass(frozen=True)
class Target:
    """A table or figure of a paper.

    `sets` are the data sets it wants, by the names of their files; `published` are the numbers that the paper prints,
    typed in. `cells` lists what is to be measured, with the data sets at hand. `table` makes lines of a table out of
    measured cells (each its key and its values in one), with the published number beside ours. `claim` and `plot` (an
    SVG) read these lines. `group` is what several targets can be asked for by together ("appendix-h").
    """

    paper: str
    name: str
    title: str
    sets: tuple[str, ...]
    published: tuple[Row, ...]
    cells: Callable[[Context], Sequence[Cell]]
    table: Callable[[Sequence[Row]], Sequence[Row]]
    claim: Callable[[Sequence[Row]], Claim]
    plot: Callable[[Sequence[Row]], str]
    group: str = ""
