"""What a training costs: seconds, bytes, rounds and memory, each run in a process of its own."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from veilboost.boost.booster import RoundResult
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.model.joined import join
from veilboost.party.simulation import simulate_training
from veilboost.types import PartyName

Tables = Mapping[PartyName, PartyTable]


@dataclass(frozen=True)
class Cost:
    """What a tree takes; memory is that of all parties together, over the whole run.

    Seconds of the clock are of rounds alone, without bins and keys. Seconds of the processor count these too, unless
    the run was warmed up.
    """

    seconds_per_tree: float
    cpu_seconds_per_tree: float
    megabytes_per_tree: float
    rounds_per_tree: float
    peak_rss_mb: float
    sha256: str  # of the whole model

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def training_cost(tables: Tables, protocol: str, config: TrainingConfig, *, warm_up: bool = False) -> Cost:
    """Train here, one thread for each party; the first party is the active one.

    `warm_up` grows one tree more, the first, whose seconds do not count.
    """
    trees = config.n_estimators
    job = replace(config, n_estimators=trees + 1) if warm_up else config
    spent = [time.process_time()]

    def watch(_: RoundResult) -> None:
        spent.append(time.process_time())

    run = simulate_training(tables, next(iter(tables)), protocol, job, watcher=watch)
    return Cost(
        seconds_per_tree=float(np.mean([each.seconds for each in run.history[-trees:]])),
        cpu_seconds_per_tree=(spent[-1] - spent[-1 - trees]) / trees,
        megabytes_per_tree=run.bytes_sent / job.n_estimators / 1e6,
        rounds_per_tree=run.rounds / job.n_estimators,
        peak_rss_mb=peak_rss_mb(),
        sha256=join(run.parts).sha256(),
    )


def cost_apart(
    tables: Tables, protocol: str, config: TrainingConfig, *, warm_up: bool = False, patience: float | None = None
) -> Cost:
    """`training_cost` in a process of its own, so that its memory is its own.

    Raises
    ------
    TimeoutError
        It took longer than `patience` seconds, with its start.
    RuntimeError
        It broke down; its own process has said why on stderr.
    """
    receive, send = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(
        target=_send_cost, args=(tables, protocol, config, warm_up, send), daemon=True
    )
    process.start()
    send.close()
    try:
        if not receive.poll(patience):
            raise TimeoutError(f"{protocol} took more than {patience:g} seconds")
        return receive.recv()
    except (EOFError, ConnectionError):
        raise RuntimeError(f"{protocol} broke down while it was measured") from None
    finally:
        process.kill()
        process.join()


def _send_cost(tables: Tables, protocol: str, config: TrainingConfig, warm_up: bool, pipe: Connection) -> None:
    pipe.send(training_cost(tables, protocol, config, warm_up=warm_up))


def peak_rss_mb() -> float:
    """Of this process alone; what `getrusage` tells starts from the parent's. 0 where the system does not say."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)
