"""The peak memory of a job's parties, predicted from its size, and the free memory of this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from veilboost.protocols.cost import (
    BIN,
    GRADIENTS,
    LABEL,
    STATE_A,
    STATE_P,
    TABLE_ROW,
    VALUE,
    PlannedJob,
    Room,
)
from veilboost.protocols.registry import protocol_named

PROGRAM = 60e6  # bytes of the interpreter and its libraries


@dataclass(frozen=True)
class Memory:
    """Peak bytes: of the driver, of the other party that needs most, of all parties in one process."""

    here: float
    others: float
    together: float


def memory_of(protocol: str, job: PlannedJob, message: float) -> Memory:
    """Predict peak memory. `message` is the largest message; a party also holds its encoded frame."""
    needs, n, column = protocol_named(protocol).memory, float(job.rows), VALUE + BIN
    if job.participants:
        each = [needs(job, job.features[0])] * job.participants
        table = Room(n / job.participants * (TABLE_ROW + LABEL + column * job.features[0]))
        own, others = each[0].here, [one.there + table for one in each]
    else:
        each = [needs(job, count) for count in job.passive]
        column += 2 * BIN  # bins by rows, by columns, and of columns in groups
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


CGROUP = Path("/sys/fs/cgroup")


def free_memory() -> float | None:
    """Bytes that this process may still use, by the machine and its control group; None if the system does not say."""
    free: list[float] = []
    try:
        meminfo = Path("/proc/meminfo").read_text(encoding="utf-8")
        free.append(1024.0 * next(int(line.split()[1]) for line in meminfo.splitlines() if "MemAvailable" in line))
        limit, used = ((CGROUP / f"memory.{name}").read_text(encoding="utf-8") for name in ("max", "current"))
        free.append(float(limit.replace("max", "inf")) - float(used))
    except (OSError, ValueError, StopIteration):
        pass
    return min(free, default=None)
