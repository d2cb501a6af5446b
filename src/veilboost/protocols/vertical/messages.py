"""Messages of the vertical level loop that do not depend on how statistics are protected."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np

from veilboost.types import Float64Array, Int8Array, Int32Array, Int64Array, UInt8Array
from veilboost.wire.message import ArraySpec, Done, Message, Reveals

Bits = Annotated[UInt8Array, ArraySpec("uint8", 1)]  # packed, eight to a byte
Ints = Annotated[Int32Array, ArraySpec("int32", 1)]
SHARED_NODES = Reveals("which rows share a node, for every node of every tree", "passive", exact=True)
NO_INTS, NO_DIRECTION = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int8)
NO_LEVELS = np.empty((0, 0), dtype=np.uint8)
EXACT_SUMS = Reveals(
    "exact sums of gradients and hessians per node and bin of every column", "active", exact=True, per_bin=True
)


@dataclass(frozen=True)
class BeginTraining(Message):
    """Active to passive: a job starts. `config` is JSON; `held_out` and `weights` are empty if there are none.

    No sample weight exceeds 2^weight_bits.
    """

    reveals = (
        Reveals("the job's parameters, the number of aligned rows and of trees per round (classes)", "passive"),
        Reveals("which rows are held out for validation", "passive", given=("held_out",)),
        Reveals("sample weights, if weighted_bins is on; otherwise a power of two that bounds them", "passive"),
    )
    config: str
    rows: int
    trees_per_round: int
    weight_bits: int
    held_out: Bits
    weights: Annotated[Float64Array, ArraySpec("float64", 1)]


@dataclass(frozen=True)
class ColumnsOffered(Message):
    """Passive to active: the layout of this party's bins, and the constraints of its columns.

    `direction` has an entry for every column, or none if all are 0. The set `sets[k]` has the columns
    `set_columns[set_starts[k]:set_starts[k+1]]`; without `set_starts`, the party declares no sets.
    """

    reveals = (
        Reveals("the number and order of columns, and the number of bins of each", "active"),
        Reveals("which columns are categorical and which have missing values", "active"),
        Reveals("which columns have monotone constraints, and their directions", "active", given=("direction",)),
        Reveals(
            "which columns are in the same sets of interaction constraints, and the names of these sets",
            "active",
            given=("sets", "set_starts"),
        ),
    )
    offsets: Ints
    missing: Annotated[UInt8Array, ArraySpec("uint8", 1)]
    kind: Annotated[UInt8Array, ArraySpec("uint8", 1)]
    direction: Annotated[Int8Array, ArraySpec("int8", 1)] = field(default_factory=lambda: NO_DIRECTION, kw_only=True)
    sets: tuple[str, ...] = field(default=(), kw_only=True)
    set_starts: Ints = field(default_factory=lambda: NO_INTS, kw_only=True)
    set_columns: Ints = field(default_factory=lambda: NO_INTS, kw_only=True)


@dataclass(frozen=True)
class BeginRound(Message):
    """Active to passive: a round starts. `fit` marks the rows to sum (empty: all); the others are only routed.

    `columns` are the sampled columns; it is empty if `all_columns` is true. `levels` has a row for each level: 1 where
    its splits may use a column of the round. It is empty if they may use all, and if the columns are not shuffled.
    """

    reveals = (
        Reveals("which rows and columns the round samples", "passive", given=("fit", "columns", "levels")),
        Reveals(
            "with sampling='goss', which rows have large gradients: in the first round much of the labels",
            "passive",
            given=("fit",),
        ),
    )
    number: int
    fit: Bits
    all_columns: bool
    columns: Ints
    levels: Annotated[UInt8Array, ArraySpec("uint8", 2)] = field(default_factory=lambda: NO_LEVELS, kw_only=True)


@dataclass(frozen=True)
class MoreAssignments(Message):
    """Active to passive: a piece of the left/right assignments of the next `StatisticsRequest`, if they are long."""

    reveals = (Reveals("which rows share a node, for every node of every tree", "passive"),)
    depth: int
    split: Ints
    fit_left: Bits
    routed_left: Bits


@dataclass(frozen=True)
class StatisticsRequest(Message):
    """Active to passive: the left/right assignments of the level above, and the nodes of this level to sum.

    `split` are the positions in the level above that were split. The bits cover, in this order, the rows of the nodes
    that the receiver did not split itself, except those that `MoreAssignments` sent before.

    A request that is `ahead` comes together with the receiver's `SplitRequest`, before the sender knows the children of
    its nodes. Then `build` lists all nodes that may have to be summed, and the receiver chooses by their rows (see
    `round_state.summed_ahead`). `smaller`: of two siblings it sums the one with fewer rows, but at least this many; 0:
    it sums both.
    """

    reveals = (SHARED_NODES, Reveals("which of two children has fewer rows", "passive"))
    depth: int
    split: Ints
    fit_left: Bits
    routed_left: Bits
    build: Ints
    ahead: bool = field(default=False, kw_only=True)
    smaller: int = field(default=0, kw_only=True)


@dataclass(frozen=True)
class SplitRequest(Message):
    """Active to passive: split these nodes by your candidates.

    Node i has number `node[i]` in tree `tree[i]` and position `position[i]` in the level. The handles
    `handles[starts[i]:starts[i+1]]` tie for it; the receiver takes the first in its own column order. A handle j
    of a set of categories sends the bins `set_bins[set_starts[j]:set_starts[j+1]]` left. `ask_taken`: the answer must
    say which handles were taken, because constraints of the next levels depend on it.
    """

    reveals = (
        Reveals("which of the receiver's candidates won or tied at which node", "passive"),
        Reveals("for categorical columns, how the winning split groups the categories", "passive"),
    )
    depth: int
    tree: Ints
    node: Ints
    position: Ints
    starts: Ints
    handles: Ints
    set_starts: Ints
    set_bins: Ints
    ask_taken: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class SplitAnswer(Message):
    """Passive to active: the left/right assignments of the nodes' rows, or a piece of them if there are many.

    Rows that are summed (`fit_left`) and rows that are only routed (`routed_left`) are separate. `taken` has the place
    of the taken handle among those of the request, for each of its nodes, if the request asks for it.
    """

    reveals = (
        Reveals("the left/right assignment of every row of the node at the winning split", "active", exact=True),
        Reveals("in jobs with constraints, which of the tied candidates was taken", "active", given=("taken",)),
    )
    fit_left: Bits
    routed_left: Bits
    taken: Ints = field(default_factory=lambda: NO_INTS, kw_only=True)


@dataclass(frozen=True)
class ClearSums(Message):
    """Passive to active: sums of (g, h) per node and bin in the clear, (nodes, bins of all columns, 2).

    Columns have the order of `ColumnsOffered`. A protocol that sends such sums derives its message from this class, and
    attacks on sums read it.
    """

    reveals = (Reveals("sums of gradients and hessians per node and bin of every column", "active", per_bin=True),)
    sums: Annotated[Int64Array, ArraySpec("int64", 3)]


@dataclass(frozen=True)
class AssignmentsRequest(Message):
    """Active to passive: send the next piece of your last `SplitAnswer`."""

    reveals = ()
    depth: int


@dataclass(frozen=True)
class ResumeTraining(Message):
    """Active to passive: the job continues after its first `trees` trees; discard what came later.

    `digest` is what the receiver reported when it stored these trees; empty if there are none.
    """

    reveals = (Reveals("that the job was interrupted, and after which tree", "passive"),)
    trees: int
    digest: str = ""


@dataclass(frozen=True)
class EndTraining(Message):
    """Active to passive: the job has ended; keep the first `trees` trees."""

    reveals = (Reveals("how many trees the model keeps", "passive"),)
    trees: int


# Messages of all protocols, and of those that keep rows by node, whatever statistics they use.
JOB: tuple[type[Message], ...] = (BeginTraining, ColumnsOffered, ResumeTraining, EndTraining, Done)
LIFECYCLE = (*JOB, SplitRequest, SplitAnswer, AssignmentsRequest, MoreAssignments)
