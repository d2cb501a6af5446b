"""Whether `secagg` trains the model of pooled rows, bit for bit, on every data set: hashes, and seconds per tree.

    python bench/secagg.py [--data FOLDER] [--sets adult ...] [--trees 10]

Rows are shuffled and partitioned among three participants of different sizes. Text columns are categories. Every data
set is trained with the default bins (256), with 32 bins, with 32 bins of equal width, and with weights.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from common import arguments, load, note, report
from veilboost.config import TrainingConfig
from veilboost.data import PartyTable
from veilboost.model.joined import join
from veilboost.party.simulation import SERVER, simulate_training

OBJECTIVES = {"california_housing": "regression", "dry_bean": "multiclass"}
SHARES = (0.6, 0.3, 0.1)
SETTINGS: dict[str, dict[str, Any]] = {
    "256 bins": {"max_bin": 256},
    "32 bins": {"max_bin": 32},
    "32 equal widths": {"max_bin": 32, "binning": "width"},
    "32 bins, weights": {"max_bin": 32},
}


def partitioned(table: PartyTable) -> dict[str, PartyTable]:
    edges = np.rint(np.concatenate(([0], np.cumsum(SHARES))) * table.rows).astype(np.int64)
    return {f"p{at}": table.take(np.arange(edges[at], edges[at + 1])) for at in range(len(SHARES))}


def compared(table: PartyTable, config: TrainingConfig) -> dict[str, Any]:
    began = time.perf_counter()
    pooled = join(simulate_training({"all": table}, "all", "plain", config).shares)
    between = time.perf_counter()
    run = simulate_training(partitioned(table), SERVER, "secagg", config)
    ended = time.perf_counter()
    return {
        "equal": run.model.sha256() == pooled.sha256(),
        "sha256": pooled.sha256(),
        "plain_s_per_tree": (between - began) / config.n_estimators,
        "secagg_s_per_tree": (ended - between) / config.n_estimators,
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sets", nargs="+", help="names of data sets; all by default")
    parser.add_argument("--trees", type=int, default=10)
    options = parser.parse_args()
    folder: Path = options.data
    found: dict[str, Any] = {}
    for name in options.sets or sorted(file.stem for file in folder.glob("*.parquet")):
        table = load(folder, name)
        rng = np.random.default_rng(0)
        table = table.take(rng.permutation(table.rows))
        weight = rng.choice([0.25, 1.0, 3.5], size=table.rows)
        for label, changes in SETTINGS.items():
            rows = replace(table, weight=weight) if "weights" in label else table
            config = TrainingConfig.from_dict(
                {"objective": OBJECTIVES.get(name, "binary"), "n_estimators": options.trees, **changes}
            )
            found.setdefault(name, {})[label] = result = compared(rows, config)
            note(f"{name}, {label}: {'equal' if result['equal'] else 'DIFFERENT'}")
    every = [each["equal"] for settings in found.values() for each in settings.values()]
    report({"equal": sum(every), "of": len(every), "sets": found})


if __name__ == "__main__":
    main()
