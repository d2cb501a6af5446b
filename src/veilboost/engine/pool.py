"""Who runs pieces of work: a pool keeps values, and calls pure functions of them."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

import numpy as np

from veilboost.errors import UnreadableFile
from veilboost.types import AnyArray

Ref: TypeAlias = Any  # a value that a pool keeps; what it is, is the pool's own affair
FAN_IN = 4  # how many partial results one piece of work puts together


class Pool(Protocol):
    """Functions are pure and their arguments immutable, so a piece of work may run twice, anywhere."""

    def put(self, value: Any) -> Ref: ...
    def get(self, refs: Sequence[Ref]) -> list[Any]:
        """The values, in order. Raises what the work that makes them raised."""
        ...

    def call(self, function: Callable[..., Any], *arguments: Any) -> Ref:
        """Run a function of the `veilboost` package soon; arguments that are refs are handed over as values."""
        ...

    def call_for(self, count: int, function: Callable[..., Any], *arguments: Any) -> list[Ref]:
        """The same for a function that returns so many values."""
        ...

    @property
    def workers(self) -> int:
        """How many processes have really done work."""
        ...

    def close(self) -> None: ...


class SerialPool:
    """Calls at once, in this process: shards without workers."""

    workers = 1

    def put(self, value: Any) -> Ref:
        return value

    def get(self, refs: Sequence[Ref]) -> list[Any]:
        return list(refs)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Ref:
        return function(*arguments)

    def call_for(self, count: int, function: Callable[..., Any], *arguments: Any) -> list[Ref]:
        return list(function(*arguments))

    def close(self) -> None:
        pass


def reduced(pool: Pool, function: Callable[..., Any], refs: Sequence[Ref]) -> Any:
    """The value of an associative function of many arguments, a few at a time, as a tree."""
    while len(refs) > 1:
        refs = [
            pool.call(function, *refs[at : at + FAN_IN]) if at + 1 < len(refs) else refs[at]
            for at in range(0, len(refs), FAN_IN)
        ]
    return pool.get(refs)[0]


# --- rows on disk --------------------------------------------------------------------------------------------------
#
# One machine, rows on disk: a pool that keeps arrays in files and sees them through memory maps.
#
# The system brings in what is looked at and drops it when memory is short, so rows are bounded by the disk. A shard is
# worked on at a time, by this process's threads.


LEAST_BYTES = 1 << 16  # smaller arrays are not worth a file


class DiskPool:
    """Calls at once, in this process; what comes back is kept in files of `folder`, which end with it."""

    workers = 1

    def __init__(self, folder: str | Path | None = None) -> None:
        self._folder = None if folder is None else str(folder)
        if folder is not None and not Path(folder).is_dir():
            raise UnreadableFile(f"there is no folder {self._folder!r} to keep rows in", "make it, or name another")

    def put(self, value: Any) -> Ref:
        return self._kept(value)

    def get(self, refs: Sequence[Ref]) -> list[Any]:
        return list(refs)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Ref:
        return self._kept(function(*arguments))

    def call_for(self, count: int, function: Callable[..., Any], *arguments: Any) -> list[Ref]:
        return [self._kept(value) for value in function(*arguments)]

    def close(self) -> None:
        pass  # files have no names: they go when nobody looks at them any more

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
