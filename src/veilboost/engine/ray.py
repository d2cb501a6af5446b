"""Ray as a pool: values are objects in its store, pieces of work are tasks that go where their objects are.

A task whose worker dies runs again, and an object that is lost with its machine is made again from the tasks that made
it; both are Ray's own doing, and neither changes a result, because tasks are pure.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

from veilboost.engine.pool import Ref
from veilboost.errors import MissingExtra, WorkersLost

RETRIES = 4  # of a task whose worker died
LOOK_EVERY = 64  # calls after which it is seen who has worked: what nobody asked for yet is kept, with all its inputs
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DISABLE_IMPORT_WARNING": "1", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
# On one machine nothing is lost with another, so how objects were made need not be known for long; and nobody looks at
# the history of tasks. Both would grow in the driver with shards and trees.
_FORGETFUL = {"max_lineage_bytes": 1_000_000, "task_events_report_interval_ms": 0}


def run_and_tell(function: Callable[..., Any], *arguments: Any) -> Any:
    """A piece of work, and which process did it."""
    value = function(*arguments)
    return value, f"{os.uname().nodename}:{os.getpid()}"


def run_all_and_tell(function: Callable[..., Any], *arguments: Any) -> Any:
    return (*function(*arguments), f"{os.uname().nodename}:{os.getpid()}")


class RayPool:
    """A cluster: one of this machine's own with so many workers, or one that runs already at `address`."""

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
                    self._ray.init("local", num_cpus=cores, include_dashboard=False, _system_config=_FORGETFUL, **quiet)
                else:
                    self._ray.init(address=address, **quiet)
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise WorkersLost(f"the Ray cluster could not be reached or started ({type(error).__name__})") from None
        self.size: int = workers or int(self._ray.cluster_resources().get("CPU", 1))
        self._run = self._ray.remote(run_and_tell)
        self._run_all = self._ray.remote(run_all_and_tell)
        self._lock = threading.Lock()
        self._tellers: list[Ref] = []
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
            raise WorkersLost(f"work was lost with its workers ({type(error).__name__})") from None

    def call(self, function: Callable[..., Any], *arguments: Any) -> Ref:
        value, teller = self._run.options(num_returns=2, max_retries=RETRIES).remote(function, *arguments)
        self._note(teller)
        return value

    def call_for(self, count: int, function: Callable[..., Any], *arguments: Any) -> list[Ref]:
        task = self._run_all.options(num_returns=count + 1, max_retries=RETRIES)
        *values, teller = task.remote(function, *arguments)
        self._note(teller)
        return values

    @property
    def workers(self) -> int:
        self._look()
        return len(self._seen)

    def close(self) -> None:
        if self._started:
            self._ray.shutdown()

    def _note(self, teller: Ref) -> None:
        with self._lock:  # parties that share a process share its engine
            self._tellers.append(teller)
            if len(self._tellers) < self._look_at:
                return
            asked, self._tellers = self._tellers, []
        done, rest = self._ray.wait(asked, num_returns=len(asked), timeout=0)
        self._hear(done)
        with self._lock:
            self._tellers += rest
            self._look_at = len(self._tellers) + LOOK_EVERY

    def _look(self) -> None:
        with self._lock:
            asked, self._tellers = self._tellers, []
        self._hear(asked)

    def _hear(self, tellers: Sequence[Ref]) -> None:
        for teller in tellers:
            with contextlib.suppress(Exception):  # work that failed: whoever asks for its value hears why
                self._seen.add(self.get([teller])[0])
