"""A job that is only thought of, and its work counted in units that do not depend on any machine."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from veilboost.config import DEFAULTS
from veilboost.crypto.lattice.parameters import DEGREE, run_length, sizes_for_job
from veilboost.errors import ImpossibleParameter
from veilboost.plan.ciphertexts import ciphertext_units, owner_entries
from veilboost.plan.kernels import kernel_units
from veilboost.plan.shape import FIRST_SHARE, LATER_SHARE, Shape, Units, tree_shape

CACHED_ROWS = 250_000  # about as many as a processor's caches hold the state of
CLOSE_ROWS = 32_000  # a column of as many is no more than malloc keeps at hand


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


def vertical_units(job: PlannedJob, passive: int) -> Units:
    """The work between the active party and one passive one that has `passive` columns.

    start
        Once for the job.
    table_a, table_p, sorted_a, sorted_p, beyond_a, beyond_p
        Values that each party bins, once; the comparisons that put every column in order for its cuts; and values of
        rows that the processor's caches do not hold.
    trees, levels
        Times that something is done however many rows there are.
    rows, row_levels, beyond
        Rows whose gradients are computed; rows that are told where they went, level by level; those of them that the
        processor's caches do not hold.
    cells_a, cells_p, cells
        Values that are added to a histogram, at either side; at the active party where it has everyone's bins.
    slots_a, slots_p
        Bins of all summed nodes.
    all_cells_a, all_cells_p, all_slots_a, all_slots_p
        The same four where every node is summed, none derived from its sibling.
    crossed
        A number for each row and candidate, at every level.
    runs, tiles, products
        Polynomials that are encrypted, that come back, and multiplications between them (`lattice`).
    nodes, kernels, masked, blocks, columns, grams, cubes
        See `kernel_units` (`smm1`, `smm2`).
    entries, factors, added, multiplied, packages
        See `owner_entries` and `ciphertext_units` (`paillier`).
    first_..., later_...
        The same of the first tree only, and of all others.
    """
    first, later = _one_tree(job, passive, first=True), _one_tree(job, passive, first=False)
    n, others = float(job.rows), job.trees - 1
    once: Units = {
        "start": 1.0,
        "table_a": n * job.features[0],
        "table_p": n * passive,
        "sorted_a": n * job.features[0] * math.log2(n),
        "sorted_p": n * passive * math.log2(n),
        "beyond_a": max(0.0, n - CACHED_ROWS) * job.features[0],
        "beyond_p": max(0.0, n - CACHED_ROWS) * passive,
        "entries": owner_entries(job.rows, job.trees),
    }
    every = {name: count + others * later[name] for name, count in first.items()}
    return (
        once
        | every
        | {f"first_{name}": count for name, count in first.items()}
        | {f"later_{name}": others * count for name, count in later.items()}
    )


def _one_tree(job: PlannedJob, passive: int, *, first: bool) -> Units:
    n, own, levels = float(job.rows), float(job.features[0]), float(job.depth)
    shape = tree_shape(job.rows, job.depth, FIRST_SHARE if first else LATER_SHARE)
    slots = float(passive * job.bins)
    built_rows, built, nodes = sum(shape.built_rows), float(sum(shape.built)), float(sum(shape.nodes))
    polynomials = list(level_polynomials(shape, max(1, int(slots)), max(1, passive)))
    return {
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
        "all_cells_a": n * levels * own,
        "all_cells_p": n * levels * passive,
        "all_slots_a": nodes * own * job.bins,
        "all_slots_p": nodes * slots,
        "crossed": n * levels * slots,
        "runs": sum(level.runs for level in polynomials),
        "tiles": sum(level.tiles for level in polynomials),
        "products": sum(level.products for level in polynomials),
        **kernel_units(shape, passive, job.bins),
        **ciphertext_units(job.rows, job.trees, shape, passive, job.bins, first),
    }


def horizontal_units(job: PlannedJob) -> Units:
    """The work of all participants together, and of the server with them.

    pairs
        Participants with one another, once. extremes: columns of all participants.
    table
        Values of all rows, once. sorted: comparisons that put them in order at each participant. beyond: those of
        rows that do not stay in memory that is close. cells: values added to histograms.
    uploads, searches
        Bins that a participant sends for all summed nodes; bins that are counted while cuts are looked for.
    masks, pair_levels, pair_searches
        What each participant does for every other one with these bins, and at each level.
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
        "sorted": n * count * math.log2(max(2.0, n / people)),
        "beyond": max(0.0, n - people * CLOSE_ROWS) * count,
        "trees": float(job.trees),
        "tree_rows": job.trees * n,
        "levels": float(job.trees * job.depth) * people,
        "pair_levels": float(job.trees * job.depth) * people * people,
        "cells": job.trees * built_rows * count,
        "searches": people * count * job.bins,
        "pair_searches": people * people * count * job.bins,
        "uploads": people * job.trees * built * count * job.bins,
        "masks": people * people * job.trees * built * count * job.bins,
        "bins": float(job.trees) * count * job.bins,
    }


@dataclass(frozen=True)
class Polynomials:
    """Of one level: its rows, runs in, tiles out, and products, as `lattice` cuts nodes into blocks and these into
    runs."""

    rows: float
    runs: float
    tiles: float
    products: float


def level_polynomials(shape: Shape, slots: int, features: int) -> Iterator[Polynomials]:
    sizes = sizes_for_job(int(max(shape.built_rows, default=1.0)), DEFAULTS.gradient_bits, slots, features)
    for built, rows in zip(shape.built, shape.built_rows, strict=True):
        node = max(1.0, rows / built)
        most = node if sizes is None else sizes.rows_per_block(DEFAULTS.gradient_bits)
        pieces = 1 << max(0, math.ceil(math.log2(node / most)))  # halves of halves
        block, count = node / pieces, built * pieces
        run = run_length(int(block), slots)
        runs, tiles = math.ceil(block / run), math.ceil(slots * run / DEGREE)
        yield Polynomials(rows, count * runs, count * tiles, count * runs * tiles)
