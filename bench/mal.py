"""MAL beside its paper: utility by buckets and epsilon, time beside XGBoost of depth 1, and many participants.

    python bench/mal.py --data DIR [--only utility time scale exact]

Utility: AUC on test rows, rows dealt out to ten participants. Figure 5 and Table 2 of the paper stand beside ours; the
paper's SUSY is a larger draw, and it does not state its learning rate (here 0.3). Time: processor seconds of all
parties together in one process, one thread, no network; beside it the paper's network, 20 Mbit/s and 100 ms.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import xgboost

from common import arguments, as_matrix, hold_out, load, note, report
from veilboost.boost.metrics import metric_named
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.model.joined import join
from veilboost.party.horizontal import HorizontalSimulation, simulate_horizontal
from veilboost.party.simulation import simulate_training
from veilboost.types import Column
from veilboost.wire.network import Network

SETS = ("susy40k", "diabetes", "codrna")
BUCKETS = (4, 8, 14, 18, 24, 32)
EPSILONS = (1, 2, 4, 6, 8)
LINE = Network.parse("20mbit,100ms")
# The paper: best AUC of Figure 5 (with its q) and XGBoost's, by trees; Table 2 (without and with epsilon 4); Table 3.
PAPER = {
    "susy40k": {
        500: {"mal_best": 75.89, "q": 18, "xgboost": 74.43, "table2": [75.04, 74.26]},
        1000: {"mal_best": 76.75, "q": 28, "xgboost": 76.26, "table2": [76.47, 75.92]},
        "table3": {"xgboost_ms": 3853.565, "prepare_ms": 1087.863, "train_ms": 3815.308,
                   "prep_kb": 1.547, "train_kb": 904.192},
    },
    "diabetes": {
        500: {"mal_best": 74.49, "q": 16, "xgboost": 72.62, "table2": [72.62, 72.62]},
        1000: {"mal_best": 74.76, "q": 28, "xgboost": 72.89, "table2": [72.89, 71.71]},
        "table3": {"xgboost_ms": 28.996, "prepare_ms": 173.75, "train_ms": 26.976, "prep_kb": 0.687, "train_kb": 4.096},
    },
    "codrna": {
        500: {"mal_best": 92.77, "q": 20, "xgboost": 91.97, "table2": [90.98, 94.42]},
        1000: {"mal_best": 96.61, "q": 18, "xgboost": 95.80, "table2": [93.99, 94.67]},
        "table3": {"xgboost_ms": 1855.945, "prepare_ms": 237.895, "train_ms": 1863.618,
                   "prep_kb": 0.692, "train_kb": 234.496},
    },
}  # fmt: skip


def split(folder, name: str) -> tuple[PartyTable, PartyTable]:
    table = load(folder, name)
    if name == "codrna" and (folder / "codrna_test.parquet").exists():
        return table, load(folder, "codrna_test")
    train, test = hold_out(table.rows)
    return table.take(train), table.take(test)


def deal(table: PartyTable, participants: int, seed: int = 0) -> dict[str, PartyTable]:
    shares = np.array_split(np.random.default_rng(seed).permutation(table.rows), participants)
    return {f"p{at}": table.take(np.sort(share)) for at, share in enumerate(shares)}


def config_of(trees: int, buckets: int, epsilon: float, guard: str = "merge") -> TrainingConfig:
    return TrainingConfig(
        objective="binary", n_estimators=trees, max_bin=buckets, options={"epsilon": epsilon, "guard": guard}
    )


def auc(run: HorizontalSimulation, test: PartyTable) -> float:
    return 100 * metric_named("auc").function(test.label, run.model.margins(test.columns)[0], None)


def depth_one(table: PartyTable, trees: int, buckets: int) -> xgboost.Booster:
    data = xgboost.QuantileDMatrix(as_matrix(table.columns), table.label, max_bin=buckets, nthread=1)
    parameters = {
        "objective": "binary:logistic",
        "tree_method": "hist",
        "max_depth": 1,
        "max_bin": buckets,
        "nthread": 1,
    }
    return xgboost.train(parameters, data, trees)


def utility(folder, trees: tuple[int, ...]) -> list[dict]:
    rows = []
    for name in SETS:
        train, test = split(folder, name)
        parts = deal(train, 10)
        guards = ("merge", "allow") if name == "diabetes" else ("merge",)
        for count in trees:
            model = depth_one(train, count, 256)
            central = 100 * metric_named("auc").function(
                test.label, model.predict(xgboost.DMatrix(as_matrix(test.columns))).astype(np.float64), None
            )
            for guard in guards:
                found = {
                    q: auc(simulate_horizontal(parts, "mal", config_of(count, q, 0, guard)), test) for q in BUCKETS
                }
                best = max(found, key=lambda q: found[q])
                noisy = {
                    e: auc(simulate_horizontal(parts, "mal", config_of(count, best, float(e), guard)), test)
                    for e in EPSILONS
                }
                rows.append(
                    {
                        "set": name, "trees": count, "guard": guard, "xgboost_depth_1": central, "by_buckets": found,
                        "best_buckets": best, "by_epsilon_at_best": noisy, "paper": PAPER[name][count],
                    }
                )  # fmt: skip
                note(f"{name} T={count} {guard}: xgb {central:.2f} q {found} eps {noisy}")
    return rows


def processor_seconds(run: Callable[[], Any]) -> tuple[float, Any]:
    """Of all threads of this process: what else the machine does is not counted."""
    began = time.process_time()
    result = run()
    return time.process_time() - began, result


def timing(folder, repeats: int) -> list[dict]:
    rows = []
    for name in SETS:
        train, _ = split(folder, name)
        parts, config = deal(train, 10), config_of(500, 18, 4.0)
        simulate_horizontal(parts, "mal", config_of(2, 18, 4.0))  # loads what is loaded when first used
        ours, theirs = [], []
        for _ in range(repeats):  # in turn, so that what else the machine does falls on both alike
            ours.append(processor_seconds(partial(simulate_horizontal, parts, "mal", config)))
            theirs.append(processor_seconds(partial(depth_one, train, 500, 18))[0])
        seconds, run = min(ours, key=lambda pair: pair[0])
        one = run.transcripts["p0"]
        prepare = sum(e.size for e in one.entries if e.message in ("EncryptedExtremes", "GlobalExtremes"))
        rows_up = sum(e.size for e in one.entries if e.message in ("MaskedRows", "TrainedModel"))
        rows.append(
            {
                "set": name, "rows": train.rows, "trees": 500, "cpu_seconds": seconds,
                "xgboost_cpu_seconds": min(theirs), "ratio": seconds / min(theirs),
                "train_wall_seconds": sum(result.seconds for result in run.outcome.history),
                "prepare_bytes_per_participant": prepare, "train_bytes_per_participant": rows_up,
                "line_prepare_seconds": LINE.seconds(1, prepare), "line_train_seconds": LINE.seconds(1, rows_up),
                "server_rounds": run.rounds, "messages": run.messages, "paper": PAPER[name]["table3"],
            }
        )  # fmt: skip
        note(f"{name}: {rows[-1]}")
    return rows


def scale(repeats: int) -> dict:
    """32 participants, 193333 rows of SUSY's shape, 60 trees (the paper: 5.23 s with network; FederBoost 3103 s)."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(193_333, 18)).astype(np.float32)
    label = (values @ rng.normal(size=18) + rng.normal(size=len(values)) > 0).astype(np.float64)
    table = PartyTable(np.arange(len(values)), tuple(Column(f"x{k}", values[:, k].copy()) for k in range(18)), label)
    parts = deal(table, 32)
    config = config_of(60, 18, 4.0)
    runs = [processor_seconds(partial(simulate_horizontal, parts, "mal", config)) for _ in range(repeats)]
    seconds, run = min(runs, key=lambda pair: pair[0])
    note(f"32 participants: {seconds:.2f} processor seconds")
    return {"cpu_seconds": seconds, "bytes": run.bytes_sent, "paper_seconds_with_network": 5.23}


