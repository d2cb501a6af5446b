"""The spec of `lattice`; its cost in polynomials and the memory of its widest level, which `sealed` shares."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from veilboost.config import DEFAULTS, TrainingConfig
from veilboost.crypto.lattice.keys import DEGREE, POLYNOMIAL_BYTES, SECURITY_BITS, SPAN_ROWS, run_length, sizes_for_job
from veilboost.crypto.lattice.masks import MaskSizes, mask_sizes
from veilboost.privacy.statement import Statement, Status
from veilboost.protocols import cost, spec
from veilboost.protocols.lattice.active import LatticeCipher
from veilboost.protocols.lattice.layouts import BYTES_AT_ONCE, LatticeOptions, expands, reuses_masks, runs_bytes
from veilboost.protocols.lattice.messages import (
    BinMasks,
    ExpandedRequest,
    ExpandedSums,
    ExpansionKeys,
    ExpansionReady,
    LatticeMore,
    LatticeRequest,
    LatticeRound,
    LatticeSums,
    MasksRequest,
    VectorRequest,
    VectorSums,
)
from veilboost.protocols.lattice.passive import LatticePassiveCipher
from veilboost.protocols.vertical.active import active_by
from veilboost.protocols.vertical.messages import LIFECYCLE, SplitAnswer
from veilboost.protocols.vertical.passive import passive_by


def planned_masks(job: cost.PlannedJob, slots: int, features: int) -> MaskSizes | None:
    """The sizes of a job's masks; None if it reuses none."""
    sizes = mask_sizes(job.rows, DEFAULTS.gradient_bits, slots, features)
    return sizes if reuses_masks("auto", sizes, job.rows, slots, 1, job.trees) else None


def level_units(
    job: cost.PlannedJob, shape: cost.Shape, slots: int, features: int
) -> Iterator[tuple[float, cost.Units]]:
    """Yield for each level its rows, and either its vectors under reused masks or its polynomials.

    Polynomials are encrypted (runs) and returned (tiles), and multiplied.
    """
    masks = planned_masks(job, slots, features)
    sizes = sizes_for_job(int(max(shape.built_rows, default=1.0)), DEFAULTS.gradient_bits, slots, features)
    for depth, (built, rows) in enumerate(zip(shape.built, shape.built_rows, strict=True)):
        node = max(1.0, rows / built)
        vector = 0.0 if masks is None else masks.vector_bytes(job.rows)
        if vector and (not depth or (vector < runs_bytes(node, slots) and built * vector <= BYTES_AT_ONCE)):
            yield rows, {"runs": 0.0, "tiles": 0.0, "products": 0.0, "vectors": float(built)}
            continue
        most = node if sizes is None else sizes.rows_per_block(DEFAULTS.gradient_bits)
        pieces = 1 << max(0, math.ceil(math.log2(node / most)))  # nodes are halved repeatedly
        block, count = node / pieces, built * pieces
        run = run_length(int(block), slots)
        runs, tiles = math.ceil(block / run), math.ceil(slots * run / DEGREE)
        yield rows, {"runs": count * runs, "tiles": count * tiles, "products": count * runs * tiles, "vectors": 0.0}


def tree_units(job: cost.PlannedJob, columns: int, shape: cost.Shape, first: bool) -> cost.Units:
    """Polynomials and vectors of a tree. Masks are sent before the first one."""
    slots, features = max(1, columns * job.bins), max(1, columns)
    levels = [units for _, units in level_units(job, shape, slots, features)]
    found = {name: sum(units[name] for units in levels) for name in ("runs", "tiles", "products", "vectors")}
    masks = slots if first and planned_masks(job, slots, features) is not None else 0
    return found | {
        "vector_rows": found["vectors"] * job.rows,
        "vector_cells": found["vectors"] * job.rows * columns,
        "vector_slots": found["vectors"] * slots,
        "masks": masks,
        "mask_products": masks * (1 + math.ceil(job.rows / DEGREE)),
    }


def note(job: cost.PlannedJob) -> str:
    """The layouts of a job's levels: those for the party with most columns."""
    columns = max(job.passive, default=0)
    slots, features = max(1, columns * job.bins), max(1, columns)
    shape = cost.tree_shape(job.rows, job.depth)
    vectors = sum(units["vectors"] > 0 for _, units in level_units(job, shape, slots, features))
    dense = expands("auto", job.rows, slots, DEFAULTS.gradient_bits, job.depth, job.trees)
    others = "in runs, or densely where that is shorter" if dense else "in runs"
    if not vectors:
        return f"layout auto encrypts all levels {others}"
    below = "" if vectors == job.depth else f", and those below {others}"
    return f"layout auto encrypts the first {vectors} of {job.depth} levels as vectors under reused masks{below}"


EXPANSION_ROOM = 64e6  # the keys as they are multiplied, the ciphertexts on a path of an expansion, and 64 tiles

