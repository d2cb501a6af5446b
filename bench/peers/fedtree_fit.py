"""FedTree as a user of its wheel would run it, all parties in one process.

    python bench/peers/fedtree_fit.py TRAIN.npz TEST.npz PARAMETERS.json

Runs in an environment that has `fedtree` (PyPI; Debian: libntl44 libgmp10). FedTree divides rows or columns itself.
The parameters `mode` (vertical, horizontal) and `privacy` (its `privacy_tech`: none; he, with the wheel's fixed 512-bit
keys; sa; dp, with `epsilon`) choose. With dp the fit is repeated with a thousandth of the budget: its accuracy should
fall to chance, if the noise is what the budget says.
"""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from fedtree import FLClassifier
from measure import auc, by_difference, given, peak_megabytes, print_result


def fit(parameters: dict[str, Any], x: np.ndarray, y: np.ndarray, trees: int, epsilon: float) -> FLClassifier:
    mode = parameters.get("mode", "vertical")
    # What a user writes: from here
    model = FLClassifier(
        n_parties=2,
        mode=mode,
        partition_mode=mode,
        privacy_tech=parameters.get("privacy", "none"),
        privacy_budget=epsilon,
        n_trees=trees,
        max_depth=parameters["max_depth"],
        learning_rate=parameters["learning_rate"],
        max_num_bin=parameters["max_bin"],
        lambda_ft=parameters["reg_lambda"],
        verbose=0,
    )
    model.fit(x, y)
    # to here
    return model


def positive(model: FLClassifier, x: np.ndarray) -> np.ndarray:
    probability = np.asarray(model.predict_proba(x))
    return probability[:, 1] if probability.ndim == 2 else probability


def main() -> None:
    train, test, parameters = given()
    epsilon, trees = float(parameters.get("epsilon", 10)), parameters["trees"]
    cost, few, many = by_difference(lambda count: fit(parameters, train["x"], train["y"], count, epsilon), parameters)
    result: dict[str, Any] = cost | {
        "auc": auc(test["y"], positive(many, test["x"])),
        "auc_few": auc(test["y"], positive(few, test["x"])),
    }
    if parameters.get("privacy") == "dp":
        tiny = fit(parameters, train["x"], train["y"], trees, epsilon / 1000)
        result["auc_at_a_thousandth"] = auc(test["y"], positive(tiny, test["x"]))
    print_result(result | {"megabytes": peak_megabytes()})


if __name__ == "__main__":
    main()
