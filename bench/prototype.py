"""How fast another C++ kernel of the same scheme is: the yardstick of `bench/encryption.py --prototype DIR`.

DIR holds `lattice.cpp` and `lattice_ctypes.py`, which loads the compiled kernel and has keygen, encrypt, load,
aggregate and decrypt. It is compiled in a temporary folder for this machine.
"""

from __future__ import annotations

import importlib.util
import math
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

LOG_DELTA, LOG_FLOOD = 60, 58


class Prototype:
    """The compiled kernel; a node's exchange step by step, with the CPU seconds of each."""

    def __init__(self, folder: Path) -> None:
        with tempfile.TemporaryDirectory() as name:
            library = Path(name) / "liblattice.so"
            flags = ["-O3", "-march=native", "-std=c++17", "-shared", "-fPIC", "-pthread"]
            subprocess.run(["g++", *flags, str(folder / "lattice.cpp"), "-o", str(library)], check=True)
            source = Path(shutil.copy(folder / "lattice_ctypes.py", name))
            self._kernel = _import(source)  # the library stays mapped when the folder is gone
        self._key, self._public = self._kernel.keygen()

    def exchange(self, pairs: np.ndarray, bins: np.ndarray, width: int, run: int | None = None) -> dict[str, float]:
        """Sums per bin of values (rows, 2) under bins (features, rows); raises where they are not exact."""
        kernel, seconds = self._kernel, {}
        run = run or tile_rows(len(pairs), len(bins) * width, kernel.N)

        def timed(step: str, work: Callable[[], Any]) -> Any:
            began = time.process_time()
            result = work()
            seconds[step] = time.process_time() - began
            return result

        g, h = (np.ascontiguousarray(column, dtype=np.int64) for column in pairs.T)
        sent = timed("encrypt", lambda: [kernel.encrypt(self._key, v, run, LOG_DELTA) for v in (g, h)])
        loaded = timed("load", lambda: [kernel.load(c) for c in sent])
        c0, c1 = timed("aggregate", lambda: kernel.aggregate(loaded, self._public, bins, width, run, LOG_FLOOD))
        found, _ = timed("decrypt", lambda: kernel.decrypt(self._key, c0, c1, run, LOG_DELTA))
        tiles = found.reshape(len(bins), -1, 2, kernel.N // run).transpose(2, 0, 1, 3).reshape(2, len(bins), -1)
        for values, sums in zip((g, h), tiles, strict=True):
            counted = [np.bincount(feature, weights=values, minlength=width) for feature in bins]
            if not np.array_equal(sums[:, :width], np.array(counted)):
                raise RuntimeError("the prototype's sums are not exact")
        return seconds

    def nodes(self, pairs: np.ndarray, bins: np.ndarray, width: int, nodes: Sequence[np.ndarray]) -> float:
        """CPU seconds of the exchange for several nodes, gathering their rows' bins included."""
        spent = 0.0
        for rows in nodes:
            began = time.process_time()
            own = np.ascontiguousarray(bins[:, rows])
            spent += time.process_time() - began
            spent += sum(self.exchange(pairs[rows], own, width).values())
        return spent


def _import(source: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("lattice_prototype", source)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(source)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tile_rows(rows: int, slots: int, degree: int) -> int:
    """The prototype's own rule for the rows of a ciphertext."""
    best = math.sqrt(rows * 2 * degree / slots)
    return int(min(2048, max(64, 2 ** round(math.log2(max(best, 1))))))


def made_up_levels(rows: int, depth: int, rng: np.random.Generator) -> list[list[np.ndarray]]:
    """The nodes that are summed per level of a made-up tree: equal parents, whose smaller child has 35% of them."""
    levels = [[np.arange(rows)]]
    for level in range(1, depth):
        parents = np.array_split(rng.permutation(rows), 2 ** (level - 1))
        levels.append([np.sort(parent[: int(len(parent) * 0.35)]) for parent in parents])
    return levels
