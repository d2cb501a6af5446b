"""What the benchmarks share: data, baselines, and how results are printed."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from veilboost.boost.objective import make_objective
from veilboost.config import LOSS_PARAMETERS, TrainingConfig
from veilboost.data import PartyTable
from veilboost.types import Column

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # `papers` is not installed
from papers.runner import machine
from papers.tables import among, hold_out
from papers.tables import load as load_file

__all__ = [
    "among",
    "arguments",
    "as_matrix",
    "best_of",
    "hold_out",
    "load",
    "machine",
    "note",
    "report",
    "today",
    "xgboost_parameters",
]

DEFAULT_DATA = Path(os.environ.get("VEILBOOST_DATA", Path(__file__).parents[2] / "shared" / "data"))


def arguments(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, help="folder of the parquet data sets")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each; the best counts")
    return parser


def report(result: dict[str, Any]) -> None:
    """One JSON object on stdout."""
    json.dump({"machine": machine(), "measured": today(), **result}, sys.stdout, indent=2)
    print()


def today() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}"


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def load(folder: Path, name: str, categorical: tuple[str, ...] = ()) -> PartyTable:
    return load_file(folder / f"{name}.parquet", categorical)


def as_matrix(columns: tuple[Column, ...]) -> np.ndarray:
    """Numbers and category codes as one float32 matrix, NaN for missing."""
    parts = [c.values if c.categories is None else np.where(c.values < 0, np.nan, c.values) for c in columns]
    return np.stack([np.asarray(part, dtype=np.float32) for part in parts], axis=1)


def xgboost_parameters(config: TrainingConfig, threads: int, classes: int) -> dict[str, Any]:
    parameters: dict[str, Any] = {
        "objective": make_objective(config.objective, classes=classes).xgboost_name,
        "tree_method": "hist",
        "max_depth": config.max_depth,
        "learning_rate": config.learning_rate,
        "max_bin": config.max_bin,
        "reg_lambda": config.reg_lambda,
        "min_child_weight": config.min_child_weight,
        "nthread": threads,
    }
    if config.objective == "multiclass":
        parameters["num_class"] = classes
    if config.objective in LOSS_PARAMETERS:
        name = LOSS_PARAMETERS[config.objective]
        parameters[name] = getattr(config, name)
    return parameters


def best_of(repeats: int, run: Callable[[], Any]) -> tuple[float, Any]:
    """Least wall seconds of several runs, and the last result."""
    least, result = float("inf"), None
    for _ in range(repeats):
        began = time.perf_counter()
        result = run()
        least = min(least, time.perf_counter() - began)
    return least, result