def exact(folder) -> list[dict]:
    """Without noise and guard the model is that of `plain` on pooled rows, whoever holds which."""
    rows = []
    for name in SETS:
        train, _ = split(folder, name)
        config = config_of(100, 18, 0.0, "allow")
        plain = TrainingConfig(objective="binary", n_estimators=100, max_bin=18, max_depth=1, binning="width")
        expected = join(simulate_training({"all": train}, "all", "plain", plain).parts).sha256()
        for participants in (1, 10, 32):
            began = time.perf_counter()
            run = simulate_horizontal(deal(train, participants), "mal", config)
            same = run.model.sha256() == expected
            rows.append(
                {"set": name, "participants": participants, "same": same, "seconds": time.perf_counter() - began}
            )
        note(f"{name}: {[row['same'] for row in rows[-3:]]}")
    return rows


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--trees", type=int, nargs="*", default=[500, 1000])
    parser.add_argument("--only", nargs="*", default=["exact", "time", "scale", "utility"])
    options = parser.parse_args()
    done: dict = {}
    if "exact" in options.only:
        done["exact"] = exact(options.data)
    if "time" in options.only:
        done["time"] = timing(options.data, options.repeats)
    if "scale" in options.only:
        done["scale"] = scale(options.repeats)
    if "utility" in options.only:
        done["utility"] = utility(options.data, tuple(options.trees))
    report(done)


if __name__ == "__main__":
    main()
