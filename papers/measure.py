"""How things are measured: what a training costs, how good its model becomes, and what attacks on it find."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from papers.experiments import experiments_at_hand
from papers.fingerprint import small_run
from papers.noise import Method
from papers.rows import Row
from papers.tables import ACTIVE, among, divided, hold_out, labels
from papers.target import Cell
from veilboost.audit.attack import Attack, Finding
from veilboost.audit.attacks import attack
from veilboost.audit.sources import views_of_simulation
from veilboost.boost.booster import RoundResult
from veilboost.boost.metrics import auc, logloss
from veilboost.boost.objective import sigmoid
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.model.joined import JoinedModel, join
from veilboost.party.simulation import simulate_training
from veilboost.types import Float64Array, Int32Array, PartyName

Tables = Mapping[PartyName, PartyTable]

# --- how long it will take --------------------------------------------------------------------------------

# Seconds per tree of depth 6 on one core of a 2.5 GHz Xeon, by rows and columns: precise enough for a rough estimate
# before a run starts. `veilboost plan` knows better, after calibration.
START = 3.0  # a process of its own: imports and the table
_PER_ROW = {
    "plain": 1e-6,
    "federboost": 1.2e-6,
    "ldp": 3e-6,
    "masked-law": 4e-6,
    "lattice": 1e-5,
    "smm1": 2e-5,
    "smm2": 4e-5,
}
_PAILLIER = {512: 9e-5, 1024: 2.5e-4, 2048: 8e-4, 3072: 2.2e-3}
_MASKED = 3e-6  # per row, passive column and noise vector


def training_seconds(
    protocol: str, rows: int, passive_columns: int, trees: int, options: Mapping[str, Any] | None = None
) -> float:
    """Of all trees, without what a process needs to start."""
    own = options or {}
    if protocol == "masked":
        each = _MASKED * passive_columns * int(own.get("noise_vectors") or 1)
    elif protocol == "paillier":
        each = _PAILLIER[int(own.get("key_bits", 2048))]
    else:
        each = _PER_ROW[protocol]
    return trees * (0.01 + rows * each)


# --- what it costs ----------------------------------------------------------------------------------------


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
        sha256=join(run.shares).sha256(),
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
    """Peak memory of this process alone; `getrusage` starts from the parent's. 0 if the system does not report it."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


def cost_cell(
    key: Row, table: PartyTable, method: Method, config: TrainingConfig, values: Sequence[str], *, warm_up: bool
) -> Cell:
    """The cost of training by a method, in a process of its own, two parties with half of the columns each."""
    job = replace(config, options=method.options, **method.settings)

    def measure() -> Row:
        cost = cost_apart(among(table, 2), method.protocol, job, warm_up=warm_up).to_dict()
        return {name: cost[name] for name in values}

    columns, trees = len(table.columns) // 2, config.n_estimators + warm_up
    return Cell(
        key,
        measure,
        small_run(method.protocol, job),
        START + training_seconds(method.protocol, table.rows, columns, trees, method.options),
    )


# --- quality, and what it reveals --------------------------------------------------------------------------


@dataclass(frozen=True)
class Learning:
    """A value after each tree: AUC and loss of test rows; loss of training rows where it was asked for.

    `passive_share` is the share of splits on a passive party's columns.
    """

    auc: list[float]
    loss: list[float]
    train_loss: list[float]
    passive_share: float


def learning(
    table: PartyTable,
    own: float,
    seed: int,
    protocol: str,
    config: TrainingConfig,
    *,
    on_training_rows: bool = False,
    alone: bool = False,
) -> Learning:
    """Train on four fifths of the rows of a binary table, and test on the others after every tree.

    `own` is the active party's share of the columns; the seed decides about the rows. `alone`: without the passive
    party, who has the other columns.
    """
    seen, unseen = (divided(table.take(rows), own) for rows in hold_out(table.rows, seed=seed))
    if alone:
        seen, unseen = {ACTIVE: seen[ACTIVE]}, {ACTIVE: unseen[ACTIVE]}
    with experiments_at_hand():
        # Threads change how long it takes and nothing else.
        run = simulate_training(seen, ACTIVE, protocol, replace(config, random_state=seed), threads=os.cpu_count() or 1)
    model = join(run.shares)
    after, truth = predictions(model, unseen), labels(unseen[ACTIVE])
    before, known = predictions(model, seen) if on_training_rows else [], labels(seen[ACTIVE])
    return Learning(
        [float(auc(truth, p)) for p in after],
        [float(logloss(truth, p)) for p in after],
        [float(logloss(known, p)) for p in before],
        passive_share(model),
    )


def passive_share(model: JoinedModel) -> float:
    """The share of splits that are not the active party's; 0 where nothing was split."""
    owners: Int32Array = np.concatenate([tree.owner[tree.inner] for tree in model.trees])
    own = np.count_nonzero(owners == model.skeleton.parties.index(ACTIVE))
    return 1.0 - own / len(owners) if len(owners) else 0.0


def predictions(model: JoinedModel, tables: Tables) -> list[Float64Array]:
    """Probabilities after each tree of a binary model. (A row may be routed otherwise than in training, where noise
    was on buckets: what counts is how the finished model predicts.)"""
    columns = {name: table.columns for name, table in tables.items()}
    return [sigmoid(margin[0]) for margin in model.staged_margins(columns)]


def attacked(tables: Tables, protocol: str, config: TrainingConfig, attacks: Iterable[Attack]) -> list[Finding]:
    """What these attacks find in one run of two parties, the active one first."""
    run = simulate_training(tables, next(iter(tables)), protocol, config, record="payload")
    views, truth = views_of_simulation(run, tables)
    active, passive = tables
    parties = {"active": active, "passive": passive}
    applicable = ((how, views[parties[how.adversary]], truth, parties[how.victim]) for how in attacks)
    found = (attack(*each, np.random.default_rng(config.random_state)) for each in applicable)
    return [finding for finding in found if finding is not None]
