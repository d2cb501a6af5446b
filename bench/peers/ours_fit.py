"""VeilBoost as a user of its estimators would run it, all parties in one process, one thread.

    python bench/peers/ours_fit.py TRAIN.npz TEST.npz PARAMETERS.json

The parameters `mode` (vertical, horizontal), `protocol` and `options` choose. Bytes are of all messages of all parties.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from measure import by_difference, categorical, given, peak_megabytes, print_result, quality

import veilboost


def fit(parameters: dict[str, Any], x: np.ndarray, y: np.ndarray, trees: int) -> Any:
    kind = "Regressor" if parameters["task"] == "regression" else "Classifier"
    if parameters["mode"] == "horizontal":
        return horizontal(getattr(veilboost, f"Horizontal{kind}"), parameters, x, y, trees)
    estimator, own = getattr(veilboost, f"Vertical{kind}"), parameters["active_columns"]
    declared = {} if kind == "Regressor" else {"classes": range(parameters["classes"])}
    # What a user of vertical writes: from here
    model = estimator(
        protocol=parameters["protocol"],
        options=parameters["options"],
        parties={"bank": range(own), "shop": range(own, x.shape[1])},
        **declared,
        categorical=categorical(parameters),
        n_estimators=trees,
        max_depth=parameters["max_depth"],
        max_bin=parameters["max_bin"],
        learning_rate=parameters["learning_rate"],
        reg_lambda=parameters["reg_lambda"],
    )
    model.fit(x, y)
    # to here
    return model


def horizontal(estimator: Any, parameters: dict[str, Any], x: np.ndarray, y: np.ndarray, trees: int) -> Any:
    # What a user of horizontal writes: from here
    model = estimator(
        protocol=parameters["protocol"],
        options=parameters["options"],
        participants=2,
        categorical=categorical(parameters),
        n_estimators=trees,
        max_depth=parameters["max_depth"],
        max_bin=parameters["max_bin"],
        learning_rate=parameters["learning_rate"],
        reg_lambda=parameters["reg_lambda"],
    )
    model.fit(x, y)
    # to here
    return model


def scores(parameters: dict[str, Any], model: Any, x: np.ndarray) -> np.ndarray:
    if parameters["task"] == "regression":
        return model.predict(x)
    probabilities = model.predict_proba(x)
    return probabilities[:, 1] if parameters["task"] == "binary" else probabilities


def main() -> None:
    train, test, parameters = given()
    cost, few, many = by_difference(lambda trees: fit(parameters, train["x"], train["y"], trees), parameters)
    print_result(
        cost
        | {
            "bytes_per_tree": many.simulation_.bytes_sent / parameters["trees"],
            "quality": quality(parameters, test["y"], scores(parameters, many, test["x"])),
            "quality_few": quality(parameters, test["y"], scores(parameters, few, test["x"])),
            "megabytes": peak_megabytes(),
        }
    )


if __name__ == "__main__":
    main()
