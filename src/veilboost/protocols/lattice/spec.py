"""The spec of `lattice`; its cost in polynomials and the memory of its widest level, which `sealed` shares."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from veilboost.config import DEFAULTS, TrainingConfig
from veilboost.crypto.lattice.keys import DEGREE, RUN_BYTES, SECURITY_BITS, SPAN_ROWS
from veilboost.privacy.statement import Statement, Status
from veilboost.protocols import cost, spec
from veilboost.protocols.lattice.active import LatticeCipher
from veilboost.protocols.lattice.choice import Choice, JobSizes, LevelChoice, Price, choose, node_rows
from veilboost.protocols.lattice.layouts import BYTES_AT_ONCE, LatticeOptions
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


def planned(job: cost.PlannedJob, columns: int) -> Choice:
    """What such a job chooses for a passive party with this many columns."""
    columns = max(1, columns)
    sizes = JobSizes(job.rows, columns * job.bins, columns, job.depth, job.trees, DEFAULTS.gradient_bits)
    return choose("auto", sizes, job.network)


def level_choices(choice: Choice, shape: cost.Shape) -> Iterator[tuple[float, LevelChoice]]:
    """Yield for each level of a tree its rows, and how they are encrypted."""
    for depth, (built, rows) in enumerate(zip(shape.built, shape.built_rows, strict=True)):
        yield rows, choice.of_level(depth, node_rows(built, rows))


def tree_units(job: cost.PlannedJob, columns: int, shape: cost.Shape, first: bool) -> cost.Units:
    """Seconds of arithmetic on the machine where `choice` was measured, and bytes. Masks and keys precede tree 1."""
    choice = planned(job, columns)
    levels = [each.price for _, each in level_choices(choice, shape)]
    once = choice.once() if first else Price()
    return {
        "encryption": sum(each.encryption for each in levels),
        "summation": sum(each.summation for each in levels),
        "decryption": sum(each.decryption for each in levels),
        "ciphertexts": sum(each.sent for each in levels) + once.sent,
        "answers": sum(each.answered for each in levels) + once.answered,
        "keys": once.encryption,
        "masks": once.summation,
    }


def note(job: cost.PlannedJob) -> str:
    """The layouts of a job's levels: those for the party with most columns."""
    return str(planned(job, max(job.passive, default=0)))


EXPANSION_ROOM = 64e6  # the keys as they are multiplied, the ciphertexts on a path of an expansion, and 64 tiles

COST = cost.Cost(
    here=(*cost.COMMON_A, "slots_p", "encryption", "decryption"),
    there=(*cost.COMMON_P, "cells_p", "summation"),
    sent=(*cost.ASSIGNMENTS, "ciphertexts"),
    answered=(*cost.ASSIGNMENTS, "answers"),
    once_here=(*cost.Cost.once_here, "keys"),
    once_there=(*cost.Cost.once_there, "masks"),
    scale=4_000,
    # A message of streamed ciphertexts ends with a complete span, and a row takes up to 100 bytes.
    most_bytes=lambda rows: BYTES_AT_ONCE + 100.0 * SPAN_ROWS,
    tree_units=tree_units,
    for_each=("decryption",),
    for_most=("encryption",),  # rows are encrypted once, for the party with most columns
    note=note,
)


def memory(job: cost.PlannedJob, columns: int, streams: bool = True) -> cost.Needs:
    """The memory of the widest level, and of the masks that are kept.

    Ciphertexts and masks exist twice, as computed and as sent. In addition one span of ciphertexts is loaded for
    multiplication, three families of two residues, with the bin of every cell. If a level streams, a message has a
    fixed number of bytes plus the rest of its last span.
    """
    choice = planned(job, columns)
    slots, masks = choice.job.slots, choice.masks
    kept = choice.once().answered
    here = there = min(kept, BYTES_AT_ONCE)
    shape = cost.tree_shape(job.rows, job.depth, cost.FIRST_SHARE)
    for rows, level in level_choices(choice, shape):
        ciphertexts, answers = level.price.sent, level.price.answered
        loaded = 0.0
        if level.layout == "runs":
            span = min(1.0, SPAN_ROWS / rows)
            loaded = span * (3 * 2 * 8 * DEGREE * ciphertexts / RUN_BYTES + 4 * columns * rows)
            if streams:
                part = min(1.0, (BYTES_AT_ONCE + span * ciphertexts / 2) / ciphertexts)
                ciphertexts, answers = part * ciphertexts, part * answers
        here = max(here, 2 * ciphertexts + answers)
        there = max(there, 2 * ciphertexts + 2 * answers + loaded)
    if choice.keys:
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
    limits_splits=True,
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
    by_line=lambda config: layout_of(config) == "auto",
    exact_messages=lambda config, first: (LatticeRequest, LatticeSums, SplitAnswer),
    security_bits=lambda config: SECURITY_BITS,
    cost=COST,
    memory=memory,
    relative_cost=8,
    evidence=(spec.LABELS_BY_NODES, spec.OWN_FEATURES, spec.FEATURES_BY_SUMS),
)
