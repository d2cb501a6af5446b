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
from fedtree import FLClassifier, FLRegressor
from measure import by_difference, given, peak_megabytes, print_result, quality

OBJECTIVES = {"binary": "binary:logistic", "multiclass": "multi:softmax", "regression": "reg:linear"}


def fit(parameters: dict[str, Any], x: np.ndarray, y: np.ndarray, trees: int, epsilon: float) -> Any:
    mode, task = parameters.get("mode", "vertical"), parameters.get("task", "binary")
    # What a user writes: from here
    model = (FLRegressor if task == "regression" else FLClassifier)(
        n_parties=2,
        objective=OBJECTIVES[task],
        num_class=parameters["classes"] if task == "multiclass" else 1,
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


def scores(parameters: dict[str, Any], model: Any, x: np.ndarray) -> np.ndarray:
    task = parameters.get("task", "binary")
    if task == "binary":
        return np.asarray(model.predict_proba(x))[:, 1]
    found = np.asarray(model.predict(x))
    # Its `predict_proba` of several classes mixes up rows and classes; its labels are right.
    return found if task == "regression" else np.eye(parameters["classes"])[found.astype(int)]


def main() -> None:
    train, test, parameters = given()
    epsilon, trees = float(parameters.get("epsilon", 10)), parameters["trees"]
    cost, few, many = by_difference(lambda count: fit(parameters, train["x"], train["y"], count, epsilon), parameters)
    result: dict[str, Any] = cost | {
        "quality": quality(parameters, test["y"], scores(parameters, many, test["x"])),
        "quality_few": quality(parameters, test["y"], scores(parameters, few, test["x"])),
    }
    if parameters.get("privacy") == "dp":
        tiny = fit(parameters, train["x"], train["y"], trees, epsilon / 1000)
        result["quality_at_a_thousandth"] = quality(parameters, test["y"], scores(parameters, tiny, test["x"]))
    print_result(result | {"megabytes": peak_megabytes()})


if __name__ == "__main__":
    main()
