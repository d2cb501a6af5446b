"""Who runs pieces of work: a pool keeps values, and calls pure functions of them, here, on disk or on Ray.

In Ray's store values are objects, and pieces of work are tasks that go where their objects are. A task whose worker
dies runs again, and an object that is lost with its machine is made again from the tasks that made it; both are Ray's
own doing, and neither changes a result, because tasks are pure.
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

Ref: TypeAlias = Any  # a value that a pool keeps; what it is, is the pool's own affair
FAN_IN = 4  # how many partial results one piece of work puts together


class Pool:
    """Calls at once, in this process. Functions are pure and their arguments immutable, so others may run one twice."""

    def put(self, value: Any) -> Ref:
        return self._kept(value)

    def get(self, refs: Sequence[Ref]) -> list[Any]:
        """The values, in order. Raises what the work that makes them raised."""
        return list(refs)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Ref:
        """Run a function of the `veilboost` package soon; arguments that are refs are handed over as values."""
        return self._kept(function(*arguments))

    def call_for(self, count: int, function: Callable[..., Any], *arguments: Any) -> list[Ref]:
        """The same for a function that returns so many values."""
        return [self._kept(value) for value in function(*arguments)]

    @property
    def workers(self) -> int:
        """How many processes have really done work."""
        return 1

    def close(self) -> None:
        pass

    def _kept(self, value: Any) -> Any:
        return value


def reduced(pool: Pool, function: Callable[..., Any], refs: Sequence[Ref]) -> Any:
    """The value of an associative function of many arguments, a few at a time, as a tree."""
    while len(refs) > 1:
        refs = [
            pool.call(function, *refs[at : at + FAN_IN]) if at + 1 < len(refs) else refs[at]
            for at in range(0, len(refs), FAN_IN)
        ]
    return pool.get(refs)[0]


LEAST_BYTES = 1 << 16  # smaller arrays are not worth a file


class DiskPool(Pool):
    """Keeps arrays in files of `folder`, which have no names and go when nobody looks at them any more.

    They are seen through memory maps: the system brings in what is looked at and drops it when memory is short, so rows
    are bounded by the disk.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self._folder = None if folder is None else str(folder)
        if folder is not None and not Path(folder).is_dir():
            raise UnreadableFile(f"there is no folder {self._folder!r} to keep rows in", "make it, or name another")

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


class RayPool(Pool):
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
