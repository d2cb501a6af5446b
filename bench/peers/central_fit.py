"""XGBoost, LightGBM and scikit-learn on all columns in one place, one thread: what pooling the data would give.

    OMP_NUM_THREADS=1 python bench/peers/central_fit.py TRAIN.npz TEST.npz PARAMETERS.json

The parameter `library` says which. Categories are categories to all three.
"""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # scikit-learn has no parameter for it

import numpy as np
from measure import by_difference, categorical, given, peak_megabytes, print_result, quality, xgboost_objective


def xgboost_fit(parameters: dict[str, Any], x: np.ndarray, y: np.ndarray, trees: int) -> Any:
    import xgboost

    kinds = ["c" if column in categorical(parameters) else "q" for column in range(x.shape[1])]
    # What a user of xgboost writes: from here
    settings = {
        **xgboost_objective(parameters),
        "tree_method": "hist",
        "max_depth": parameters["max_depth"],
        "max_bin": parameters["max_bin"],
        "learning_rate": parameters["learning_rate"],
        "reg_lambda": parameters["reg_lambda"],
        "nthread": 1,
    }
    data = xgboost.QuantileDMatrix(x, y, max_bin=parameters["max_bin"], feature_types=kinds, enable_categorical=True)
    model = xgboost.train(settings, data, trees)
    # to here
    return lambda held: model.predict(xgboost.DMatrix(held, feature_types=kinds, enable_categorical=True))


def lightgbm_fit(parameters: dict[str, Any], x: np.ndarray, y: np.ndarray, trees: int) -> Any:
    import lightgbm

    # What a user of lightgbm writes: from here
    settings = {
        "objective": parameters["task"],
        "num_class": parameters["classes"] if parameters["task"] == "multiclass" else 1,
        "max_depth": parameters["max_depth"],
        "num_leaves": 2 ** parameters["max_depth"],
        "max_bin": parameters["max_bin"],
        "learning_rate": parameters["learning_rate"],
        "lambda_l2": parameters["reg_lambda"],
        "num_threads": 1,
        "verbose": -1,
    }
    data = lightgbm.Dataset(x, y, categorical_feature=categorical(parameters))
    model = lightgbm.train(settings, data, trees)
    # to here
    return model.predict


def sklearn_fit(parameters: dict[str, Any], x: np.ndarray, y: np.ndarray, trees: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    numbers = parameters["task"] == "regression"
    codes = categorical(parameters)
    # It has a bin for each category, and refuses more categories than bins.
    bins = max([parameters["max_bin"], *(len(np.unique(x[:, column])) for column in codes)])
    # What a user of sklearn writes: from here
    model = (HistGradientBoostingRegressor if numbers else HistGradientBoostingClassifier)(
        max_iter=trees,
        max_depth=parameters["max_depth"],
        max_leaf_nodes=2 ** parameters["max_depth"],
        max_bins=bins,
        learning_rate=parameters["learning_rate"],
        l2_regularization=parameters["reg_lambda"],
        categorical_features=codes,
        early_stopping=False,
    )
    model.fit(x, y)
    # to here
    if numbers:
        return model.predict
    return lambda held: model.predict_proba(held)[:, 1] if parameters["task"] == "binary" else model.predict_proba(held)


def main() -> None:
    train, test, parameters = given()
    fit = {"xgboost": xgboost_fit, "lightgbm": lightgbm_fit, "sklearn": sklearn_fit}[parameters["library"]]
    cost, few, many = by_difference(lambda trees: fit(parameters, train["x"], train["y"], trees), parameters)
    scores = {
        "quality_few": quality(parameters, test["y"], few(test["x"])),
        "quality": quality(parameters, test["y"], many(test["x"])),
    }
    print_result(cost | scores | {"megabytes": peak_megabytes()})


if __name__ == "__main__":
    main()
