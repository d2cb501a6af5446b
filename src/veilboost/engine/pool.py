"""Pools: they store values and call pure functions of them, in this process, on disk or on Ray.

In Ray's store values are objects, and calls are tasks that run where their objects are. Ray repeats a task whose worker
dies, and recomputes an object that is lost with its machine from the tasks that made it. Neither changes a result,
because tasks are pure.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np

from veilboost.errors import MissingExtra, UnreadableFile, WorkersLost
from veilboost.types import AnyArray

Ref: TypeAlias = Any  # a reference to a value in a pool; its type depends on the pool
FAN_IN = 4  # partial results that one task combines


class Pool:
    """Calls functions at once, in this process. They are pure and arguments immutable, so others may run one twice."""

    def put(self, value: Any) -> Ref:
        return self._kept(value)

    def get(self, refs: Sequence[Ref]) -> list[Any]:
        """The values, in order. Raises the exception of the task that computes them, if it failed."""
        return list(refs)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Ref:
        """Schedule a function of the `veilboost` package; arguments that are references are passed as values."""
        return self._kept(function(*arguments))

    def call_for(self, count: int, function: Callable[..., Any], *arguments: Any) -> list[Ref]:
        """The same for a function that returns `count` values."""
        return [self._kept(value) for value in function(*arguments)]

    @property
    def workers(self) -> int:
        """The number of processes that have run tasks."""
        return 1

    def close(self) -> None:
        pass

    def _kept(self, value: Any) -> Any:
        return value


def reduced(pool: Pool, function: Callable[..., Any], refs: Sequence[Ref]) -> Any:
    """Reduce many values with an associative function, a few at a time, as a tree."""
    while len(refs) > 1:
        refs = [
            pool.call(function, *refs[at : at + FAN_IN]) if at + 1 < len(refs) else refs[at]
            for at in range(0, len(refs), FAN_IN)
        ]
    return pool.get(refs)[0]


LEAST_BYTES = 1 << 16  # smaller arrays are not worth a file


class DiskPool(Pool):
    """Stores arrays in unnamed files in `folder`, which are deleted when the arrays are no longer used.

    Arrays are memory-mapped: the system loads pages on access and drops them when memory is short, so the number of
    rows is bounded by the disk.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self._folder = None if folder is None else str(folder)
        if folder is not None and not Path(folder).is_dir():
            raise UnreadableFile(f"there is no folder {self._folder!r} to store rows in", "make it, or name another")

    def _kept(self, value: Any) -> Any:
        """The same value with its large arrays in files."""
        if isinstance(value, np.ndarray):
            return self._mapped(cast(AnyArray, value))
        if isinstance(value, tuple | list):
            parts = [self._kept(part) for part in cast("Sequence[Any]", value)]
            return type(cast(Any, value))(parts)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
            return dataclasses.replace(value, **{name: self._kept(part) for name, part in fields.items()})
        return value

    def _mapped(self, array: AnyArray) -> AnyArray:
        if array.nbytes < LEAST_BYTES or isinstance(array.base, np.memmap):
            return array
        with tempfile.TemporaryFile(dir=self._folder, prefix="veilboost-") as file:
            mapped = np.memmap(file, dtype=array.dtype, mode="w+", shape=array.shape)
        mapped[...] = array
        mapped.flush()
        mapped.flags.writeable = False
        return mapped.view(np.ndarray)


RETRIES = 4  # retries of a task whose worker died
LOOK_EVERY = 64  # calls between checks of which workers ran: pending results are kept in memory with all their inputs
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DISABLE_IMPORT_WARNING": "1", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
# On one machine no object is lost with another machine, so a short lineage suffices, and the history of tasks is not
# used. Both would grow in the driver with shards and trees.
_SHORT_HISTORY = {"max_lineage_bytes": 1_000_000, "task_events_report_interval_ms": 0}


def run_with_worker(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a task, and the process that ran it."""
    value = function(*arguments)
    return value, f"{os.uname().nodename}:{os.getpid()}"


def run_all_with_worker(function: Callable[..., Any], *arguments: Any) -> Any:
    return (*function(*arguments), f"{os.uname().nodename}:{os.getpid()}")


class RayPool(Pool):
    """A Ray cluster: a local one with `workers` workers, or a running one at `address`."""

    def __init__(self, workers: int | None, address: str | None = None) -> None:
        for name, value in _QUIET.items():
            os.environ.setdefault(name, value)
        try:
            self._ray: Any = importlib.import_module("ray")
        except ModuleNotFoundError:
            raise MissingExtra("the engine ray needs ray", "pip install 'veilboost[ray]'") from None
        self._started = not self._ray.is_initialized()
        if self._started:
            quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
            try:
                if address is None:
                    cores = workers or len(os.sched_getaffinity(0))
                    self._ray.init(
                        "local", num_cpus=cores, include_dashboard=False, _system_config=_SHORT_HISTORY, **quiet
                    )
                else:
                    try:
                        self._ray.init(address=address, **quiet)
                    except ConnectionAbortedError:  # a busy head gave up waiting for what it starts for each client
                        self._ray.init(address=address, **quiet)
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise WorkersLost(f"the Ray cluster could not be reached or started ({type(error).__name__})") from None
        self.size: int = workers or int(self._ray.cluster_resources().get("CPU", 1))
        self._run = self._ray.remote(run_with_worker)
        self._run_all = self._ray.remote(run_all_with_worker)
        self._lock = threading.Lock()
        self._worker_refs: list[Ref] = []
        self._look_at = LOOK_EVERY
        self._seen: set[str] = set()

    def put(self, value: Any) -> Ref:
        return self._ray.put(value)

    def get(self, refs: Sequence[Ref]) -> list[Any]:
        errors = self._ray.exceptions
        try:
            return list(self._ray.get(list(refs)))
        except errors.RayTaskError as error:
            raise (error.cause if isinstance(error.cause, Exception) else error) from None
        except errors.RayError as error:
            raise WorkersLost(f"tasks were lost with their workers ({type(error).__name__})") from None

    def call(self, function: Callable[..., Any], *arguments: Any) -> Ref:
        value, worker = self._run.options(num_returns=2, max_retries=RETRIES).remote(function, *arguments)
        self._note(worker)
        return value

    def call_for(self, count: int, function: Callable[..., Any], *arguments: Any) -> list[Ref]:
        task = self._run_all.options(num_returns=count + 1, max_retries=RETRIES)
        *values, worker = task.remote(function, *arguments)
        self._note(worker)
        return values

    @property
    def workers(self) -> int:
        self._look()
        return len(self._seen)

    def close(self) -> None:
        if self._started:
            self._ray.shutdown()

    def _note(self, worker: Ref) -> None:
        with self._lock:  # parties that share a process share its engine
            self._worker_refs.append(worker)
            if len(self._worker_refs) < self._look_at:
                return
            pending, self._worker_refs = self._worker_refs, []
        done, rest = self._ray.wait(pending, num_returns=len(pending), timeout=0)
        self._record(done)
        with self._lock:
            self._worker_refs += rest
            self._look_at = len(self._worker_refs) + LOOK_EVERY

    def _look(self) -> None:
        with self._lock:
            pending, self._worker_refs = self._worker_refs, []
        self._record(pending)

    def _record(self, workers: Sequence[Ref]) -> None:
        for worker in workers:
            with contextlib.suppress(Exception):  # a failed task: reading its value raises the reason
                self._seen.add(self.get([worker])[0])
