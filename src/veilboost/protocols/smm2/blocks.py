"""Split columns in blocks that can share kernel vectors, and bin sums from what comes back for them.

If a cut and the next one differ by a single row, the unit vector of that row is in the span of the two columns, so
every kernel vector is 0 there and the active party, rightly, refuses: its gradient would come back bare. So cuts that
share a block lie at least two rows apart, and cuts of small nodes are spread over several blocks. The rows between
neighbouring cuts of a block form a *group*; a feature with m cuts has m + 1 groups, and the indicators of all of them
but one span what its m columns span (the last; or the first, if that has one row: then the columns are the
complements, whose sums follow from the node's total).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from veilboost.crypto.csprng import Csprng
from veilboost.errors import UnsupportedCombination
from veilboost.protocols.smm2.options import Smm2Options
from veilboost.protocols.vertical.kernels import hidden_rows, rounded
from veilboost.protocols.vertical.null_space import chunked_bin_sums, gaussian, lengths, null_vectors
from veilboost.types import AnyArray, BoolArray, Float64Array, Int64Array

_TRIES = 20


@dataclass(frozen=True)
class CutColumns:
    """Some cuts of one feature: `bins` of it go left, up to and including each. `first_left_out`: see above."""

    feature: int
    bins: Int64Array
    first_left_out: bool


class Room:
    """Memory for the columns of one block after the other: fresh pages for each cost as much as the arithmetic."""

    def __init__(self) -> None:
        self._numbers = np.empty(0)

    def zeros(self, rows: int, columns: int) -> Float64Array:
        """They are those of the last block, and gone with the next."""
        if len(self._numbers) < rows * columns:
            self._numbers = np.empty(rows * columns)
        found = self._numbers[: rows * columns].reshape(rows, columns)
        found[:] = 0.0
        return found


@dataclass(frozen=True)
class Block:
    """Columns of one node that share kernel vectors. `groups[i, k]` is the group of row i by the cuts of feature k."""

    node: int
    cuts: tuple[CutColumns, ...]
    groups: Int64Array

    @property
    def width(self) -> int:
        return sum(len(cut.bins) for cut in self.cuts)

    def matrix(self, extra: int, room: Room) -> Float64Array:
        """The block's part of M, with room for `extra` columns after it."""
        rows = len(self.groups)
        columns = room.zeros(rows, self.width + extra)
        at = 0
        every = np.arange(rows)
        for k, cut in enumerate(self.cuts):
            place = self.groups[:, k] - int(cut.first_left_out)
            inside = every[(place >= 0) & (place < len(cut.bins))]
            columns[inside, at + place[inside]] = 1.0
            at += len(cut.bins)
        return columns

    def split(self) -> tuple[Block, Block]:
        half = len(self.cuts) // 2
        return (
            Block(self.node, self.cuts[:half], self.groups[:, :half]),
            Block(self.node, self.cuts[half:], self.groups[:, half:]),
        )

    def left_sums(self, masked: Float64Array, totals: Int64Array) -> list[tuple[CutColumns, Int64Array]]:
        """Sums of (g, h) left of every cut: (M*)'W of the true columns (Alg. 4, line 8), on the grid."""
        widths = np.array([len(cut.bins) + 1 for cut in self.cuts])
        starts = np.cumsum(widths) - widths
        sums = rounded_groups(self, chunked_bin_sums(self.groups + starts, int(widths.sum()), masked), starts, totals)
        return [
            (cut, np.cumsum(sums[start : start + len(cut.bins)], axis=0))
            for cut, start in zip(self.cuts, starts.tolist(), strict=True)
        ]


def rounded_groups(block: Block, sums: Float64Array, starts: Int64Array, totals: Int64Array) -> Int64Array:
    """Group sums as integers. The group left out is no column of M*: its masked sum means nothing, its own follows."""
    last = starts + np.array([0 if cut.first_left_out else len(cut.bins) for cut in block.cuts])
    sums[last] = 0.0
    whole = rounded(sums)
    whole[last] = totals - np.add.reduceat(whole, starts, axis=0)
    return whole


def blocks_of_node(node: int, bins: AnyArray, most: int) -> list[Block]:
    """All cuts of all features of a node (its rows' bins: rows, features), no more than `most` columns to a block."""
    counts = [np.bincount(bins[:, feature]) for feature in range(bins.shape[1])]
    waiting = [_rounds_of_cuts(feature, count, len(bins), most) for feature, count in enumerate(counts)]
    blocks: list[Block] = []
    for number in range(max((len(rounds) for rounds in waiting), default=0)):
        together: list[CutColumns] = []
        width = 0
        for rounds in waiting:
            if number >= len(rounds):
                continue
            cut = rounds[number]
            if together and width + len(cut.bins) > most:
                blocks.append(_block(node, together, bins))
                together, width = [], 0
            together.append(cut)
            width += len(cut.bins)
        if together:
            blocks.append(_block(node, together, bins))
    return blocks


