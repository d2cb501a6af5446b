"""Secure inference for `bench/elxgb.py`: what user, active party and CSP each take, and a load of users at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from common import among
from papers.elxgb.setting import PARTIES, job
from veilboost.boost.objective import make_objective
from veilboost.data import PartyTable
from veilboost.party.simulation import simulate_prediction, simulate_training
from veilboost.secure_inference.attributes import attributes_of
from veilboost.secure_inference.roles import MemoryService, QueuedModel

QUEUE = 50  # users that are served together


def timed(run: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    wall, processor = time.perf_counter(), time.process_time()
    result = run()
    return {"seconds": time.perf_counter() - wall, "processor_seconds": time.process_time() - processor}, result


class Watched:
    """Adds up what calls take."""

    def __init__(self) -> None:
        self.took = {"seconds": 0.0, "processor_seconds": 0.0}

    def __call__(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*given: Any) -> Any:
            took, result = timed(lambda: call(*given))
            self.took = {key: self.took[key] + took[key] for key in self.took}
            return result

        return watched


def service(table: PartyTable, scheme: str) -> tuple[MemoryService, dict[str, PartyTable], Any]:
    tables = among(table, PARTIES)
    run = simulate_training(tables, "party0", "elxgb", job(backend="lattice"), threads=2)
    attributes = {name: attributes_of(name, own.columns, "ordinal") for name, own in tables.items()}
    return MemoryService(run.shares, "party0", attributes, scheme=scheme, threads=2), tables, run


def served(table: PartyTable, scheme: str, count: int) -> dict[str, Any]:
    """So many users of a model of T = 5, D = 3, two threads; nothing is prepared before they come."""
    ready, tables, run = service(table, scheme)
    rows = {name: own.take(np.arange(count)) for name, own in tables.items()}
    columns = {column.name: column for own in rows.values() for column in own.columns}
    user, own, csp, model = ready.user(), Watched(), Watched(), Watched()
    ready.csp._service.directions = csp(ready.csp._service.directions)  # type: ignore[method-assign]
    values = user.directory.rows_of(columns, count)
    scores: list[np.ndarray] = []
    for low in range(0, count, QUEUE):
        query = own(user.query)(values[low : low + QUEUE])
        model(ready.model.check)(query)
        scores.append(model(ready.model.predict)([query.rows])[0])
    expected = make_objective("binary").predict(simulate_prediction(run.shares, "party0", rows))
    sent = ready.transcripts["party0"].bytes_sent() + ready.transcripts["csp"].bytes_sent()
    at_active = {key: model.took[key] - csp.took[key] for key in csp.took}
    return {
        "users": count,
        "M": ready.directory.size,
        "exact": bool(np.array_equal(np.concatenate(scores)[:, 0], expected)),
        "user": own.took,
        "active": at_active,
        "csp": csp.took,
        "seconds": own.took["seconds"] + model.took["seconds"],
        "processor_seconds_for_1000_scaled": 1000
        / count
        * (own.took["processor_seconds"] + model.took["processor_seconds"]),
        "kilobytes_of_a_row": query.rows.shape[1] / 1e3,
        "megabytes_of_active_and_csp_per_user": sent / count / 1e6,
    }


def load_of_users(table: PartyTable, at_once: int = 32) -> dict[str, Any]:
    """So many users at a time, each with one row, against the queue of the active party's service."""
    ready, tables, _ = service(table, "lattice")
    columns = {column.name: column.take(np.arange(at_once)) for own in tables.values() for column in own.columns}
    user = ready.user()
    values = user.directory.rows_of(columns, at_once)
    queries = [user.query(values[k : k + 1]) for k in range(at_once)]
    queued = QueuedModel(ready.model)
    waited = [0.0] * at_once
    together = threading.Barrier(at_once)

    def ask(k: int) -> None:
        together.wait()
        began = time.perf_counter()
        queued.predict(queries[k])
        waited[k] = time.perf_counter() - began

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(at_once)]
    took, _ = timed(lambda: [*(t.start() for t in threads), *(t.join() for t in threads)])
    return took | {"users": at_once, "batches": queued.batches, "longest_wait": max(waited)}
