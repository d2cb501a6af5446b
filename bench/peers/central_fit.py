"""XGBoost and LightGBM on all columns in one place, one thread: what pooling the data would give.

    python bench/peers/central_fit.py TRAIN.npz TEST.npz PARAMETERS.json

The parameter `library` says which.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from measure import auc, by_difference, given, peak_megabytes, print_result


def xgboost_fit(parameters: dict[str, Any], x: np.ndarray, y: np.ndarray, trees: int) -> Any:
    import xgboost

    # What a user of xgboost writes: from here
    settings = {
        "objective": "binary:logistic",
        "tree_method": "hist",
        "max_depth": parameters["max_depth"],
        "max_bin": parameters["max_bin"],
        "learning_rate": parameters["learning_rate"],
        "reg_lambda": parameters["reg_lambda"],
        "nthread": 1,
    }
    data = xgboost.QuantileDMatrix(x, y, max_bin=parameters["max_bin"])
    model = xgboost.train(settings, data, trees)
    # to here
    return lambda held: model.predict(xgboost.DMatrix(held))


def lightgbm_fit(parameters: dict[str, Any], x: np.ndarray, y: np.ndarray, trees: int) -> Any:
    import lightgbm

    # What a user of lightgbm writes: from here
    settings = {
        "objective": "binary",
        "max_depth": parameters["max_depth"],
        "num_leaves": 2 ** parameters["max_depth"],
        "max_bin": parameters["max_bin"],
        "learning_rate": parameters["learning_rate"],
        "lambda_l2": parameters["reg_lambda"],
        "num_threads": 1,
        "verbose": -1,
    }
    model = lightgbm.train(settings, lightgbm.Dataset(x, y), trees)
    # to here
    return model.predict


def main() -> None:
    train, test, parameters = given()
    fit = {"xgboost": xgboost_fit, "lightgbm": lightgbm_fit}[parameters["library"]]
    cost, few, many = by_difference(lambda trees: fit(parameters, train["x"], train["y"], trees), parameters)
    scores = {"auc_few": auc(test["y"], few(test["x"])), "auc": auc(test["y"], many(test["x"]))}
    print_result(cost | scores | {"megabytes": peak_megabytes()})


if __name__ == "__main__":
    main()
