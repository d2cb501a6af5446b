"""One machine, rows on disk: a pool that keeps arrays in files and sees them through memory maps.

The system brings in what is looked at and drops it when memory is short, so rows are bounded by the disk. A shard is
worked on at a time, by this process's threads.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from veilboost.engine.pool import Ref
from veilboost.errors import UnreadableFile
from veilboost.types import AnyArray

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
