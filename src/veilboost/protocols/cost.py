"""Work units and memory needs of a protocol, from which `veilboost plan` predicts jobs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from veilboost.errors import InvalidParameter
from veilboost.wire.transcript import UNMEASURED, Network

Units = Mapping[str, float]  # name of a unit to how often it occurs

# The smaller child's share of its parent's rows. Below the root only this child is summed; its sibling is derived. The
# first tree finds splits that halve the rows; splits of later trees separate fewer rows.
FIRST_SHARE, LATER_SHARE = 0.42, 0.33
FEWEST_ROWS = 16  # a node with fewer is hardly ever split


@dataclass(frozen=True)
class PlannedJob:
    """The size of a job.

    `features` counts the columns of each party, the active party first. With horizontally partitioned data it holds
    one number, the columns that all participants have. A protocol may adapt to the line between the parties, `network`.
    """

    rows: int
    features: tuple[int, ...]
    trees: int = 100
    depth: int = 6
    bins: int = 64
    participants: int = 0  # 0: the data are vertically partitioned
    network: Network = UNMEASURED

    def __post_init__(self) -> None:
        least = {"rows": 2, "trees": 1, "depth": 1, "bins": 2}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise InvalidParameter(f"{name} = {getattr(self, name)} is less than {low}", f"set it to {low} or more")
        if not self.features or any(count < 0 for count in self.features) or not any(self.features):
            raise InvalidParameter("there are no columns", "give the number per party, for example --features 40,60")
        if not self.participants and len(self.features) < 2:
            raise InvalidParameter("a vertical job needs at least two parties", "give two numbers of columns or more")

    @property
    def passive(self) -> tuple[int, ...]:
        return self.features[1:]


@dataclass(frozen=True)
class Shape:
    """A typical tree: for each level the number of nodes, of nodes that are summed, and of rows in the latter."""

    nodes: tuple[int, ...]
    built: tuple[int, ...]
    built_rows: tuple[float, ...]


def tree_shape(rows: int, depth: int, share: float = LATER_SHARE) -> Shape:
    """Return the shape of a tree whose nodes split while they have enough rows.

    Below the root only the smaller of two children is summed.
    """
    nodes = [min(1 << level, max(1, rows // FEWEST_ROWS)) for level in range(depth)]
    built = [1, *(max(1, count // 2) for count in nodes[1:])]
    return Shape(tuple(nodes), tuple(built), (float(rows), *(share * rows for _ in nodes[1:])))


# --- time and bytes ---------------------------------------------------------------------------------------------

# Units that `plan.predict` counts for every vertical protocol.
COMMON_A = ("start", "trees", "levels", "rows", "row_levels", "beyond", "cells_a", "slots_a")
ALL_NODES_A = ("start", "trees", "levels", "rows", "row_levels", "beyond", "all_cells_a", "all_slots_a")
COMMON_P = ("start", "trees", "levels", "row_levels", "beyond")
ASSIGNMENTS = ("start", "trees", "levels", "row_levels")  # bytes of left/right assignments
ONCE = ("start", "table_a", "table_p", "sorted_a", "sorted_p", "beyond_a", "beyond_p")


@dataclass(frozen=True)
class Cost:
    """The units that determine time and traffic.

    `here` and `there` determine the seconds per round at the driver and at another party, `sent` and `answered` the
    bytes that each sends, `once_here` and `once_there` the seconds before the first round.

    `plan.predict` defines the common units. `tree_units(job, columns, shape, first)` counts the protocol's own units
    in one tree with a passive party of this many columns, `job_units(job)` those that occur once. The driver does the
    units in `for_each` separately for every passive party, and those in `for_most` once, for the passive party that
    needs most.

    `asks_ahead`: a split and the next level's statistics take one exchange with one passive party, as in calibration,
    and two with several.

    Calibration measures the cost of a unit in small runs. The smallest has `scale` rows (None: as many as run in a
    moment), the largest `reach` times as many. Rows beyond the processor's caches cost more than rows within, so cheap
    protocols need a large `reach`. `options` allow such runs on little data; they do not change the cost of a unit.

    `note` states what a job of this size chooses by itself, for example how it encrypts.
    """

    here: tuple[str, ...] = (*COMMON_A, "slots_p")
    there: tuple[str, ...] = (*COMMON_P, "cells_p", "slots_p")
    sent: tuple[str, ...] = (*ASSIGNMENTS, "rows")
    answered: tuple[str, ...] = (*ASSIGNMENTS, "slots_p")
    scale: int | None = None
    reach: int = 30
    most_trees: int = 6  # of a measured run
    far: tuple[int, int, int, int, int] = (5, 7, 5, 32, 1)  # columns, depth, bins and trees of the largest run
    most_bytes: Callable[[int], float] = lambda rows: math.inf  # of one message, given the number of rows
    once_here: tuple[str, ...] = ("start", "table_a", "sorted_a", "beyond_a")
    once_there: tuple[str, ...] = ("start", "table_p", "sorted_p", "beyond_p")
    steps: tuple[str, ...] = ("start", "trees", "levels")  # determine the number of round trips
    tree_units: Callable[[PlannedJob, int, Shape, bool], Units] = lambda job, columns, shape, first: {}
    job_units: Callable[[PlannedJob], Units] = lambda job: {}
    asks_ahead: bool = False
    for_each: tuple[str, ...] = ()
    for_most: tuple[str, ...] = ()
    note: Callable[[PlannedJob], str] = lambda job: ""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class InTurn:
    """The first tree costs as in one protocol and all others as in another; units and costs are kept separate."""

    first: str
    later: str


# For a protocol that declares no cost.
VERTICAL_COST = Cost()
HORIZONTAL_COST = Cost(
    here=("trees", "levels", "tree_rows", "bins", "uploads"),
    there=("participants", "levels", "tree_rows", "cells", "uploads"),
    sent=("start", "participants", "levels", "searches", "uploads"),
    answered=("participants", "levels", "rows", "table", "searches", "uploads"),
    once_here=("start", "participants", "table", "searches"),
    once_there=("participants", "table", "sorted", "beyond", "searches"),
)


# Bytes of a value, of its bin, of a row's id and of its label.
VALUE, BIN, TABLE_ROW, LABEL = 4, 1, 8, 8
STATE_A = 8 + 8 + 4  # margin, gradient and hessian on the grid, position of the row in its node
STATE_P = 4 + 4  # position of the row in its node, and the child it goes to
GRADIENTS = 44  # while they are computed: in float64, then on the grid


@dataclass(frozen=True)
class Room:
    """Bytes that a party keeps throughout a job, and the peak of what it needs in addition."""

    kept: float = 0.0
    work: float = 0.0

    def __add__(self, other: Room) -> Room:
        """Kept bytes add up; of temporary bytes the larger number counts."""
        return Room(self.kept + other.kept, max(self.work, other.work))


@dataclass(frozen=True)
class Needs:
    """Memory that a protocol needs in addition to tables, bins and rows: at the driver, and at one other party.

    `for_each`: the driver keeps its bytes for every other party. `held`: a driver in the same process holds its
    message while the other party works.
    """

    here: Room = Room()
    there: Room = Room()
    for_each: bool = False
    held: bool = False

    def __add__(self, other: Needs) -> Needs:
        return Needs(
            self.here + other.here, self.there + other.there, self.for_each or other.for_each, self.held or other.held
        )
