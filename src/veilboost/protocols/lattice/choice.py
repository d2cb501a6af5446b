"""Which layout takes least time: the seconds of a level in each, predicted from its sizes and the line.

A level costs the CPU seconds of both parties, which work in turn, and its bytes over the line. All layouts take as many
exchanges, so the round trip counts only for what is sent once. Only sizes and the job's line enter: a resumed job keeps
its line and so repeats every choice. On a fast line, bytes are saved if they cost little time: see `choose`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from veilboost.crypto.lattice import expansion
from veilboost.crypto.lattice.expansion import DenseSizes, answer_bytes, dense_runs, log_flood, sizes_for_flood
from veilboost.crypto.lattice.keys import DEGREE, POLYNOMIAL_BYTES, RUN_BYTES, Blocks, run_length, sizes_for_job
from veilboost.crypto.lattice.masks import MaskSizes, mask_sizes
from veilboost.errors import UnsupportedCombination
from veilboost.protocols.cost import tree_shape
from veilboost.protocols.lattice.layouts import BYTES_AT_ONCE, MOST_MASKS
from veilboost.types import Int64Array
from veilboost.wire.transcript import Network

CheckRoom = Callable[[int, int], None]  # raises if the largest sum leaves no room for the noise of so many columns
_NO_ROWS = np.empty(0, dtype=np.int32)
_SPARING = 100e6  # bits per second: on a faster line a job sends as little as on this one, ...
_LONGER = 0.02  # if a tree takes at most so many seconds longer, about as many as its exchanges take without a line
_SUM_BITS_WITH_NOISE = 41  # as much room for the noise of passive parties as in runs
# CPU seconds with AVX2 on one thread (AMD EPYC), fitted to nodes of 200 to 24,000 rows and 64 to 1,920 slots. Another
# machine is faster or slower; what counts here are their ratios.
_RUN = 290e-6  # encrypt a run, ...
_RUN_LOADED, _TILE, _PRODUCT = 160e-6, 140e-6, 27e-6  # sum it, ...
_TILE_READ = 33e-6  # and decrypt
_DENSE_ROW = 85e-9
_LEAF, _DENSE_TILE, _DENSE_PRODUCT = 320e-6, 490e-6, 85e-6
_DENSE_TILE_READ = 130e-6
_VECTOR, _VECTOR_ROW = 450e-6, 65e-9
_VECTOR_SUMMED, _VECTOR_CELL, _VECTOR_SLOT = 300e-6, 1e-9, 1.8e-6
_VECTOR_SLOT_READ = 2.6e-6
_MASK, _MASK_PRODUCT = 140e-6, 23e-6
_KEYS, _KEYS_LOADED = 27e-3, 18e-3


@dataclass(frozen=True)
class Price:
    """CPU seconds of the active party (encryption, decryption) and of a passive party (summation), and bytes."""

    encryption: float = 0.0
    summation: float = 0.0
    decryption: float = 0.0
    sent: float = 0.0
    answered: float = 0.0

    def over(self, network: Network) -> float:
        """Seconds over this line."""
        cpu = self.encryption + self.summation + self.decryption
        return cpu + 8 * (self.sent + self.answered) / network.bandwidth


@dataclass(frozen=True)
class DenseLevel:
    """How a level is encrypted densely."""

    blocks: Blocks
    sizes: DenseSizes


@dataclass(frozen=True)
class LevelChoice:
    """The layout of a level: "runs", "masks", or "expansion", which has `dense`."""

    layout: str
    price: Price
    dense: DenseLevel | None = None


def runs_price(counts: Int64Array, slots: int, most: float = math.inf) -> Price:
    """Nodes of these numbers of rows in runs. Nodes of more than `most` rows are halved until they have fewer."""
    runs = tiles = products = 0
    for rows, nodes in zip(*(each.tolist() for each in np.unique(counts, return_counts=True)), strict=True):
        pieces = 1 << math.ceil(math.log2(max(1.0, rows / most)))
        block = max(1, math.ceil(rows / pieces))
        run = run_length(block, slots)
        of_block = math.ceil(block / run), math.ceil(slots * run / DEGREE)
        runs += nodes * pieces * of_block[0]
        tiles += nodes * pieces * of_block[1]
        products += nodes * pieces * of_block[0] * of_block[1]
    return Price(
        encryption=_RUN * runs,
        summation=_RUN_LOADED * runs + _TILE * tiles + _PRODUCT * products,
        decryption=_TILE_READ * tiles,
        sent=RUN_BYTES * runs,
        answered=POLYNOMIAL_BYTES * tiles,
    )


def vectors_price(nodes: int, rows: int, slots: int, features: int, sizes: MaskSizes) -> Price:
    """Nodes as vectors of all rows under reused masks."""
    return Price(
        encryption=nodes * (_VECTOR + _VECTOR_ROW * rows),
        summation=nodes * (_VECTOR_SUMMED + _VECTOR_CELL * rows * features + _VECTOR_SLOT * slots),
        decryption=nodes * _VECTOR_SLOT_READ * slots,
        sent=nodes * sizes.vector_bytes(rows),
        answered=nodes * 16 * slots,
    )


def dense_price(level: DenseLevel, slots: int) -> Price:
    """Nodes that the receiver expands."""
    counts, run = level.blocks.end - level.blocks.begin, level.blocks.run
    leaves, rows = -(-counts // run), int(counts.sum())
    sums, masks = answer_bytes(run, slots, level.sizes)
    tiles = 8 * masks / (expansion.DEGREE * level.sizes.bits)
    products = float((leaves * run).sum()) * slots / expansion.DEGREE
    return Price(
        encryption=_DENSE_ROW * rows,
        summation=_LEAF * int(leaves.sum()) + _DENSE_TILE * tiles + _DENSE_PRODUCT * products,
        decryption=_DENSE_TILE_READ * tiles,
        sent=expansion.ROW_BYTES * rows,
        answered=sums + masks,
    )


def leaf_bytes(network: Network) -> int:
    """The bytes of an answer that take as long as a run of a dense level: sending them, and making their tiles."""
    of_tile = (_DENSE_TILE + _DENSE_TILE_READ) / (expansion.DEGREE * 32 / 8)
    return max(1, round(_LEAF / (8 / network.bandwidth + of_tile)))


def dense_level(
    counts: Int64Array,
    shapes: Sequence[tuple[int, int]],
    value_bits: int,
    network: Network,
    check_room: CheckRoom | None = None,
) -> DenseLevel | None:
    """Plan a dense level for parties with so many slots and columns; values are at most 2^value_bits.

    None if the sums of a node do not fit, or if the level does not fit into one message.
    """
    slots, largest = max(slots for slots, _ in shapes), int(counts.max(initial=1)) << value_bits
    sizes = expansion.sizes_for_sum(largest)
    if sizes is None or expansion.ROW_BYTES * int(counts.sum()) > BYTES_AT_ONCE:
        return None
    run, end = dense_runs(counts, slots, sizes, leaf_bytes(network)), counts.cumsum()
    while True:
        blocks = Blocks(_NO_ROWS, end - counts, end, run)
        flood = max(log_flood(blocks.at(span, _NO_ROWS), *shape) for shape in shapes for span in blocks.spans())
        if flood <= sizes.most_log_flood or (run == expansion.MOST_RUN).all():
            break
        run = np.minimum(2 * run, expansion.MOST_RUN).astype(np.int32)  # fewer doublings make less noise
    if check_room is not None:  # noise needs more room than the sums
        sizes = sizes_for_flood(flood)
        try:
            check_room(sizes.largest_sum, max(features for _, features in shapes))
        except UnsupportedCombination:
            return None
    fits = flood <= sizes.most_log_flood and sizes.largest_sum >= largest
    return DenseLevel(blocks, sizes) if fits else None


@dataclass(frozen=True)
class JobSizes:
    """The sizes of a job, for its widest passive party. Values are at most 2^value_bits.

    `noisy`: the passive parties add noise. `moving`: bins change from tree to tree.
    """

    rows: int
    slots: int
    features: int
    depth: int
    rounds: int
    value_bits: int
    trees_per_round: int = 1
    noisy: bool = False
    moving: bool = False

    def mask_sizes(self) -> MaskSizes | None:
        """The sizes of masks; None if they cannot be reused.

        The vectors of a round's roots must fit into one message, and there must not be too many masks to keep.
        """
        least = _SUM_BITS_WITH_NOISE if self.noisy else 0
        sizes = mask_sizes(self.rows, self.value_bits, self.slots, self.features, least)
        if sizes is None or not self.slots or self.moving:
            return None
        too_long = self.trees_per_round * sizes.vector_bytes(self.rows) > BYTES_AT_ONCE
        return None if too_long or self.slots * sizes.slot_bytes > MOST_MASKS else sizes


@dataclass(frozen=True)
class Choice:
    """What a job may use: masks of these sizes, and keys for expansion. Every level takes what is best on `priced`."""

    layout: str
    job: JobSizes
    network: Network
    masks: MaskSizes | None
    keys: bool
    priced: Network

    def of_level(
        self,
        depth: int,
        counts: Int64Array,
        shapes: Sequence[tuple[int, int]] | None = None,
        check_room: CheckRoom | None = None,
    ) -> LevelChoice:
        """The layout of a level with so many rows in its nodes; `shapes` are slots and columns of all parties.

        Below the root, vectors could count a row in several nodes, and noise is for one.
        """
        job, masks = self.job, self.masks
        shapes = shapes or [(job.slots, job.features)]
        slots, features = max(slots for slots, _ in shapes), max(features for _, features in shapes)
        found = list[LevelChoice]()
        below = not job.noisy and self.layout in ("auto", "masks")
        if masks is not None and (not depth or below):
            vectors = LevelChoice("masks", vectors_price(len(counts), job.rows, slots, features, masks))
            if self.layout != "auto":
                return vectors
            if vectors.price.sent <= BYTES_AT_ONCE:
                found.append(vectors)
        dense = dense_level(counts, shapes, job.value_bits, self.priced, check_room) if self.keys else None
        if dense is not None:
            found.append(LevelChoice("expansion", dense_price(dense, slots), dense))
        sizes = sizes_for_job(int(counts.max(initial=1)), job.value_bits, slots, features)
        most = math.inf if sizes is None else sizes.rows_per_block(job.value_bits)
        found.append(LevelChoice("runs", runs_price(counts, slots, most)))
        return min(found, key=lambda each: each.price.over(self.priced))

    def levels(self) -> list[LevelChoice]:
        """The levels of a typical tree."""
        shape = tree_shape(self.job.rows, self.job.depth)
        return [
            self.of_level(depth, node_rows(built, rows))
            for depth, (built, rows) in enumerate(zip(shape.built, shape.built_rows, strict=True))
        ]

    def once(self) -> Price:
        """Before the first tree."""
        masks, job = self.masks, self.job
        return Price(
            encryption=_KEYS if self.keys else 0.0,
            summation=(_KEYS_LOADED if self.keys else 0.0)
            + (0.0 if masks is None else job.slots * (_MASK + _MASK_PRODUCT * math.ceil(job.rows / DEGREE))),
            sent=expansion.KEY_BYTES if self.keys else 0.0,
            answered=0.0 if masks is None else job.slots * masks.slot_bytes,
        )

    def seconds(self) -> float:
        """Of all levels of the job."""
        trips = 2 * self.network.latency * ((self.masks is not None) + self.keys)
        trees = self.job.rounds * self.job.trees_per_round
        return (
            trips
            + self.once().over(self.network)
            + trees * sum(each.price.over(self.network) for each in self.levels())
        )

    def __str__(self) -> str:
        names = {"runs": "in runs", "masks": "as vectors under reused masks", "expansion": "densely"}
        parts, first = list[str](), 1
        for name, group in itertools.groupby(each.layout for each in self.levels()):
            last = first + len(list(group)) - 1
            levels = f"level {first}" if first == last else f"levels {first} to {last}"
            parts.append(f"{levels} {names[name]}")
            first = last + 1
        return f"layout {self.layout} for {self.network}: {', '.join(parts)}"


def node_rows(nodes: int, rows: float) -> Int64Array:
    """The rows of so many nodes of equal size."""
    return np.full(nodes, max(1, round(rows / nodes)), dtype=np.int64)


@lru_cache(256)
def choose(layout: str, job: JobSizes, network: Network) -> Choice:
    """What a job uses: for "auto" whatever takes least time, with what is sent once.

    On a fast line a job would send many megabytes to save a few milliseconds of arithmetic. So it sends as little as on
    a line of 100 Mbit/s where that takes hardly longer: for small tables.
    """
    sizes, keys = job.mask_sizes(), job.slots > 0
    if layout != "auto":
        masks, keys = {"runs": (None, False), "expansion": (sizes, keys)}.get(layout, (sizes, False))
        return Choice(layout, job, network, masks, keys, network)

    def fastest(priced: Network) -> Choice:
        every = itertools.product({None: None, sizes: None}, (False, keys) if keys else (False,))
        return min((Choice(layout, job, priced, *each, priced) for each in every), key=Choice.seconds)

    best = fastest(network)
    sparing = replace(fastest(replace(network, bandwidth=min(network.bandwidth, _SPARING))), network=network)
    trees = job.rounds * job.trees_per_round
    return sparing if sparing.seconds() - best.seconds() <= _LONGER * trees else best
