"""What a tree costs under each protocol, over one of `plain`: the figures that `veilboost protocols` shows.

5000 rows, two parties of ten columns (horizontal: five participants with all twenty), 32 bins, depth 4, default
options, one process, one thread. Trees are those of a job of `--trees` without what comes before the first one, except
for `mal`, which does nearly all of its work before it: there it is a sixtieth of a job of sixty. The first tree of
`elxgb` is of another kind than the others, so its figure is for jobs of as many trees.

    python bench/costs.py [--protocols lattice,elxgb] [--trees 5] [--repeats 3]
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace

import numpy as np

from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.party.simulation import SERVER, simulate_training
from veilboost.protocols.registry import all_protocols, protocols_of
from veilboost.types import Column

ROWS, COLUMNS, PARTICIPANTS, MAL_TREES = 5000, 20, 5, 60


def data() -> tuple[list[Column], np.ndarray]:
    rng = np.random.default_rng(1)
    values = rng.normal(size=(COLUMNS, ROWS)).astype(np.float32)
    label = (rng.normal(size=COLUMNS) @ values + rng.logistic(size=ROWS) > 0).astype(np.float64)
    return [Column(f"x{k}", column) for k, column in enumerate(values)], label


def seconds_of_a_tree(protocol: str, config: TrainingConfig) -> float:
    columns, label = data()
    ids = np.arange(ROWS)
    if protocol in protocols_of("horizontal"):
        shares = np.array_split(ids, PARTICIPANTS)
        tables = {
            f"h{k}": PartyTable(at, tuple(Column(c.name, c.values[at]) for c in columns), label[at])
            for k, at in enumerate(shares)
        }
        if protocol == "mal":
            began = time.perf_counter()
            simulate_training(tables, SERVER, protocol, replace(config, n_estimators=MAL_TREES, max_depth=1))
            return (time.perf_counter() - began) / MAL_TREES
        done = simulate_training(tables, SERVER, protocol, config)
        return float(np.mean([each.seconds for each in done.outcome.history]))
    half = COLUMNS // 2
    tables = {"a": PartyTable(ids, tuple(columns[:half]), label), "b": PartyTable(ids, tuple(columns[half:]))}
    done = simulate_training(tables, "a", protocol, config)
    return float(np.mean([each.seconds for each in done.history]))


def main() -> None:
    every = [*all_protocols()]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--protocols", default=",".join(every))
    parser.add_argument("--trees", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    config = TrainingConfig(objective="binary", n_estimators=asked.trees, max_depth=4, max_bin=32)
    for protocol in asked.protocols.split(","):
        # The two in turn, so that whatever else the machine does falls on both.
        pairs = [[seconds_of_a_tree(name, config) for name in ("plain", protocol)] for _ in range(asked.repeats)]
        plain, own = np.min(pairs, axis=0).tolist()
        print(
            json.dumps({"protocol": protocol, "seconds": own, "plain_seconds": plain, "ratio": own / plain}), flush=True
        )


if __name__ == "__main__":
    main()
