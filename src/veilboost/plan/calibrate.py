"""Measure the cost of units of work on this machine: run small jobs and fit unit costs to them."""

from __future__ import annotations

import itertools
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from veilboost import __version__
from veilboost.boost.booster import RoundResult
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.durable import replace_file
from veilboost.errors import UnreadableFile
from veilboost.party.simulation import SERVER, HorizontalFederation
from veilboost.party.training import PassiveSession, TrainingJob, train_active
from veilboost.plan.predict import Calibration, UnitCosts, cost_of, of_first, of_later, units_of
from veilboost.protocols.cost import ONCE, InTurn, PlannedJob, Units
from veilboost.protocols.registry import protocol_named
from veilboost.protocols.validation import settle
from veilboost.types import Column, Float64Array, PartyName
from veilboost.wire.channel import Channel, Handler, MemoryChannel, Peers, Reply
from veilboost.wire.message import Catalogue, Message
from veilboost.wire.transcript import LINES, Network, Transcript

FILE = "plan.json"
DRIVER = "active"
_FORMAT = "veilboost-plan 5"
# All jobs are run several times, and the fastest run of each counts: the rest is noise. In each turn, only jobs that
# take fewer seconds than this are repeated.
_TURNS = (float("inf"), 3.0, *3 * (0.5,), *8 * (0.1,))
# The smallest run, if its size is not declared: initial rows, and the rows or seconds at which to stop growing.
_FEW_ROWS, _MANY_ROWS, _MOMENT = 100, 2_000, 0.02
Result = TypeVar("Result")
_LEAST_SHARE = 0.1  # share of a run's seconds below which parts are not fitted more precisely


def calibrate(
    protocol: str,
    watch: Callable[[int, int], None] | None = None,
    known: Mapping[str, Calibration] | None = None,
) -> Calibration:
    """Train small jobs of different shapes, and fit unit costs. `watch` receives the numbers of finished and all runs.

    A protocol whose first tree uses another protocol combines both calibrations; those in `known` are not repeated.
    """
    declared = protocol_named(protocol).cost
    if isinstance(declared, InTurn):
        parts = ((known or {}).get(name) or calibrate(name, watch) for name in (declared.first, declared.later))
        return in_turn(declared, *parts)
    jobs = list(_jobs(protocol))
    best: dict[PlannedJob, Measured] = {}
    for turn, most in enumerate(_TURNS):
        for at, job in enumerate(jobs):
            if watch is not None:
                watch(turn * len(jobs) + at, len(_TURNS) * len(jobs))
            if job not in best:
                best[job] = measure(protocol, job)
            elif best[job].seconds < most:
                best[job] = min(best[job], measure(protocol, job), key=lambda run: run.seconds)
    return fit(protocol, list(best.values()))


def fit(protocol: str, runs: Sequence[Measured]) -> Calibration:
    """Unit costs with the smallest relative errors on these runs; no cost is negative."""
    cost = cost_of(protocol)
    units = [units_of(cost, run.job) for run in runs]
    single = [units_of(cost, replace(run.job, trees=1)) for run in runs]
    least = [_LEAST_SHARE * run.seconds for run in runs]
    # A message is at most as large as all messages of a tree in one direction.
    shapes = tuple(dict.fromkeys((*cost.sent, *cost.answered)))
    return Calibration(
        once_here=_solve(cost.once_here, units, [run.once_here for run in runs], least),
        once_there=_solve(cost.once_there, units, [run.once_there for run in runs], least),
        here=_solve(cost.here, units, [run.here for run in runs], least),
        there=_solve(cost.there, units, [run.there for run in runs], least),
        sent=_solve(cost.sent, units, [run.sent for run in runs]),
        answered=_solve(cost.answered, units, [run.answered for run in runs]),
        rounds=_solve(cost.steps, units, [run.rounds for run in runs]),
        largest=_solve(shapes, single, [run.largest for run in runs]),
    )


def in_turn(turns: InTurn, first: Calibration, later: Calibration) -> Calibration:
    """The first tree and all one-time work from one protocol, all other trees from another."""
    of_all = cost_of(turns.first)

    def joined(name: str) -> UnitCosts:
        of_one, of_other = getattr(first, name), getattr(later, name)
        return {of_first(unit, of_all): cost for unit, cost in of_one.items()} | {
            of_later(unit): cost for unit, cost in of_other.items() if unit not in ONCE
        }

    return Calibration(**{field.name: joined(field.name) for field in fields(Calibration)})


