"""The messages of the vertical level loop that do not depend on how statistics are protected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from veilboost.types import Float64Array, Int32Array, Int64Array, UInt8Array
from veilboost.wire.message import ArraySpec, Done, Message, Reveals

Bits = Annotated[UInt8Array, ArraySpec("uint8", 1)]  # packed, eight to a byte
Ints = Annotated[Int32Array, ArraySpec("int32", 1)]
TOGETHER = Reveals("which rows are together in each node of each tree", "passive", exact=True)
EXACT_SUMS = Reveals(
    "exact sums of gradients and hessians per node and bin of every column", "active", exact=True, per_bin=True
)


@dataclass(frozen=True)
class BeginTraining(Message):
    """Active to passive: a job starts. `config` is JSON; `held_out` and `weights` are empty where there are none.

    No sample weight exceeds 2^weight_bits.
    """

    reveals = (
        Reveals("the job's parameters, the number of aligned rows and of trees per round (classes)", "passive"),
        Reveals("which rows are held out for validation", "passive"),
        Reveals("sample weights, where weighted_bins is on; otherwise a power of two that bounds them", "passive"),
    )
    config: str
    rows: int
    trees_per_round: int
    weight_bits: int
    held_out: Bits
    weights: Annotated[Float64Array, ArraySpec("float64", 1)]


@dataclass(frozen=True)
class ColumnsOffered(Message):
    """Passive to active: how this party's bins lie."""

    reveals = (
        Reveals("how many columns there are, in which order, and how many bins each has", "active"),
        Reveals("which columns are categories and which have missing values", "active"),
    )
    offsets: Ints
    missing: Annotated[UInt8Array, ArraySpec("uint8", 1)]
    kind: Annotated[UInt8Array, ArraySpec("uint8", 1)]


@dataclass(frozen=True)
class BeginRound(Message):
    """Active to passive: a round starts. `fit` marks the rows that are summed, empty for all; the rest follow.

    `columns` are the columns that take part; where `all_columns` is true it is empty.
    """

    reveals = (
        Reveals("which rows and columns the round samples", "passive"),
        Reveals(
            "where sampling is goss, which rows have large gradients: in the first round much of the labels", "passive"
        ),
    )
    number: int
    fit: Bits
    all_columns: bool
    columns: Ints


@dataclass(frozen=True)
class MoreAssignments(Message):
    """Active to passive: a piece of what the next `StatisticsRequest` will tell of where rows went, if it is long."""

    reveals = (Reveals("which rows are together in each node of each tree", "passive"),)
    depth: int
    split: Ints
    fit_left: Bits
    follow_left: Bits


@dataclass(frozen=True)
class StatisticsRequest(Message):
    """Active to passive: where the rows of the level above went, and which nodes of this level to sum.

    `split` are the positions in the level above that were split; the bits cover, in their order, the rows of those
    nodes that the receiver did not split itself, but for those that `MoreAssignments` told before.
    """

    reveals = (TOGETHER, Reveals("which child of two has fewer rows", "passive"))
    depth: int
    split: Ints
    fit_left: Bits
    follow_left: Bits
    build: Ints


@dataclass(frozen=True)
class SplitRequest(Message):
    """Active to passive: split these nodes by your candidates.

    Node i has number `node[i]` in tree `tree[i]` and stands at `position[i]` of the level; the handles
    `handles[starts[i]:starts[i+1]]` tie for it, the receiver takes the first in its own column order. A handle j
    of a set of categories sends the bins `set_bins[set_starts[j]:set_starts[j+1]]` left.
    """

    reveals = (
        Reveals("which of its candidates won or tied at which node", "passive"),
        Reveals("for categories, how the winning split groups them", "passive"),
    )
    depth: int
    tree: Ints
    node: Ints
    position: Ints
    starts: Ints
    handles: Ints
    set_starts: Ints
    set_bins: Ints


@dataclass(frozen=True)
class SplitAnswer(Message):
    """Passive to active: the left/right bits of the nodes' rows, fit rows and follow rows apart; a piece if many."""

    reveals = (
        Reveals("for every row of the node, on which side of the winning cut its value lies", "active", exact=True),
    )
    fit_left: Bits
    follow_left: Bits


@dataclass(frozen=True)
class ClearSums(Message):
    """Passive to active: sums of (g, h) per node and bin in the clear, (nodes, bins of all columns, 2), columns in the
    order in which they were offered. A protocol that sends such sums derives its message, and attacks on sums read it.
    """

    reveals = (Reveals("sums of gradients and hessians per node and bin of every column", "active", per_bin=True),)
    sums: Annotated[Int64Array, ArraySpec("int64", 3)]


@dataclass(frozen=True)
class AssignmentsRequest(Message):
    """Active to passive: the next piece of your last `SplitAnswer`."""

    reveals = ()
    depth: int


@dataclass(frozen=True)
class ResumeTraining(Message):
    """Active to passive: the job goes on after its first `trees` trees; forget what came later."""

    reveals = (Reveals("that the job was interrupted, and after which tree", "passive"),)
    trees: int


@dataclass(frozen=True)
class EndTraining(Message):
    """Active to passive: the job is over, the first `trees` trees are kept."""

    reveals = (Reveals("how many trees the model keeps", "passive"),)
    trees: int


# What all protocols send, and what those send that keep rows by node, whatever their statistics.
JOB: tuple[type[Message], ...] = (BeginTraining, ColumnsOffered, ResumeTraining, EndTraining, Done)
LIFECYCLE = (*JOB, SplitRequest, SplitAnswer, AssignmentsRequest, MoreAssignments)
