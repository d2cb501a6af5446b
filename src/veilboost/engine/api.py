"""The engine interface, and engines by name. An engine builds a party's columns and label rows."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any, cast

import numpy as np

from veilboost.boost.booster import LabelRows
from veilboost.boost.columns import ColumnBlock, CutProposal
from veilboost.config import LEAF_QUANTILE_OBJECTIVES, TrainingConfig
from veilboost.errors import InvalidParameter, UnsupportedCombination
from veilboost.types import BoolArray, Column, Float64Array


class Engine:
    """Where a party's rows lie and which processes compute with them. This base class: this process and its threads."""

    def __init__(self, name: str = "local") -> None:
        self.name = name

    @property
    def workers(self) -> int:
        """The number of processes that have computed so far."""
        return 1

    def columns(
        self,
        columns: Sequence[Column],
        rows: int,
        config: TrainingConfig,
        weights: Float64Array | None,
        held_out: BoolArray | None,
        threads: int,
        propose: CutProposal | None = None,
    ) -> ColumnBlock:
        """Bin the columns. Cuts are proposed from rows that are not held out; quantiles use `weights`."""
        fit_rows = None if held_out is None else np.flatnonzero(~held_out).astype(np.int32)
        return ColumnBlock.build(columns, rows, config, weights, fit_rows, threads, propose)

    def labels(self, y: Float64Array, weight: Float64Array | None, held_out: BoolArray | None) -> LabelRows:
        return LabelRows(y, weight, held_out)

    def close(self) -> None:
        pass


LOCAL = Engine()


def check_job(
    engine: str, protocol: str, engines: Sequence[str], config: TrainingConfig, custom_loss: bool = False
) -> None:
    """Refuse, during validation, jobs that cannot run on an engine; `engines` are those that the protocol supports."""
    name = engine.partition(":")[0]
    if name == LOCAL.name:
        return
    if name not in engines:
        raise UnsupportedCombination(f"{protocol} does not run on the engine {name}", "use the engine local")
    refused = {
        "cuts proposed at every node (proposal = local)": config.proposal == "local",
        "one-side sampling (sampling = goss)": config.sampling == "goss",
        "a custom objective": custom_loss,
        f"objective {config.objective!r}": config.objective in LEAF_QUANTILE_OBJECTIVES,
    }
    for what, asked in refused.items():
        if asked:
            raise UnsupportedCombination(
                f"{what} needs all rows at once, which the engine {name} does not support", "use the engine local"
            )


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController  # pyright: ignore

    return ThreadpoolController()


def blas_threads(count: int) -> AbstractContextManager[None]:
    """Limit NumPy's matrix routines to `count` threads within the context; by default they use every core."""
    return cast(AbstractContextManager[None], _controller().limit(limits=count, user_api="blas"))


# --- engines by name, as settings and command lines specify them ---------------------------------------------------


HELP = "local, disk or disk:FOLDER (rows in files), ray (local workers) or ray://HOST:PORT (a running cluster)"


def check_engine(name: str, workers: int | None) -> None:
    """Refuse invalid engine names and worker counts, before anything is started."""
    if name not in {"local", "disk", "ray"} and not name.startswith(("ray://", "disk:")):
        raise InvalidParameter(f"there is no engine {name!r}", f"use {HELP}")
    if workers is not None and workers < 1:
        raise InvalidParameter(f"workers={workers} is less than 1", "set workers to 1 or more")
    if workers is not None and not name.startswith("ray"):
        raise UnsupportedCombination(f"the engine {name} has no workers", "set n_jobs, or use the engine ray")


@contextmanager
def open_engine(name: str = "local", workers: int | None = None) -> Generator[Engine]:
    """Open the engine of this name and close it at the end. `workers` defaults to the number of cores."""
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
    """The engine that all jobs of this process share, for its lifetime."""
    check_engine(name, workers)
    return LOCAL if name == LOCAL.name else _sharded(name, workers)


def _sharded(name: str, workers: int | None) -> Engine:
    from veilboost.engine.sharded import ShardedEngine

    if name.startswith("disk"):
        from veilboost.engine.pool import DiskPool

        return ShardedEngine(DiskPool(name.partition(":")[2] or None), 1, "disk", own_threads=True)
    from veilboost.engine.pool import RayPool

    pool = RayPool(workers, None if name == "ray" else name)
    return ShardedEngine(pool, pool.size, "ray")
