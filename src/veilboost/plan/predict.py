"""From a job and the costs of units to time, bytes and memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from veilboost.plan.calibrate import Calibration, UnitCosts
from veilboost.plan.units import cost_of, units_of, vertical_units
from veilboost.protocols.cost import (
    BIN,
    GRADIENTS,
    LABEL,
    STATE_A,
    STATE_P,
    TABLE_ROW,
    VALUE,
    Cost,
    PlannedJob,
    Room,
    Units,
)
from veilboost.protocols.registry import protocol_named
from veilboost.wire.transcript import Network

FOR_EACH = ("cells", "slots_p", "crossed")  # common units of the active party that it does for every passive one apart
PROGRAM = 60e6  # bytes of the interpreter and its libraries


@dataclass(frozen=True)
class Prediction:
    """What a job would take. Seconds of others are those of the slowest: they work at the same time.

    `together` is what all parties would take one after the other in one process, as a simulation does, and
    `memory_together` what that process would need.
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
    """One thread at each party, each on a machine like this one."""
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
    )


def _for_all(cost: Cost, each: Sequence[Units]) -> Units:
    """The active party's work with all passive ones: its own columns once, what it does for each of them for each."""
    first, apart = dict(each[0]), {*FOR_EACH, *cost.for_each}
    for name in first:
        if name == "table_p" or name.removeprefix("first_").removeprefix("later_") in apart:
            first[name] = sum(work[name] for work in each)
    return first | {name: max(work[name] for work in each) for name in cost.for_most}


def _cost(costs: UnitCosts, work: Units) -> float:
    return sum(cost * work[name] for name, cost in costs.items())


# --- memory -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Memory:
    """Bytes that are needed at once: by the driver, by the other that needs most, by all in one process."""

    here: float
    others: float
    together: float


def memory_of(protocol: str, job: PlannedJob, message: float) -> Memory:
    """`message`: the largest; a party that sends or reads it has its frame beside it."""
    needs, n, column = protocol_named(protocol).memory, float(job.rows), VALUE + BIN
    if job.participants:
        each = [needs(job, job.features[0])] * job.participants
        table = Room(n / job.participants * (TABLE_ROW + LABEL + column * job.features[0]))
        own, others = each[0].here, [one.there + table for one in each]
    else:
        each = [needs(job, count) for count in job.passive]
        own = Room(n * (TABLE_ROW + LABEL + column * job.features[0] + STATE_A), n * GRADIENTS)
        for at, one in enumerate(each):
            own += one.here if not at or one.for_each else Room(0.0, one.here.work)
        others = [
            one.there + Room(n * (TABLE_ROW + column * count + STATE_P))
            for count, one in zip(job.passive, each, strict=True)
        ]
    largest = max(others, key=lambda room: room.kept + room.work)
    beside = message if each[0].held else 0.0
    return Memory(
        here=PROGRAM + own.kept + own.work + message * max(1, len(job.passive)),
        others=PROGRAM + largest.kept + largest.work + message,
        together=PROGRAM + own.kept + sum(room.kept for room in others) + max(own.work, largest.work + beside),
    )
