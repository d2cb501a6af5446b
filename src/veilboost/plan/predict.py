"""From a job and the costs of units to time, bytes and memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from veilboost.plan.calibrate import Calibration, Costs, spending_of, units_of
from veilboost.plan.job import PlannedJob, vertical_units
from veilboost.plan.memory import memory_of
from veilboost.plan.shape import Units
from veilboost.plan.spending import HORIZONTAL
from veilboost.wire.network import Network

# What the active party does, sends or reads for every passive one apart.
_FOR_EACH = ("cells", "slots_p", "crossed", "tiles", "masked", "large_masked", "blocks", "block_rows", "block_kernels",
             "packages")  # fmt: skip


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
    spending = spending_of(protocol)
    if protocol in HORIZONTAL:
        work = units_of(protocol, job)
        here = _cost(costs.here, work) + _cost(costs.once_here, work)
        there = _cost(costs.there, work) + _cost(costs.once_there, work)
        sent, answered = _cost(costs.sent, work), _cost(costs.answered, work)
        others = [there / job.participants]
    else:
        each = [vertical_units(job, count) for count in job.passive]
        others = [_cost(costs.there, work) + _cost(costs.once_there, work) for work in each]
        there = sum(others)
        sent = sum(_cost(costs.sent, work) for work in each)
        answered = sum(_cost(costs.answered, work) for work in each)
        own_work = _for_all(each)
        here = _cost(costs.here, own_work) + _cost(costs.once_here, own_work)
    rounds = _cost(costs.rounds, units_of(protocol, job))
    single = PlannedJob(job.rows, job.features, 1, job.depth, job.bins, job.participants)
    message = min(_cost(costs.largest, units_of(protocol, single)), spending.most_bytes(job.rows))
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


def _for_all(each: Sequence[Units]) -> Units:
    """The active party's work with all passive ones: its own columns once, what it does for each of them for each."""
    first = dict(each[0])
    for name in first:
        if name == "table_p" or name.removeprefix("first_").removeprefix("later_") in _FOR_EACH:
            first[name] = sum(work[name] for work in each)
    # Rows are encrypted once, in runs for whoever has most columns.
    first["runs"] = max(work["runs"] for work in each)
    return first


def _cost(costs: Costs, work: Units) -> float:
    return sum(cost * work[name] for name, cost in costs.items())