def _block(node: int, cuts: Sequence[CutColumns], bins: AnyArray) -> Block:
    groups = np.stack([cut.bins.searchsorted(bins[:, cut.feature]) for cut in cuts], axis=1)
    return Block(node, tuple(cuts), groups)


def _rounds_of_cuts(feature: int, counts: Int64Array, rows: int, most: int) -> list[CutColumns]:
    """The cuts of a feature between bins that have rows, in as many rounds as it takes to keep them apart."""
    present = np.flatnonzero(counts)
    if len(present) < 2:
        return []
    left = counts.cumsum()[present[:-1]].tolist()
    if int(counts[present].min()) >= 2 and len(left) <= most:
        return [CutColumns(feature, present[:-1], False)]
    waiting = list(range(len(left)))
    rounds: list[CutColumns] = []
    while waiting:
        taken: list[int] = []
        before = 0
        for cut in waiting:
            if len(taken) < most and (left[cut] - before >= 2 or not taken):
                taken.append(cut)
                before = left[cut]
        first_alone = left[taken[0]] == 1
        while first_alone and rows - left[taken[-1]] == 1 and len(taken) > 1:
            taken.pop()
        rounds.append(CutColumns(feature, present[taken], first_alone))
        waiting = sorted(set(waiting) - set(taken))
    return rounds


def bin_sums(
    counts_by_feature: Sequence[Int64Array],
    offsets: Sequence[int],
    slots: int,
    left: Sequence[tuple[CutColumns, Int64Array]],
    totals: Int64Array,
) -> Int64Array:
    """Sums per bin (slots, 2) of a node from its sums left of all cuts."""
    sums = np.zeros((slots, 2), dtype=np.int64)
    for cut, values in left:
        sums[offsets[cut.feature] + cut.bins] = values
    for counts, start in zip(counts_by_feature, offsets, strict=True):
        at = start + np.flatnonzero(counts)
        sums[at[-1]] = totals
        sums[at[1:]] -= sums[at[:-1]].copy()
    return sums


def secure_kernel(block: Block, options: Smm2Options, source: Csprng, room: Room) -> list[tuple[Block, Float64Array]]:
    """A block with its kernel vectors (Alg. 5, line 10); two smaller ones where together they leave a row bare."""
    rows = len(block.groups)
    count = options.count(rows, 2)
    if not count:
        return [(block, np.empty((rows, 0)))]
    # Features can depend on each other so that two of their cuts differ by one row: then they are kept apart. The cuts
    # of one feature cannot, so there only an unlucky decoy can be the reason.
    for _ in range(_TRIES if len(block.cuts) == 1 else 1):
        kernel = null_vectors(_quasi_secure(block, options, source, room), count, source)
        if hidden_rows(kernel).all():
            return [(block, kernel)]
    if len(block.cuts) == 1:
        raise UnsupportedCombination(
            f"no kernel vectors of a node of {rows} rows hide every row", "lower l1 and l2, or raise min_child_weight"
        )
    return [found for half in block.split() for found in secure_kernel(half, options, source, room)]


def _quasi_secure(block: Block, options: Smm2Options, source: Csprng, room: Room) -> Float64Array:
    """M* = [M M' Y]: true splits, decoy splits, random real columns (Alg. 5, lines 6 to 8), scaled to length 1."""
    l1, l2 = options.added(len(block.groups))
    columns = block.matrix(l1 + l2, room)
    width = block.width
    decoys = _decoys(block, l1, options.decoys, source)
    # A decoy of one row would leave it bare as a true column of one row would: its complement takes its place.
    columns[:, width : width + l1] = decoys ^ (decoys.sum(axis=0) == 1)
    columns[:, width + l1 :] = gaussian(source, len(columns), l2)
    norm = lengths(columns)
    columns /= np.where(norm > 0, norm, 1.0)  # in place: they are most of the party's memory
    return columns


def _decoys(block: Block, count: int, kind: str, source: Csprng) -> BoolArray:
    """M' (rows, count): random bits as published; or steps of true features whose rows were dealt out anew.

    Random bits do not nest, and true splits of one feature do, which tells them apart. Steps of one dealing nest.
    """
    rows, features = len(block.groups), len(block.cuts)
    if kind == "random":
        return (np.frombuffer(source.bytes(rows * count), dtype=np.uint8).reshape(rows, count) & 1) == 1
    columns = np.empty((rows, count), dtype=np.bool_)
    per_feature = -(-count // features)
    done = turn = 0
    while done < count:
        cuts = len(block.cuts[turn % features].bins)
        steps = np.linspace(0, cuts - 1, min(per_feature, cuts, count - done)).round().astype(np.int64)
        dealt = np.argsort(np.frombuffer(source.bytes(8 * rows), dtype="<u8"), kind="stable")
        columns[:, done : done + len(steps)] = block.groups[dealt, turn % features, None] <= steps
        done += len(steps)
        turn += 1
    return columns
