"""How fast `plain` is: beside central XGBoost `hist` with as many threads, and beside FedTree's vertical mode.

    python bench/plain.py --data DIR [--repeats 12] [--rows 1000000] [--threads 1 2] [--fedtree PYTHON]

Two simulated parties, and one party with all columns (`pooled`), take turns with XGBoost in one process. Figures are
medians of `--repeats` runs and count boosting rounds only: all systems make their bins before. Processor seconds
(`cpu`) differ less than wall seconds where other programs run. The large run takes turns between the --threads, too;
`scaling` is how many times faster each system is with the most of them than with the fewest, in wall seconds, so that
it needs an idle machine. --data-sets and --rows 0 leave parts out. --fedtree names a Python that has `fedtree`
installed; without it that part is skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xgboost

from common import among, arguments, as_matrix, hold_out, load, note, report, xgboost_parameters
from papers.tables import synthetic
from veilboost.boost.metrics import auc
from veilboost.boost.objective import make_objective
from veilboost.config import TrainingConfig
from veilboost.data import PartyTable
from veilboost.party.simulation import simulate_prediction, simulate_training

SYSTEMS = ("two_parties", "pooled", "xgboost")
PEER = Path(__file__).parent / "peers" / "fedtree_fit.py"
CONFIG = TrainingConfig(objective="binary", n_estimators=60, max_depth=6, max_bin=32, learning_rate=0.3)


class Clock:
    """Wall and processor seconds since the last call of `lap`."""

    def __init__(self) -> None:
        self.lap()

    def lap(self) -> np.ndarray:
        now = np.array([time.perf_counter(), time.process_time()])
        passed, self._last = now - getattr(self, "_last", now), now
        return passed


def ours(table: PartyTable, parties: int, trees: int, threads: int) -> np.ndarray:
    """Seconds of a tree, without the first round, in which the clock starts."""
    clock, laps = Clock(), list[np.ndarray]()
    config = TrainingConfig.from_dict({**CONFIG.to_dict(), "n_estimators": trees + 1})
    simulate_training(
        among(table, parties), "party0", "plain", config, threads=threads, watcher=lambda _: laps.append(clock.lap())
    )
    return np.sum(laps[1:], axis=0) / trees


def beside_xgboost(table: PartyTable, trees: int, threads: Sequence[int], repeats: int) -> list[dict[str, Any]]:
    """Medians of interleaved runs for each number of threads, and how many times XGBoost's seconds ours are."""
    kinds = ["q" if column.categories is None else "c" for column in table.columns]
    matrix = xgboost.QuantileDMatrix(
        as_matrix(table.columns),
        table.label,
        max_bin=CONFIG.max_bin,
        nthread=max(threads),
        feature_types=kinds,
        enable_categorical=True,
    )
    runs: dict[tuple[int, str], list[np.ndarray]] = defaultdict(list)
    for _ in range(repeats):
        for number in threads:
            runs[number, "two_parties"].append(ours(table, 2, trees, number))
            runs[number, "pooled"].append(ours(table, 1, trees, number))
            clock = Clock()
            xgboost.train(xgboost_parameters(CONFIG, number, 2), matrix, trees)
            runs[number, "xgboost"].append(clock.lap() / trees)
    seconds = {key: np.median(found, axis=0).tolist() for key, found in runs.items()}  # wall and processor
    results: list[dict[str, Any]] = []
    for number in threads:
        result: dict[str, Any] = {"rows": table.rows, "features": len(table.columns), "threads": number}
        result["load"] = os.getloadavg()[0]
        for place, unit in enumerate(("seconds", "cpu_seconds")):
            times = {name: seconds[number, name][place] for name in SYSTEMS}
            result |= {f"{name}_{unit}_per_tree": value for name, value in times.items()}
            result |= {f"{name}_times_xgboost_{unit}": times[name] / times["xgboost"] for name in SYSTEMS[:2]}
        if number == max(threads) > min(threads):
            result["scaling"] = {name: seconds[min(threads), name][0] / seconds[number, name][0] for name in SYSTEMS}
        results.append(result)
    return results


def beside_fedtree(table: PartyTable, python: str | None) -> dict[str, Any] | None:
    """FedTree's seconds per tree and AUC, with our AUC and XGBoost's on the same rows."""
    (train, test), x, y = hold_out(table.rows), as_matrix(table.columns), table.label
    trained = simulate_training(among(table.take(train), 2), "party0", "plain", CONFIG)
    margin = simulate_prediction(trained.shares, "party0", among(table.take(test), 2))
    matrix = xgboost.QuantileDMatrix(x[train], y[train], max_bin=CONFIG.max_bin, nthread=1)
    central = xgboost.train(xgboost_parameters(CONFIG, 1, 2), matrix, CONFIG.n_estimators)
    result: dict[str, Any] = {
        "veilboost_auc": auc(y[test], make_objective("binary").predict(margin)),
        "xgboost_auc": auc(y[test], central.predict(xgboost.DMatrix(x[test])).astype(np.float64)),
    }
    if python is None:
        note("skipped FedTree: no --fedtree PYTHON given (pip install fedtree==1.0.5; Debian: libntl44 libgmp10)")
        return result
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("train.npz", "test.npz", "parameters.json")]
        for path, rows in zip(paths, (train, test), strict=False):
            np.savez(path, x=x[rows], y=y[rows])
        paths[2].write_text(json.dumps({**CONFIG.to_dict(), "trees": CONFIG.n_estimators}))
        command = [python, str(PEER), *map(str, paths)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        note(f"skipped FedTree: {(done.stderr.strip().splitlines() or ['no result'])[-1]}")
        return result
    return result | {"fedtree": json.loads(lines[-1].removeprefix("RESULT "))}


def main() -> None:
    parser = arguments(__doc__)
    parser.set_defaults(repeats=12)
    parser.add_argument("--fedtree", help="a Python with fedtree installed")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the large run, 0 to leave it out")
    parser.add_argument("--features", type=int, default=50)
    parser.add_argument("--trees", type=int, default=10, help="trees of the large run")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="of the large run")
    parser.add_argument("--data-sets", nargs="*", default=["default_credit", "adult"])
    options = parser.parse_args()
    result: dict[str, Any] = {"benchmark": "plain", "repeats": options.repeats, "speed": []}
    for name in options.data_sets:
        if not (options.data / f"{name}.parquet").exists():
            note(f"skipped {name}: not in {options.data}")
            continue
        table = load(options.data, name)
        fit = table.take(hold_out(table.rows)[0])
        [speed] = beside_xgboost(fit, CONFIG.n_estimators, [1], options.repeats)
        result["speed"].append({"data": name, **speed})
        if name == "default_credit":
            result["quality"] = beside_fedtree(table, options.fedtree)
    if options.rows:
        table = synthetic(options.rows, options.features)
        large = beside_xgboost(table, options.trees, options.threads, options.repeats)
        result["speed"] += [{"data": "synthetic", **speed} for speed in large]
    report(result)


if __name__ == "__main__":
    main()