COST = cost.Cost(
    here=(*cost.COMMON_A, "slots_p", "runs", "tiles", "vectors", "vector_rows", "vector_slots"),
    there=(*cost.COMMON_P, "cells_p", "runs", "tiles", "products", "vector_cells", "vector_slots"),
    sent=(*cost.ASSIGNMENTS, "runs", "vectors", "vector_rows"),
    answered=(*cost.ASSIGNMENTS, "tiles", "slots_p", "masks"),
    once_there=("start", "table_p", "sorted_p", "beyond_p", "mask_products"),
    scale=4_000,
    # A message of streamed ciphertexts ends with a complete span, and a row takes up to 100 bytes.
    most_bytes=lambda rows: BYTES_AT_ONCE + 100.0 * SPAN_ROWS,
    tree_units=tree_units,
    for_each=("tiles", "vector_slots"),
    for_most=("runs", "vectors", "vector_rows"),  # rows are encrypted once, for the party with most columns
    note=note,
)


def memory(job: cost.PlannedJob, columns: int, streams: bool = True) -> cost.Needs:
    """The memory of the widest level, and of the masks that are kept.

    Ciphertexts and masks exist twice, as computed and as sent. In addition one span of ciphertexts is loaded for
    multiplication, three families of two residues, with the bin of every cell. If a level streams, a message has a
    fixed number of bytes plus the rest of its last span.
    """
    slots, features = max(1, columns * job.bins), max(1, columns)
    masks = planned_masks(job, slots, features)
    kept = 0.0 if masks is None else float(slots * masks.slot_bytes)
    here = there = min(kept, BYTES_AT_ONCE)
    shape = cost.tree_shape(job.rows, job.depth, cost.FIRST_SHARE)
    for rows, units in level_units(job, shape, slots, features):
        if masks is not None and units["vectors"]:
            vectors = units["vectors"] * masks.vector_bytes(job.rows)
            here, there = max(here, 2 * vectors), max(there, 2 * vectors)
            continue
        span = min(1.0, SPAN_ROWS / rows)
        ciphertexts = 4 * POLYNOMIAL_BYTES * units["runs"]
        if streams:
            ciphertexts = min(ciphertexts, BYTES_AT_ONCE + span * ciphertexts / 2)
        tiles = POLYNOMIAL_BYTES * units["tiles"] * min(1.0, ciphertexts / (4 * POLYNOMIAL_BYTES * units["runs"]))
        loaded = span * (3 * 2 * 8 * DEGREE * units["runs"] + 4 * columns * rows)
        here = max(here, 2 * ciphertexts + tiles)
        there = max(there, 2 * ciphertexts + 2 * tiles + loaded)
    if expands("auto", job.rows, slots, DEFAULTS.gradient_bits, job.depth, job.trees):
        there = max(there, EXPANSION_ROOM)
    # An active party in the same process keeps the ciphertexts while a passive party multiplies them. Of the masks it
    # keeps all, and the passive party the factors that remove them, a byte for each coefficient.
    factors = 0.0 if masks is None else float(slots * DEGREE)
    return cost.Needs(cost.Room(kept, here), cost.Room(factors, there), for_each=True, held=True)


def layout_of(config: TrainingConfig) -> str:
    return LatticeOptions.from_dict(config.options).layout


SPEC = spec.ProtocolSpec(
    name="lattice",
    summary="passive parties sum gradients under packed ring-LWE encryption; the model equals the unencrypted one",
    source="VeilBoost; packing as suggested in ELXGB, section 10",
    exact=True,
    statement=Statement(
        (
            spec.of_active(
                data="gradients in transit",
                adversary="every semi-honest passive party",
                status=Status.SOUND,
                why="ring-LWE at 128 bits: N = 4096, log2 q = 100, or N = 8192, 150 and circular security; ternary "
                "secrets",
            ),
            spec.SHARED_NODES,
            spec.OWN_ASSIGNMENTS,
            spec.of_passive(
                data="features, many rows",
                adversary="a semi-honest active party",
                status=Status.HEURISTIC,
                why="the active party learns only exact sums (masks re-randomised, noise flooded to 2^-40 per block of "
                "rows) and the left/right assignments of every winning split; with thirty rows or more for every sum "
                "of one bin our attacks left most bins unrecovered",
            ),
            spec.EXACT_SUMS_OF_FEW_ROWS,
        )
    ),
    messages=(
        *LIFECYCLE,
        MasksRequest,
        BinMasks,
        LatticeRound,
        LatticeRequest,
        LatticeMore,
        LatticeSums,
        VectorRequest,
        VectorSums,
        ExpansionKeys,
        ExpansionReady,
        ExpandedRequest,
        ExpandedSums,
    ),
    roles={
        "active": active_by(partial(LatticeCipher, layout_of=layout_of, streams=True)),
        "passive": passive_by(partial(LatticePassiveCipher, layout_of=layout_of, streams=True)),
    },
    options=LatticeOptions,
    exact_messages=lambda config, first: (LatticeRequest, LatticeSums, SplitAnswer),
    security_bits=lambda config: SECURITY_BITS,
    cost=COST,
    memory=memory,
    relative_cost=8,
    evidence=(spec.LABELS_BY_NODES, spec.OWN_FEATURES, spec.FEATURES_BY_SUMS),
)
