"""Engines by name, as settings and command lines give them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import cache

from veilboost.engine.api import LOCAL, Engine
from veilboost.errors import ImpossibleParameter, UnsupportedCombination

HELP = "local, disk or disk:FOLDER (rows in files), ray (workers here) or ray://HOST:PORT (a cluster that runs)"


def check_engine(name: str, workers: int | None) -> None:
    """Refuse what names no engine, before anything is started."""
    if name not in {"local", "disk", "ray"} and not name.startswith(("ray://", "disk:")):
        raise ImpossibleParameter(f"there is no engine {name!r}", f"use {HELP}")
    if workers is not None and workers < 1:
        raise ImpossibleParameter(f"workers={workers} is less than 1")
    if workers is not None and not name.startswith("ray"):
        raise UnsupportedCombination(f"the engine {name} has no workers", "set threads, or use the engine ray")


@contextmanager
def open_engine(name: str = "local", workers: int | None = None) -> Generator[Engine]:
    """The engine of this name, closed in the end. `workers` are as many as there are cores where it is None."""
    check_engine(name, workers)
    if name == "local":
        yield LOCAL
        return
    engine = _sharded(name, workers)
    try:
        yield engine
    finally:
        engine.close()


@cache
def lasting_engine(name: str, workers: int | None) -> Engine:
    """The engine that all jobs of this process share, until it ends."""
    check_engine(name, workers)
    return LOCAL if name == LOCAL.name else _sharded(name, workers)


def _sharded(name: str, workers: int | None) -> Engine:
    from veilboost.engine.sharded import ShardedEngine

    if name.startswith("disk"):
        from veilboost.engine.disk import DiskPool

        return ShardedEngine(DiskPool(name.partition(":")[2] or None), 1, "disk", own_threads=True)
    from veilboost.engine.ray import RayPool

    pool = RayPool(workers, None if name == "ray" else name)
    return ShardedEngine(pool, pool.size, "ray")
