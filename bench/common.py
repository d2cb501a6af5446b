"""What the benchmarks share: data, baselines, and how results are printed."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from veilboost.config import TrainingConfig
from veilboost.data import PartyTable, load_table
from veilboost.data.schema import SchemaRules
from veilboost.types import Column

DEFAULT_DATA = Path(os.environ.get("VEILBOOST_DATA", Path(__file__).parents[2] / "shared" / "data"))


def arguments(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, help="folder of the parquet data sets")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each; the best counts")
    return parser


def machine() -> dict[str, Any]:
    """Where and with what this was measured."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    names = ("veilboost", "numpy", "xgboost-cpu", "scikit-learn")
    versions = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    return {"cpu": model, "cores": os.cpu_count(), "python": platform.python_version(), "versions": versions}


def report(result: dict[str, Any]) -> None:
    """One JSON object on stdout."""
    json.dump({"machine": machine(), **result}, sys.stdout, indent=2)
    print()


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def load(folder: Path, name: str, categorical: tuple[str, ...] = ()) -> PartyTable:
    return load_table(
        folder / f"{name}.parquet",
        id="id",
        label="label",
        categorical=categorical,
        rules=SchemaRules(constant="drop"),
    ).sorted_by_id()


def hold_out(rows: int, share: float = 0.2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Shuffled training and test rows."""
    order = np.random.default_rng(seed).permutation(rows)
    test = int(rows * share)
    return np.sort(order[test:]), np.sort(order[:test])


def among(table: PartyTable, parties: int) -> dict[str, PartyTable]:
    """Contiguous blocks of columns; the first party holds the labels."""
    blocks = np.array_split(np.arange(len(table.columns)), parties)
    tables = {
        f"party{k}": PartyTable(table.ids, tuple(table.columns[at] for at in block)) for k, block in enumerate(blocks)
    }
    tables["party0"] = PartyTable(table.ids, tables["party0"].columns, table.label, table.label_classes, table.weight)
    return tables


def as_matrix(columns: tuple[Column, ...]) -> np.ndarray:
    """Numbers and category codes as one float32 matrix, NaN for missing."""
    parts = [c.values if c.categories is None else np.where(c.values < 0, np.nan, c.values) for c in columns]
    return np.stack([np.asarray(part, dtype=np.float32) for part in parts], axis=1)


def xgboost_parameters(config: TrainingConfig, threads: int, classes: int) -> dict[str, Any]:
    names = {
        "binary": "binary:logistic",
        "multiclass": "multi:softprob",
        "regression": "reg:squarederror",
        "poisson": "count:poisson",
    }
    parameters: dict[str, Any] = {
        "objective": names[config.objective],
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
    return parameters


def best_of(repeats: int, run: Callable[[], Any]) -> tuple[float, Any]:
    """Least wall seconds of several runs, and the last result."""
    least, result = float("inf"), None
    for _ in range(repeats):
        began = time.perf_counter()
        result = run()
        least = min(least, time.perf_counter() - began)
    return least, result
