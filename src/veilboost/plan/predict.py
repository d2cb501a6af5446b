"""The work of a job in machine-independent units, and its time, bytes and memory from the costs of units."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from veilboost.protocols.cost import (
    FIRST_SHARE,
    HORIZONTAL_COST,
    LATER_SHARE,
    ONCE,
    VERTICAL_COST,
    Cost,
    PlannedJob,
    Shape,
    Units,
    tree_shape,
)
from veilboost.protocols.memory import memory_of
from veilboost.protocols.registry import protocol_named
from veilboost.wire.transcript import Network

UnitCosts = Mapping[str, float]  # by unit
FOR_EACH = ("cells", "slots_p", "crossed")  # units of work that the active party repeats for every passive party
CACHED_ROWS = 250_000  # about as many as fit into a processor's caches
CLOSE_ROWS = 32_000  # rows of a column that malloc serves from memory it already has


@dataclass(frozen=True)
class Calibration:
    """Unit costs of a protocol: seconds before the first round and in rounds, at the driver (here) and others (there);
    bytes sent and answered, round trips, and the largest message."""

    once_here: UnitCosts
    once_there: UnitCosts
    here: UnitCosts
    there: UnitCosts
    sent: UnitCosts
    answered: UnitCosts
    rounds: UnitCosts
    largest: UnitCosts


@dataclass(frozen=True)
class Prediction:
    """The predicted cost of a job. The seconds of others are those of the slowest: they work in parallel.

    `together` are the seconds of all parties one after the other in one process, as in a simulation, and
    `memory_together` is the memory of that process.
    """

    protocol: str
    seconds_here: float
    seconds_others: float
    seconds_network: float
    bytes_sent: float
    bytes_answered: float
    rounds: float
    memory_here: float
    memory_others: float
    memory_together: float
    together: float
    trees: int
    depth: int
    note: str = ""

    @property
    def seconds(self) -> float:
        return self.seconds_here + self.seconds_others + self.seconds_network

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {
            "seconds": self.seconds,
            "seconds_per_tree": self.seconds / self.trees,
            "bytes": self.bytes_sent + self.bytes_answered,
        }


def predict(protocol: str, job: PlannedJob, costs: Calibration, network: Network | None = None) -> Prediction:
    """Predict the cost with one thread per party, each on a machine like this one.

    Without a `network` its time does not count, and protocols choose as for the job's own.
    """
    job = job if network is None else replace(job, network=network)
    cost = cost_of(protocol)
    if job.participants:
        work = units_of(cost, job)
        here = _cost(costs.here, work) + _cost(costs.once_here, work)
        there = _cost(costs.there, work) + _cost(costs.once_there, work)
        sent, answered = _cost(costs.sent, work), _cost(costs.answered, work)
        others = [there / job.participants]
    else:
        each = [vertical_units(cost, job, count) for count in job.passive]
        others = [_cost(costs.there, work) + _cost(costs.once_there, work) for work in each]
        there = sum(others)
        sent = sum(_cost(costs.sent, work) for work in each)
        answered = sum(_cost(costs.answered, work) for work in each)
        own_work = _for_all(cost, each)
        here = _cost(costs.here, own_work) + _cost(costs.once_here, own_work)
    rounds = _cost(costs.rounds, units_of(cost, job))
    if cost.asks_ahead and len(job.passive) > 1:
        rounds += job.trees * (job.depth - 1)
    message = min(_cost(costs.largest, units_of(cost, replace(job, trees=1))), cost.most_bytes(job.rows))
    memory = memory_of(protocol, job, message)
    return Prediction(
        protocol=protocol,
        seconds_here=here,
        seconds_others=max(others),
        seconds_network=0.0 if network is None else network.seconds(round(rounds), round(sent + answered)),
        bytes_sent=sent,
        bytes_answered=answered,
        rounds=rounds,
        memory_here=memory.here,
        memory_others=memory.others,
        memory_together=memory.together,
        together=here + there,
        trees=job.trees,
        depth=job.depth,
        note=cost.note(job),
    )


def _for_all(cost: Cost, each: Sequence[Units]) -> Units:
    """The active party's work with all passive parties: its own columns once, and the work that it repeats for each."""
    first, apart = dict(each[0]), {*FOR_EACH, *cost.for_each}
    for name in first:
        if name == "table_p" or name.removeprefix("first_").removeprefix("later_") in apart:
            first[name] = sum(work[name] for work in each)
    return first | {name: max(work[name] for work in each) for name in cost.for_most}


def _cost(costs: UnitCosts, work: Units) -> float:
    return sum(cost * work[name] for name, cost in costs.items())


# --- units --------------------------------------------------------------------------------------------------------


