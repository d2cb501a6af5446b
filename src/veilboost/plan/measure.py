"""Small runs of a protocol on this machine, and what they took."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from veilboost.boost.booster import RoundResult
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.party.horizontal import SERVER, simulate_horizontal
from veilboost.party.simulation import simulate_training
from veilboost.plan.job import PlannedJob
from veilboost.protocols.horizontal_registry import horizontal_named
from veilboost.types import Column, PartyName
from veilboost.wire.transcript import Entry, Transcript

DRIVER = "active"
# What a run may need to be run at all with little data; it does not change what things cost.
_OPTIONS = {"mal": {"guard": "allow"}, "sealed": {"eps": 1000.0}}


@dataclass(frozen=True)
class Measured:
    """Processor seconds of the driving side and of all others together, before the first round and in all rounds; and
    what crossed."""

    job: PlannedJob
    once_here: float
    once_there: float
    here: float
    there: float
    sent: float
    answered: float
    rounds: float
    largest: float

    @property
    def seconds(self) -> float:
        return self.once_here + self.once_there + self.here + self.there


def measure(protocol: str, job: PlannedJob, seed: int = 0) -> Measured:
    """Train such a job in this process on drawn numbers, one thread at each party.

    Seconds are the processor's, so a busy machine does not matter much; they are divided between the sides as the
    clock says how long the driver waited.
    """
    config = TrainingConfig(
        objective="binary",
        n_estimators=job.trees,
        max_depth=job.depth,
        max_bin=job.bins,
        seed=seed,
        options=_OPTIONS.get(protocol, {}),
    )
    tables = _tables(job, seed)
    ends: list[tuple[float, float]] = []  # of rounds: when, and how long it was

    def watch(result: RoundResult) -> None:
        ends.append((time.time(), result.seconds))

    began, clock = time.process_time(), time.time()
    if job.participants:
        found = simulate_horizontal(
            tables, protocol, horizontal_named(protocol).completed(config), threads=1, watcher=watch
        )
        driver = SERVER
    else:
        found = simulate_training(tables, DRIVER, protocol, config, threads=1, watcher=watch)
        driver = DRIVER
    ended = time.time()
    busy = (time.process_time() - began) / (ended - clock)  # of a second, less than 1 where others use the machine too
    transcripts = found.transcripts
    first = ends[0][0] - ends[0][1]
    before, after = _waited(transcripts[driver].entries, first)
    return Measured(
        job=job,
        once_here=busy * max(0.0, first - clock - before),
        once_there=busy * before,
        here=busy * max(0.0, ended - first - after),
        there=busy * after,
        sent=float(transcripts[driver].bytes_sent()),
        answered=float(_others(transcripts, driver)),
        rounds=float(found.rounds),
        largest=float(max(entry.size for entry in transcripts[driver].entries)),
    )


def _others(transcripts: Mapping[PartyName, Transcript], driver: PartyName) -> int:
    return sum(each.bytes_sent() for name, each in transcripts.items() if name != driver)


def _waited(entries: Iterable[Entry], middle: float) -> tuple[float, float]:
    """How long at least one request was under way, before and after a time."""
    under_way: set[PartyName] = set()
    before, after, since = 0.0, 0.0, 0.0
    for entry in entries:
        if entry.direction == "sent":
            since = since if under_way else entry.when
            under_way.add(entry.peer)
        elif entry.peer in under_way:
            under_way.remove(entry.peer)
            if not under_way and entry.when <= middle:
                before += max(0.0, entry.when - since)
            elif not under_way:
                after += max(0.0, entry.when - since)
    return before, after


def _tables(job: PlannedJob, seed: int) -> dict[PartyName, PartyTable]:
    rng = np.random.default_rng(seed)
    if not job.participants:
        whole = _drawn(rng, job.rows, sum(job.features))
        label = _labels(rng, whole)
        edges = np.cumsum([0, *job.features])
        names = [DRIVER, *(f"passive{at}" for at in range(1, len(job.features)))]
        ids = np.arange(job.rows)
        tables = {name: PartyTable(ids, whole[edges[at] : edges[at + 1]]) for at, name in enumerate(names)}
        return tables | {DRIVER: PartyTable(ids, tables[DRIVER].columns, label)}
    shares = np.array_split(np.arange(job.rows), job.participants)
    found: dict[PartyName, PartyTable] = {}
    for at, share in enumerate(shares):
        columns = _drawn(rng, len(share), job.features[0])
        found[f"participant{at}"] = PartyTable(np.arange(len(share)), columns, _labels(rng, columns))
    return found


def _drawn(rng: np.random.Generator, rows: int, columns: int) -> tuple[Column, ...]:
    return tuple(Column(f"c{at}", rng.normal(size=rows).astype(np.float32)) for at in range(columns))


def _labels(rng: np.random.Generator, columns: tuple[Column, ...]) -> Any:
    """They depend on every other column, so that trees split at every level and by both sides."""
    score = np.sum([each.values for each in columns[::2]], axis=0)
    return (score + rng.normal(scale=np.std(score), size=len(score)) > 0).astype(np.float64)
