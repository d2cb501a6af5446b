"""Small runs of a protocol on this machine, and what they took."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from veilboost.boost.booster import RoundResult
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.party.simulation import SERVER, HorizontalFederation
from veilboost.party.training import PassiveSession, TrainingJob, train_active
from veilboost.plan.units import cost_of
from veilboost.protocols.cost import PlannedJob
from veilboost.protocols.registry import protocol_named
from veilboost.protocols.validation import settle
from veilboost.types import Column, PartyName
from veilboost.wire.channel import Channel, Handler, MemoryChannel, Peers, Reply
from veilboost.wire.message import Catalogue, Message
from veilboost.wire.transcript import Transcript

Result = TypeVar("Result")

DRIVER = "active"


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

    Seconds are the processor's, so a busy machine does not matter much.
    """
    config = TrainingConfig(
        objective="binary",
        n_estimators=job.trees,
        max_depth=job.depth,
        max_bin=job.bins,
        seed=seed,
        options=cost_of(protocol).options,
    )
    tables = _tables(job, seed)
    meter = Meter()
    run = _horizontal if job.participants else _vertical
    transcripts, driver, rounds = run(protocol, tables, config, meter)
    once, in_rounds = meter.read()
    return Measured(
        job=job,
        once_here=once[0],
        once_there=once[1],
        here=in_rounds[0],
        there=in_rounds[1],
        sent=float(transcripts[driver].bytes_sent()),
        answered=float(sum(each.bytes_sent() for name, each in transcripts.items() if name != driver)),
        rounds=float(rounds),
        largest=float(max(entry.size for entry in transcripts[driver].entries)),
    )


class Meter:
    """Processor seconds of the driver and of the handlers that it waits for, before the first round and from there on.

    The clock is read beside the processor's time wherever a handler begins or ends: where others use the machine too,
    a second of the clock is worth now more, now less.
    """

    def __init__(self) -> None:
        self._stamps: list[tuple[float, float]] = []  # of the clock and of the processor: begin, end, begin, end ...
        self._first: tuple[float, float] | None = None  # when the first round ended, and how long it was
        self._begin = self._now()

    def timed(self, handler: Handler) -> Handler:
        def handle(message: Message) -> Reply:
            reply = self.elsewhere(lambda: handler(message))
            return reply if isinstance(reply, Message) else lambda: self.elsewhere(reply)

        return handle

    def elsewhere(self, work: Callable[[], Result]) -> Result:
        """Do what a real driver would have others do."""
        self._stamps.append(self._now())
        done = work()
        self._stamps.append(self._now())
        return done

    def watch(self, result: RoundResult) -> None:
        if self._first is None:
            self._first = self._now()[0], result.seconds

    def read(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Seconds (here, there) before the first round, and after."""
        end = self._now()
        when = end[0] if self._first is None else self._first[0] - self._first[1]
        stamps = [self._begin, *self._stamps, end]
        clock, spent = [stamp[0] for stamp in stamps], [stamp[1] for stamp in stamps]
        middle = float(np.interp(when, clock, spent))
        handled = [(clock[at + 1], spent[at + 1] - spent[at]) for at in range(1, len(stamps) - 1, 2)]
        before = sum(seconds for ended, seconds in handled if ended <= when)
        after = sum(seconds for ended, seconds in handled if ended > when)
        return (middle - spent[0] - before, before), (spent[-1] - middle - after, after)

    @staticmethod
    def _now() -> tuple[float, float]:
        return time.perf_counter(), time.process_time()


Run = tuple[Mapping[PartyName, Transcript], PartyName, int]  # and who drove it, in how many exchanges


def _vertical(protocol: str, tables: Mapping[PartyName, PartyTable], config: TrainingConfig, meter: Meter) -> Run:
    """As `simulate_training`, with a meter between the parties."""
    spec = protocol_named(protocol)
    transcripts = {name: Transcript(name) for name in tables}
    channels: dict[PartyName, Channel] = {}
    for name, table in tables.items():
        if name != DRIVER:
            opened = partial(PassiveSession, spec, name, table)
            side = meter.elsewhere(opened).side
            channels[name] = MemoryChannel(
                meter.timed(side.handle), Catalogue(spec.messages), transcripts[DRIVER], transcripts[name]
            )
    peers = Peers(channels)
    job = TrainingJob(spec, config, tuple(tables))
    train_active(job, DRIVER, tables[DRIVER], peers, watcher=meter.watch)
    return transcripts, DRIVER, peers.rounds


def _horizontal(protocol: str, tables: Mapping[PartyName, PartyTable], config: TrainingConfig, meter: Meter) -> Run:
    completed = settle(protocol_named(protocol, "horizontal"), config)
    opened = partial(HorizontalFederation, protocol, tables, completed, threads=1, watcher=meter.watch)
    federation = meter.elsewhere(opened)  # participants look through their tables
    for side in federation.participants.values():
        setattr(side, "handle", meter.timed(side.handle))  # noqa: B010 - it is looked up when it is called
    found = federation.train()
    return found.transcripts, SERVER, found.rounds


def _tables(job: PlannedJob, seed: int) -> dict[PartyName, PartyTable]:
    rng = np.random.default_rng(seed)
    if not job.participants:
        whole = _drawn(rng, job.rows, sum(job.features))
        label = _labels(rng, whole)
        edges = np.cumsum([0, *job.features])
        names = [DRIVER, *(f"passive{at}" for at in range(1, len(job.features)))]
        ids = np.arange(job.rows)
        tables = {name: PartyTable(ids.copy(), whole[edges[at] : edges[at + 1]]) for at, name in enumerate(names)}
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
