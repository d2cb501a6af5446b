"""What several protocols have to say of themselves, in the same words."""

from __future__ import annotations

from veilboost.privacy.statement import Protection, Status

ROWS_TOGETHER = Protection(
    victim="active",
    data="labels, by which rows are together",
    adversary="every passive party",
    status=Status.BROKEN,
    why="every node's rows are told in the clear, and rows of a leaf have similar labels: a party that "
    "knows a few labels infers most others",
)

EXACT_SUMS_OF_FEW_ROWS = Protection(
    victim="passive",
    data="features, few rows",
    adversary="the active party",
    status=Status.BROKEN,
    why="with ten rows or fewer to every sum of one bin, over all nodes and trees, linear programming and the "
    "sides of winning cuts recover most rows' bins",
)