def _jobs(protocol: str) -> Iterator[PlannedJob]:
    """Shapes that differ in rows, columns, levels, bins and trees, so that their costs can be separated."""
    cost = cost_of(protocol)
    far = cost.reach
    if protocol_named(protocol).setting == "horizontal":
        scale = cost.scale or _scale(protocol, PlannedJob(_FEW_ROWS, (4,), 2, 2, 8, 3))
        for rows, participants, columns, depth, bins, trees in (
            (1, 3, 4, 2, 8, 2), (3, 6, 4, 3, 16, 4), (10, 4, 8, 4, 16, 2), (3, 4, 12, 3, 8, 3), (10, 8, 4, 3, 32, 2),
            (far, 4, 6, 3, 16, 2), (far // 2, 3, 9, 4, 32, 3), (1, 10, 6, 5, 16, 2),
        ):  # fmt: skip
            yield PlannedJob(scale * rows, (columns,), trees, depth, bins, participants)
        return
    scale = cost.scale or _scale(protocol, PlannedJob(_FEW_ROWS, (4, 4), 1, 3, 16))
    # Protocols that adapt to the line use all of their ways.
    for (rows, own, other, depth, bins, trees), line in zip(
        (
            (1, 4, 4, 3, 16, 1), (3, 4, 4, 6, 16, 2), (10, 4, 4, 4, 16, 3), (3, 9, 2, 4, 32, 1), (3, 2, 9, 4, 32, 2),
            (1, 4, 8, 5, 64, 3), (10, 6, 6, 5, 32, 2), (1, 2, 2, 4, 16, 6), (far, *cost.far),
        ), itertools.cycle(("wan", "far", "lan")),
    ):  # fmt: skip
        size = scale * rows, (own, other), min(trees, cost.most_trees), depth, bins
        yield PlannedJob(*size, network=LINES[line])


def _scale(protocol: str, job: PlannedJob) -> int:
    """Rows of the smallest run of a protocol that does not declare them: as many as take `_MOMENT` seconds."""
    while job.rows < _MANY_ROWS and measure(protocol, job).seconds < _MOMENT:
        job = replace(job, rows=3 * job.rows)
    return job.rows


def _solve(
    names: Sequence[str], units: Sequence[Units], measured: Sequence[float], least: Sequence[float] = ()
) -> UnitCosts:
    """Non-negative least squares of relative errors; errors are relative to at least `least`."""
    if not names:
        return {}
    optimize: Any = import_module("scipy.optimize")
    target = np.maximum(np.array(measured), 1e-9)
    within = np.maximum(target, least) if len(least) else target
    work = np.array([[each[name] for name in names] for each in units])
    scale = np.maximum(work.max(axis=0), 1e-12)
    found: Float64Array = optimize.nnls(work / scale / within[:, np.newaxis], target / within)[0] / scale
    return dict(zip(names, found.tolist(), strict=True))


# --- cache --------------------------------------------------------------------------------------------------


def cache_file() -> Path:
    """The file that stores calibrations, in the user's cache folder."""
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "veilboost" / FILE


def load_calibrations(file: Path) -> dict[str, Calibration]:
    """The calibrations of this machine and release; empty if there is no file, or one of another machine or release."""
    try:
        kept: Any = json.loads(file.read_text(encoding="utf-8"))
        if kept["format"] != _FORMAT or kept["of"] != _origin():
            return {}
        return {str(name): Calibration(**costs) for name, costs in cast(dict[str, Any], kept["protocols"]).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError):
        raise UnreadableFile(f"{file} is not a calibration", "remove it, and run veilboost plan --calibrate") from None


def save_calibrations(file: Path, found: Mapping[str, Calibration]) -> None:
    kept = {name: vars(each) for name, each in found.items()}
    text = json.dumps({"format": _FORMAT, "of": _origin(), "protocols": kept}, indent=1)
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, (text + "\n").encode())


