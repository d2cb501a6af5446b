"""FedTree's vertical mode as a user of its wheel would run it. Called by `bench/plain.py` and `bench/encryption.py`.

    python bench/peers/fedtree_vertical.py TRAIN.npz TEST.npz PARAMETERS.json

Runs in an environment that has `fedtree` (PyPI; Debian: libntl44 libgmp10). FedTree divides the columns itself.
The parameter `privacy` is its `privacy_tech`: none, or he with the wheel's fixed 512-bit keys.
"""

from __future__ import annotations

import json
import os
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from fedtree import FLClassifier
from sklearn.metrics import roc_auc_score


def fit(parameters: dict, trees: int, x: np.ndarray, y: np.ndarray) -> tuple[float, float, FLClassifier]:
    model = FLClassifier(
        n_parties=2,
        mode="vertical",
        partition_mode="vertical",
        privacy_tech=parameters.get("privacy", "none"),
        n_trees=trees,
        max_depth=parameters["max_depth"],
        learning_rate=parameters["learning_rate"],
        max_num_bin=parameters["max_bin"],
        lambda_ft=parameters["reg_lambda"],
        verbose=0,
    )
    wall, cpu = time.perf_counter(), time.process_time()
    model.fit(x, y)
    return time.perf_counter() - wall, time.process_time() - cpu, model


def main() -> None:
    train, test = np.load(sys.argv[1]), np.load(sys.argv[2])
    with open(sys.argv[3]) as file:
        parameters = json.load(file)
    few, many = parameters.get("few_trees", 5), parameters["trees"]
    # What both fits share (reading, dividing, binning) cancels: only trees are counted.
    shorts = [fit(parameters, few, train["x"], train["y"]) for _ in range(parameters.get("repeats", 2))]
    short, short_cpu, _ = min(shorts, key=lambda run: run[:2])
    long, long_cpu, model = fit(parameters, many, train["x"], train["y"])
    probability = np.asarray(model.predict_proba(test["x"]))
    positive = probability[:, 1] if probability.ndim == 2 else probability
    result = {
        "seconds_per_tree": (long - short) / (many - few),
        "cpu_seconds_per_tree": (long_cpu - short_cpu) / (many - few),
        "fit_seconds": long,
        "auc": float(roc_auc_score(test["y"], positive)),
    }
    print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    main()
