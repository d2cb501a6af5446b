"""The work of `lattice` counted in polynomials, and the memory of its widest level; `sealed` shares both."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from veilboost.config import DEFAULTS
from veilboost.crypto.lattice.keys import DEGREE, POLYNOMIAL_BYTES, SPAN_ROWS, run_length, sizes_for_job
from veilboost.protocols import cost
from veilboost.protocols.lattice.active import BYTES_AT_ONCE


@dataclass(frozen=True)
class Polynomials:
    """Of one level: its rows, runs in, tiles out, and products, as nodes are cut into blocks and these into runs."""

    rows: float
    runs: float
    tiles: float
    products: float


def level_polynomials(shape: cost.Shape, slots: int, features: int) -> Iterator[Polynomials]:
    sizes = sizes_for_job(int(max(shape.built_rows, default=1.0)), DEFAULTS.gradient_bits, slots, features)
    for built, rows in zip(shape.built, shape.built_rows, strict=True):
        node = max(1.0, rows / built)
        most = node if sizes is None else sizes.rows_per_block(DEFAULTS.gradient_bits)
        pieces = 1 << max(0, math.ceil(math.log2(node / most)))  # halves of halves
        block, count = node / pieces, built * pieces
        run = run_length(int(block), slots)
        runs, tiles = math.ceil(block / run), math.ceil(slots * run / DEGREE)
        yield Polynomials(rows, count * runs, count * tiles, count * runs * tiles)


def tree_units(job: cost.PlannedJob, columns: int, shape: cost.Shape, first: bool) -> cost.Units:
    """Polynomials that are encrypted (runs), that come back (tiles), and multiplications between them (products)."""
    levels = list(level_polynomials(shape, max(1, columns * job.bins), max(1, columns)))
    return {
        "runs": sum(level.runs for level in levels),
        "tiles": sum(level.tiles for level in levels),
        "products": sum(level.products for level in levels),
    }


COST = cost.Cost(
    here=(*cost.COMMON_A, "slots_p", "runs", "tiles"),
    there=(*cost.COMMON_P, "cells_p", "runs", "tiles", "products"),
    sent=(*cost.SIDES, "runs"),
    answered=(*cost.SIDES, "tiles", "slots_p"),
    scale=4_000,
    # Of a message of streamed ciphertexts the last span is whole, and a row takes up to 100 bytes.
    most_bytes=lambda rows: BYTES_AT_ONCE + 100.0 * SPAN_ROWS,
    tree_units=tree_units,
    for_each=("tiles",),
    for_most=("runs",),  # rows are encrypted once, in runs for whoever has most columns
)


def memory(job: cost.PlannedJob, columns: int, streams: bool = True) -> cost.Needs:
    """The widest level: ciphertexts and masks, each as they are made and as they are sent; and of a span the
    ciphertexts as they are multiplied, three families of two residues, with the bin of every cell.

    Where a level streams a message has so many bytes, and the rest of its last span.
    """
    slots = max(1, columns * job.bins)
    here = there = 0.0
    for level in level_polynomials(cost.tree_shape(job.rows, job.depth, cost.FIRST_SHARE), slots, max(1, columns)):
        span = min(1.0, SPAN_ROWS / level.rows)
        ciphertexts = 4 * POLYNOMIAL_BYTES * level.runs
        if streams:
            ciphertexts = min(ciphertexts, BYTES_AT_ONCE + span * ciphertexts / 2)
        masks = POLYNOMIAL_BYTES * level.tiles * min(1.0, ciphertexts / (4 * POLYNOMIAL_BYTES * level.runs))
        loaded = span * (3 * 2 * 8 * DEGREE * level.runs + 4 * columns * level.rows)
        here = max(here, 2 * ciphertexts + masks)
        there = max(there, 2 * ciphertexts + 2 * masks + loaded)
    # Beside a passive party that multiplies ciphertexts, the active one in the same process still has them.
    return cost.Needs(cost.Room(0.0, here), cost.Room(0.0, there), held=True)
