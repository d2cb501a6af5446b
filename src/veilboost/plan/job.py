"""A job that is only thought of, and its work counted in units that do not depend on any machine."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from veilboost.crypto.lattice.parameters import DEGREE, rows_per_block, run_length
from veilboost.errors import ImpossibleParameter

SMALLER_CHILD = 0.35  # of its parent's rows: what is summed below the root, siblings being derived
FEWEST_ROWS = 16  # a node with fewer is hardly ever split
CACHED_ROWS = 250_000  # about as many as a processor's caches hold the state of
LARGEST_GRADIENT = 1 << 20  # on the fixed-point grid

Units = dict[str, float]


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
                raise ImpossibleParameter(f"{name} = {getattr(self, name)} is less than {low}")
        if not self.features or any(count < 0 for count in self.features) or not any(self.features):
            raise ImpossibleParameter("there are no columns", "say how many each party has, as --features 40,60")
        if not self.participants and len(self.features) < 2:
            raise ImpossibleParameter("one party needs nobody to train with", "name two parties or more")

    @property
    def passive(self) -> tuple[int, ...]:
        return self.features[1:]


@dataclass(frozen=True)
class Shape:
    """A typical tree: for each level, how many nodes it has, how many are summed, and how many rows stand in these."""

    nodes: tuple[int, ...]
    built: tuple[int, ...]
    built_rows: tuple[float, ...]


def tree_shape(rows: int, depth: int) -> Shape:
    """Every node splits while it has rows enough; below the root the smaller child of two is summed."""
    nodes = [min(1 << level, max(1, rows // FEWEST_ROWS)) for level in range(depth)]
    built = [1, *(max(1, count // 2) for count in nodes[1:])]
    return Shape(tuple(nodes), tuple(built), (float(rows), *(SMALLER_CHILD * rows for _ in nodes[1:])))


def vertical_units(job: PlannedJob, passive: int) -> Units:
    """The work between the active party and one passive one that has `passive` columns.

    start
        Once for the job.
    table_a, table_p
        Values that each party bins, once.
    trees, levels
        Times that something is done however many rows there are.
    rows, row_levels, beyond
        Rows whose gradients are computed; rows that are told where they went, level by level; those of them that the
        processor's caches do not hold.
    cells_a, cells_p, cells
        Values that are added to a histogram, at either side; at the active party where it has everyone's bins.
    slots_a, slots_p
        Bins of all summed nodes.
    crossed
        A number for each row and candidate, at every level.
    runs, tiles, products
        Polynomials that are encrypted, that come back, and multiplications between them (`lattice`).
    first_...
        The same of the first tree only.
    """
    n, own = float(job.rows), float(job.features[0])
    shape = tree_shape(job.rows, job.depth)
    slots = float(passive * job.bins)
    built_rows, built, levels = sum(shape.built_rows), float(sum(shape.built)), float(job.depth)
    runs, tiles, products = _polynomials(shape, max(1, int(slots)), max(1, passive))
    one_tree: Units = {
        "trees": 1.0,
        "levels": levels,
        "rows": n,
        "row_levels": n * levels,
        "beyond": max(0.0, n - CACHED_ROWS) * levels,
        "cells_a": built_rows * own,
        "cells_p": built_rows * passive,
        "cells": built_rows * (own + passive),
        "slots_a": built * own * job.bins,
        "slots_p": built * slots,
        "crossed": n * levels * slots,
        "runs": runs,
        "tiles": tiles,
        "products": products,
    }
    once: Units = {"start": 1.0, "table_a": n * own, "table_p": n * passive}
    every = {name: count * job.trees for name, count in one_tree.items()}
    return once | every | {f"first_{name}": count for name, count in one_tree.items()}


def horizontal_units(job: PlannedJob) -> Units:
    """The work of all participants together, and of the server with them.

    pairs
        Participants with one another, once. extremes: columns of all participants.
    table
        Values of all rows, once. cells: values added to histograms.
    uploads, searches
        Bins that a participant sends for all summed nodes; bins that are counted while cuts are looked for.
    """
    n, count, people = float(job.rows), float(job.features[0]), float(job.participants)
    shape = tree_shape(job.rows, job.depth)
    built_rows, built = sum(shape.built_rows), float(sum(shape.nodes))
    return {
        "start": 1.0,
        "people": people,
        "pairs": people * people,
        "extremes": people * count,
        "rows": n,
        "table": n * count,
        "trees": float(job.trees),
        "tree_rows": job.trees * n,
        "levels": float(job.trees * job.depth) * people,
        "cells": job.trees * built_rows * count,
        "searches": people * count * job.bins,
        "uploads": people * job.trees * built * count * job.bins,
        "masks": people * people * job.trees * built * count * job.bins,
        "bins": float(job.trees) * count * job.bins,
    }


def _polynomials(shape: Shape, slots: int, features: int) -> tuple[float, float, float]:
    """Of one tree: runs in, tiles out, and products, as `lattice` cuts nodes into blocks and blocks into runs."""
    runs = tiles = products = 0.0
    for rows, count in _blocks(shape, slots, features):
        run = run_length(int(rows), slots)
        own_runs, own_tiles = math.ceil(rows / run), math.ceil(slots * run / DEGREE)
        runs += count * own_runs
        tiles += count * own_tiles
        products += count * own_runs * own_tiles
    return runs, tiles, products


def _blocks(shape: Shape, slots: int, features: int) -> Iterator[tuple[float, float]]:
    """Rows of a block, and how many such there are, level by level."""
    for built, rows in zip(shape.built, shape.built_rows, strict=True):
        node = max(1.0, rows / built)
        largest = rows_per_block(int(node), LARGEST_GRADIENT, slots, features) or int(node)
        pieces = math.ceil(node / largest)
        yield node / pieces, built * pieces
