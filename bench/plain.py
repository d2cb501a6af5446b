"""How fast `plain` is: beside central XGBoost `hist` and FedTree's vertical mode, all in one run, one thread each.

    python bench/plain.py --data DIR [--fedtree PYTHON]

`seconds_per_tree` counts boosting rounds only (both systems make their bins before); `fit` counts everything.
--fedtree names a Python that has `fedtree` installed; without it that part is skipped.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import xgboost

from common import among, arguments, as_matrix, best_of, hold_out, load, note, report, xgboost_parameters
from veilboost.boost.metrics import auc
from veilboost.boost.objective import make_objective
from veilboost.config import TrainingConfig
from veilboost.data import PartyTable
from veilboost.party.simulation import simulate_prediction, simulate_training
from veilboost.types import Column

PEER = Path(__file__).parent / "peers" / "fedtree_fit.py"


def ours(table: PartyTable, config: TrainingConfig, repeats: int, threads: int) -> dict[str, Any]:
    tables, rounds = among(table, 2), []

    def run() -> Any:
        result = simulate_training(tables, "party0", "plain", config, threads=threads)
        rounds.append(float(np.mean([r.seconds for r in result.history])))
        return result

    fit_seconds, result = best_of(repeats, run)
    return {
        "seconds_per_tree": min(rounds),
        "fit_seconds": fit_seconds,
        "bytes_per_tree": result.bytes_sent / config.n_estimators,
        "rounds_per_tree": result.rounds / config.n_estimators,
        "run": result,
    }


def central(x: np.ndarray, y: np.ndarray, config: TrainingConfig, repeats: int, threads: int) -> dict[str, Any]:
    parameters = xgboost_parameters(config, threads, 2)
    began = time.perf_counter()
    matrix = xgboost.QuantileDMatrix(x, y, max_bin=config.max_bin, nthread=threads)
    binning = time.perf_counter() - began
    seconds, booster = best_of(repeats, lambda: xgboost.train(parameters, matrix, config.n_estimators))
    return {
        "seconds_per_tree": seconds / config.n_estimators,
        "fit_seconds": binning + seconds,
        "booster": booster,
    }


def fedtree(python: str, folder: Path, train: Any, test: Any, config: TrainingConfig) -> dict[str, Any] | None:
    paths = [folder / "train.npz", folder / "test.npz", folder / "parameters.json"]
    for path, (x, y) in zip(paths, (train, test), strict=False):
        np.savez(path, x=x, y=y)
    paths[2].write_text(json.dumps({**config.to_dict(), "trees": config.n_estimators}))
    done = subprocess.run(
        [python, str(PEER), *map(str, paths)], capture_output=True, text=True, check=False, timeout=1800
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        note(f"skipped FedTree: {(done.stderr.strip().splitlines() or ['no result'])[-1]}")
        return None
    return json.loads(lines[-1].removeprefix("RESULT "))


def credit(options: Any) -> dict[str, Any]:
    """default_credit, depth 6, 32 bins, 2 parties."""
    table = load(options.data, "default_credit")
    train, test = hold_out(table.rows)
    config = TrainingConfig(objective="binary", n_estimators=60, max_depth=6, max_bin=32, learning_rate=0.3)
    x, y = as_matrix(table.columns), table.label
    mine = ours(table.take(train), config, options.repeats, 1)
    theirs = central(x[train], y[train], config, options.repeats, 1)
    margin = simulate_prediction(mine.pop("run").shares, "party0", among(table.take(test), 2))
    mine["auc"] = auc(y[test], make_objective("binary").predict(margin))
    theirs["auc"] = auc(y[test], theirs.pop("booster").predict(xgboost.DMatrix(x[test])).astype(np.float64))
    result: dict[str, Any] = {
        "veilboost": mine,
        "xgboost": theirs,
        "times_xgboost_per_tree": mine["seconds_per_tree"] / theirs["seconds_per_tree"],
        "times_xgboost_fit": mine["fit_seconds"] / theirs["fit_seconds"],
        "fedtree": None,
    }
    if options.fedtree is None:
        note("skipped FedTree: no --fedtree PYTHON given (pip install fedtree==1.0.5; Debian: libntl44 libgmp10)")
    else:
        with tempfile.TemporaryDirectory() as folder:
            peer = fedtree(options.fedtree, Path(folder), (x[train], y[train]), (x[test], y[test]), config)
        result["fedtree"] = peer
        if peer is not None:
            result["faster_than_fedtree"] = peer["seconds_per_tree"] / mine["seconds_per_tree"]
    return result


def _large(rows: int, features: int, trees: int, which: str, pipe: Any) -> None:
    """One system of the large run, in its own process, so that peak memory is measured separately."""
    rng = np.random.default_rng(0)
    config = TrainingConfig(objective="binary", n_estimators=trees, max_depth=6, max_bin=32, learning_rate=0.3)
    columns = [rng.normal(size=rows).astype(np.float32) for _ in range(features)]
    score = columns[0] + columns[1] * columns[-1] + np.abs(columns[-2]) + rng.normal(size=rows)
    y = (score > np.median(score)).astype(np.float64)
    if which == "veilboost":
        table = PartyTable(np.arange(rows), tuple(Column(f"x{k}", c) for k, c in enumerate(columns)), y)
        result = ours(table, config, 1, 1)
        del result["run"]
    else:
        x = np.empty((rows, features), dtype=np.float32)
        for k in range(features):
            x[:, k], columns[k] = columns[k], np.empty(0, dtype=np.float32)
        result = central(x, y, config, 1, 1)
        del result["booster"]
    result["peak_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    pipe.send(result)


def large(rows: int, features: int, trees: int) -> dict[str, Any]:
    """A synthetic set of a million rows by default."""
    systems: dict[str, Any] = {"rows": rows, "features": features, "trees": trees}
    for which in ("veilboost", "xgboost"):
        receive, send = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("spawn").Process(target=_large, args=(rows, features, trees, which, send))
        process.start()
        send.close()
        systems[which] = receive.recv()
        process.join()
    systems["times_xgboost_per_tree"] = (
        systems["veilboost"]["seconds_per_tree"] / systems["xgboost"]["seconds_per_tree"]
    )
    return systems


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--fedtree", help="a Python with fedtree installed")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the large run, 0 to leave it out")
    parser.add_argument("--features", type=int, default=50)
    parser.add_argument("--trees", type=int, default=10, help="trees of the large run")
    options = parser.parse_args()
    result: dict[str, Any] = {"benchmark": "plain"}
    if (options.data / "default_credit.parquet").exists():
        result["default_credit"] = credit(options)
    else:
        note(f"skipped default_credit: not in {options.data}")
    if options.rows:
        result["large"] = large(options.rows, options.features, options.trees)
    report(result)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
