"""When a claim holds: the rule of each target, written down before its run.

A rule turns the measured rows into amounts by which the claim is met, one for each case (a data set at a budget, a
pair of methods, ...). A case counts if its amount is not below minus the tolerance. The verdict is "yes" if all cases
count, "partly" if at least `partly` of them do, and "no" otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from papers.rows import Rows

Holds = Literal["yes", "partly", "no", "open"]  # open: nothing was measured that decides it


@dataclass(frozen=True)
class Rule:
    """`words` say what a case is and what is asked of it; `amounts` gives one number for each case."""

    words: str
    tolerance: float
    amounts: Callable[[Rows], Sequence[float]]
    partly: float = 0.5  # the least share of cases of a claim that holds partly

    def counted(self, rows: Rows) -> tuple[int, int]:
        """How many cases count, of how many."""
        found = self.amounts(rows)
        return sum(amount >= -self.tolerance for amount in found), len(found)

    def verdict(self, rows: Rows) -> Holds:
        counts, cases = self.counted(rows)
        if not cases:
            return "open"
        return "yes" if counts == cases else "partly" if counts >= self.partly * cases > 0 and counts else "no"

    @property
    def text(self) -> str:
        """The whole rule in words."""
        return f"{self.words} Tolerance {self.tolerance:g}. Yes: all cases; partly: at least {self.partly:.0%} of them."