def cost_of(protocol: str) -> Cost:
    """The units that a protocol declares, or the common ones if it declares none."""
    spec = protocol_named(protocol)
    if spec.cost is None:
        return VERTICAL_COST if spec.setting == "vertical" else HORIZONTAL_COST
    if isinstance(spec.cost, Cost):
        return spec.cost
    first, later = cost_of(spec.cost.first), cost_of(spec.cost.later)

    def joined(name: str) -> tuple[str, ...]:
        own, other = getattr(first, name), getattr(later, name)
        return (*(of_first(unit, first) for unit in own), *(of_later(unit) for unit in other if unit not in ONCE))

    def tree_units(job: PlannedJob, columns: int, shape: Shape, is_first: bool) -> Units:
        about = job, columns, shape, is_first
        return {**first.tree_units(*about), **later.tree_units(*about)}

    return replace(
        first,
        here=joined("here"),
        there=joined("there"),
        sent=joined("sent"),
        answered=joined("answered"),
        steps=joined("steps"),
        tree_units=tree_units,
        for_each=(*first.for_each, *later.for_each),
    )


def of_first(unit: str, cost: Cost) -> str:
    """One-time work belongs to the protocol of the first tree."""
    return unit if unit in (*ONCE, *cost.once_here, *cost.once_there) else f"first_{unit}"


def of_later(unit: str) -> str:
    return f"later_{unit}"


def units_of(cost: Cost, job: PlannedJob) -> Units:
    """The units with one passive party; `predict` handles several."""
    return horizontal_units(job) if job.participants else vertical_units(cost, job, sum(job.passive))


def vertical_units(cost: Cost, job: PlannedJob, passive: int) -> Units:
    """The work between the active party and one passive party that has `passive` columns.

    start
        Once for the job.
    table_a, table_p, sorted_a, sorted_p, beyond_a, beyond_p
        Values that each party bins, once; comparisons to sort every column for its cut points; and values of rows that
        do not fit into the processor's caches.
    trees, levels
        Work that does not depend on the number of rows.
    rows, row_levels, beyond
        Rows whose gradients are computed; rows whose assignments are sent, level by level; those of them that do not
        fit into the processor's caches.
    cells_a, cells_p, cells
        Values that are added to a histogram, at either party; at the active party if it has all parties' bins.
    slots_a, slots_p
        Bins of all summed nodes.
    all_cells_a, all_cells_p, all_slots_a, all_slots_p
        The same four if every node is summed and none is derived from its sibling.
    crossed
        A number for each row and candidate, at every level.
    first_..., later_...
        The same for the first tree only, and for all others.

    A protocol can have further units, see `Cost`.
    """
    first, later = (_one_tree(cost, job, passive, is_first) for is_first in (True, False))
    n, others = float(job.rows), job.trees - 1
    once: Units = {
        "start": 1.0,
        "table_a": n * job.features[0],
        "table_p": n * passive,
        "sorted_a": n * job.features[0] * math.log2(n),
        "sorted_p": n * passive * math.log2(n),
        "beyond_a": max(0.0, n - CACHED_ROWS) * job.features[0],
        "beyond_p": max(0.0, n - CACHED_ROWS) * passive,
        **cost.job_units(job),
    }
    every = {name: count + others * later[name] for name, count in first.items()}
    apart = {f"first_{name}": count for name, count in first.items()}
    return {**once, **every, **apart, **{of_later(name): others * count for name, count in later.items()}}


def _one_tree(cost: Cost, job: PlannedJob, passive: int, first: bool) -> Units:
    n, own, levels = float(job.rows), float(job.features[0]), float(job.depth)
    shape = tree_shape(job.rows, job.depth, FIRST_SHARE if first else LATER_SHARE)
    slots = float(passive * job.bins)
    built_rows, built, nodes = sum(shape.built_rows), float(sum(shape.built)), float(sum(shape.nodes))
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
        **cost.tree_units(job, passive, shape, first),
    }


def horizontal_units(job: PlannedJob) -> Units:
    """The work of all participants and of the server.

    pairs
        Pairs of participants, once. extremes: columns of all participants.
    table
        Values of all rows, once. sorted: comparisons to sort them at each participant. beyond: values of rows that do
        not fit into nearby memory. cells: values added to histograms.
    uploads, searches
        Bins that a participant sends for all summed nodes; bins that are counted in the quantile search.
    masks, pair_levels, pair_searches
        The work of each participant for every other one on these bins, and at each level.
    """
    n, count, participants = float(job.rows), float(job.features[0]), float(job.participants)
    shape = tree_shape(job.rows, job.depth)
    built_rows, built = sum(shape.built_rows), float(sum(shape.nodes))
    return {
        "start": 1.0,
        "participants": participants,
        "pairs": participants * participants,
        "extremes": participants * count,
        "rows": n,
        "table": n * count,
        "sorted": n * count * math.log2(max(2.0, n / participants)),
        "beyond": max(0.0, n - participants * CLOSE_ROWS) * count,
        "trees": float(job.trees),
        "tree_rows": job.trees * n,
        "levels": float(job.trees * job.depth) * participants,
        "pair_levels": float(job.trees * job.depth) * participants * participants,
        "cells": job.trees * built_rows * count,
        "searches": participants * count * job.bins,
        "pair_searches": participants * participants * count * job.bins,
        "uploads": participants * job.trees * built * count * job.bins,
        "masks": participants * participants * job.trees * built * count * job.bins,
        "bins": float(job.trees) * count * job.bins,
    }
