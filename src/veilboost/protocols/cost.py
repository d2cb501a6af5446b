"""What a protocol's work is made of and how much memory it needs; `veilboost plan` predicts jobs from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from veilboost.errors import InvalidParameter

Units = Mapping[str, float]  # how often something is done, by name

# The smaller child's share of its parent's rows: what is summed below the root, siblings being derived. The first tree
# finds splits that halve the rows; what is left to later ones sets fewer rows apart.
FIRST_SHARE, LATER_SHARE = 0.42, 0.33
FEWEST_ROWS = 16  # a node with fewer is hardly ever split


@dataclass(frozen=True)
class PlannedJob:
    """Columns of each party: the active one first; where rows are in different hands, the same at each participant."""

    rows: int
    features: tuple[int, ...]
    trees: int = 100
    depth: int = 6
    bins: int = 64
    participants: int = 0  # 0: columns are in different hands

    def __post_init__(self) -> None:
        least = {"rows": 2, "trees": 1, "depth": 1, "bins": 2}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise InvalidParameter(f"{name} = {getattr(self, name)} is less than {low}")
        if not self.features or any(count < 0 for count in self.features) or not any(self.features):
            raise InvalidParameter("there are no columns", "say how many each party has, as --features 40,60")
        if not self.participants and len(self.features) < 2:
            raise InvalidParameter("one party needs nobody to train with", "name two parties or more")

    @property
    def passive(self) -> tuple[int, ...]:
        return self.features[1:]


@dataclass(frozen=True)
class Shape:
    """A typical tree: for each level, how many nodes it has, how many are summed, and how many rows stand in these."""

    nodes: tuple[int, ...]
    built: tuple[int, ...]
    built_rows: tuple[float, ...]


def tree_shape(rows: int, depth: int, share: float = LATER_SHARE) -> Shape:
    """Every node splits while it has rows enough; below the root the smaller child of two is summed."""
    nodes = [min(1 << level, max(1, rows // FEWEST_ROWS)) for level in range(depth)]
    built = [1, *(max(1, count // 2) for count in nodes[1:])]
    return Shape(tuple(nodes), tuple(built), (float(rows), *(share * rows for _ in nodes[1:])))


# --- time and bytes ---------------------------------------------------------------------------------------------

# Units that `plan.predict` counts for every vertical protocol.
COMMON_A = ("start", "trees", "levels", "rows", "row_levels", "beyond", "cells_a", "slots_a")
ALL_NODES_A = ("start", "trees", "levels", "rows", "row_levels", "beyond", "all_cells_a", "all_slots_a")
COMMON_P = ("start", "trees", "levels", "row_levels", "beyond")
SIDES = ("start", "trees", "levels", "row_levels")  # bytes that tell rows where they went
ONCE = ("start", "table_a", "table_p", "sorted_a", "sorted_p", "beyond_a", "beyond_p")


@dataclass(frozen=True)
class Cost:
    """Units that decide the seconds in rounds of the driving side (`here`) and of the other (`there`), the bytes that
    each sends, and the seconds before the first round (`once_...`).

    The common units are in `plan.predict`. `tree_units(job, columns, shape, first)` counts units of the protocol's own
    in one tree with a passive party of so many columns, `job_units(job)` those that are done once; a driver does
    those in `for_each` with every passive party apart, and those in `for_most` once, for the one that needs most.

    Small runs tell what a unit costs. The smallest has `scale` rows (None: as many as take a moment), the largest
    `reach` times as many: rows beyond the processor's caches cost more than those within, so cheap protocols reach far.
    `options` are what such a run needs to be run at all with little data; they do not change what things cost.
    """

    here: tuple[str, ...] = (*COMMON_A, "slots_p")
    there: tuple[str, ...] = (*COMMON_P, "cells_p", "slots_p")
    sent: tuple[str, ...] = (*SIDES, "rows")
    answered: tuple[str, ...] = (*SIDES, "slots_p")
    scale: int | None = None
    reach: int = 30
    most_trees: int = 6  # of a run that is measured
    far: tuple[int, int, int, int, int] = (5, 7, 5, 32, 1)  # columns, depth, bins and trees of the largest run
    most_bytes: Callable[[int], float] = lambda rows: math.inf  # of a message, with so many rows
    once_here: tuple[str, ...] = ("start", "table_a", "sorted_a", "beyond_a")
    once_there: tuple[str, ...] = ("start", "table_p", "sorted_p", "beyond_p")
    steps: tuple[str, ...] = ("start", "trees", "levels")  # what decides how often an answer is waited for
    tree_units: Callable[[PlannedJob, int, Shape, bool], Units] = lambda job, columns, shape, first: {}
    job_units: Callable[[PlannedJob], Units] = lambda job: {}
    for_each: tuple[str, ...] = ()
    for_most: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class InTurn:
    """The first tree as in one protocol, all others as in another: units of either stand apart, and so do costs."""

    first: str
    later: str


# For a protocol that declares no cost: what the work of most is made of.
VERTICAL_COST = Cost()
HORIZONTAL_COST = Cost(
    here=("trees", "levels", "tree_rows", "bins", "uploads"),
    there=("participants", "levels", "tree_rows", "cells", "uploads"),
    sent=("start", "participants", "levels", "searches", "uploads"),
    answered=("participants", "levels", "rows", "table", "searches", "uploads"),
    once_here=("start", "participants", "table", "searches"),
    once_there=("participants", "table", "sorted", "beyond", "searches"),
)


# Bytes: of a value and of its bin; of a row's id, of its label.
VALUE, BIN, TABLE_ROW, LABEL = 4, 1, 8, 8
STATE_A = 8 + 8 + 4  # margin, gradient and hessian on the grid, the row's place in its node
STATE_P = 4 + 4  # the row's place in its node, and where it goes
GRADIENTS = 44  # while they are made: in float64, scaled, rounded, then on the grid


@dataclass(frozen=True)
class Room:
    """Bytes that a party keeps throughout, and those that it needs beside them where it needs most."""

    kept: float = 0.0
    work: float = 0.0

    def __add__(self, other: Room) -> Room:
        """What is kept adds up; works come one after the other."""
        return Room(self.kept + other.kept, max(self.work, other.work))


@dataclass(frozen=True)
class Needs:
    """What a protocol adds to the memory of tables, bins and rows: at its driver, and at one other party.

    `for_each`: the driver keeps its part for every other party. `held`: a driver in the same process holds its message
    while the other party works.
    """

    here: Room = Room()
    there: Room = Room()
    for_each: bool = False
    held: bool = False

    def __add__(self, other: Needs) -> Needs:
        return Needs(
            self.here + other.here, self.there + other.there, self.for_each or other.for_each, self.held or other.held
        )