def _origin() -> dict[str, str]:
    """Identifies this machine and release: machines may share a home folder."""
    return {"release": __version__, "machine": platform.node(), "processor": platform.machine()}


# --- measuring small runs ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """CPU seconds of the driver (here) and of all others (there), before the first round and in rounds; and traffic."""

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
    """Train such a job in this process on random data, with one thread per party.

    Seconds are CPU seconds, so a busy machine matters little.
    """
    config = TrainingConfig(
        objective="binary",
        n_estimators=job.trees,
        max_depth=job.depth,
        max_bin=job.bins,
        random_state=seed,
        options=cost_of(protocol).options,
    )
    config = replace(config, **protocol_named(protocol).fixed)
    tables = _tables(job, seed)
    meter = Meter()
    if job.participants:
        transcripts, driver, rounds = _horizontal(protocol, tables, config, meter)
    else:
        transcripts, driver, rounds = _vertical(protocol, tables, config, meter, job.network)
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
    """CPU seconds of the driver and of the handlers that it waits for, before the first round and after.

    Wall-clock and CPU time are read together wherever a handler starts or ends: on a shared machine, a second of
    wall-clock time is worth a varying amount of CPU time.
    """

    def __init__(self) -> None:
        self._stamps: list[tuple[float, float]] = []  # wall-clock and CPU time: begin, end, begin, end ...
        self._first: tuple[float, float] | None = None  # when the first round ended, and its duration
        self._begin = self._now()

    def timed(self, handler: Handler) -> Handler:
        def handle(message: Message) -> Reply:
            reply = self.elsewhere(lambda: handler(message))
            return reply if isinstance(reply, Message) else lambda: self.elsewhere(reply)

        return handle

    def elsewhere(self, work: Callable[[], Result]) -> Result:
        """Time work that other parties do in a real federation."""
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


Run = tuple[Mapping[PartyName, Transcript], PartyName, int]  # transcripts, driver and number of exchanges


def _vertical(
    protocol: str, tables: Mapping[PartyName, PartyTable], config: TrainingConfig, meter: Meter, network: Network
) -> Run:
    """Like `simulate_training`, with a meter between the parties."""
    spec = protocol_named(protocol)
    transcripts = {name: Transcript(name) for name in tables}
    channels: dict[PartyName, Channel] = {}
    for name, table in tables.items():
        if name != DRIVER:
            opened = partial(PassiveSession, spec, name, table)
            role = meter.elsewhere(opened).side
            channels[name] = MemoryChannel(
                meter.timed(role.handle), Catalogue(spec.messages), transcripts[DRIVER], transcripts[name]
            )
    peers = Peers(channels, network)
    job = TrainingJob(spec, config, tuple(tables))
    train_active(job, DRIVER, tables[DRIVER], peers, watcher=meter.watch)
    return transcripts, DRIVER, peers.rounds


def _horizontal(protocol: str, tables: Mapping[PartyName, PartyTable], config: TrainingConfig, meter: Meter) -> Run:
    completed = settle(protocol_named(protocol, "horizontal"), config)
    opened = partial(HorizontalFederation, protocol, tables, completed, threads=1, watcher=meter.watch)
    federation = meter.elsewhere(opened)  # participants read their tables
    for role in federation.participants.values():
        setattr(role, "handle", meter.timed(role.handle))  # noqa: B010 - looked up on every call
    found = federation.train()
    return found.transcripts, SERVER, found.rounds


def _tables(job: PlannedJob, seed: int) -> dict[PartyName, PartyTable]:
    rng = np.random.default_rng(seed)
    if not job.participants:
        columns = _drawn(rng, job.rows, sum(job.features))
        label = _labels(rng, columns)
        edges = np.cumsum([0, *job.features])
        names = [DRIVER, *(f"passive{at}" for at in range(1, len(job.features)))]
        ids = np.arange(job.rows)
        tables = {name: PartyTable(ids.copy(), columns[edges[at] : edges[at + 1]]) for at, name in enumerate(names)}
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
    """Labels that depend on every second column, so that trees split at every level and by all parties."""
    score = np.sum([each.values for each in columns[::2]], axis=0)
    return (score + rng.normal(scale=np.std(score), size=len(score)) > 0).astype(np.float64)
