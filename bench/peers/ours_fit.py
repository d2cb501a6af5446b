"""VeilBoost as a user of its estimators would run it, all parties in one process, one thread.

    python bench/peers/ours_fit.py TRAIN.npz TEST.npz PARAMETERS.json

The parameters `mode` (vertical, horizontal), `protocol` and `options` choose. Bytes are of all messages of all parties.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from measure import auc, by_difference, given, peak_megabytes, print_result

from veilboost import HorizontalClassifier, VerticalClassifier


def fit(parameters: dict[str, Any], x: np.ndarray, y: np.ndarray, trees: int) -> Any:
    if parameters["mode"] == "horizontal":
        return horizontal(parameters, x, y, trees)
    own = parameters["active_columns"]
    # What a user of vertical writes: from here
    model = VerticalClassifier(
        protocol=parameters["protocol"],
        options=parameters["options"],
        parties={"bank": range(own), "shop": range(own, x.shape[1])},
        n_estimators=trees,
        max_depth=parameters["max_depth"],
        max_bin=parameters["max_bin"],
        learning_rate=parameters["learning_rate"],
        reg_lambda=parameters["reg_lambda"],
    )
    model.fit(x, y)
    # to here
    return model


def horizontal(parameters: dict[str, Any], x: np.ndarray, y: np.ndarray, trees: int) -> HorizontalClassifier:
    # What a user of horizontal writes: from here
    model = HorizontalClassifier(
        protocol=parameters["protocol"],
        options=parameters["options"],
        participants=2,
        n_estimators=trees,
        max_depth=parameters["max_depth"],
        max_bin=parameters["max_bin"],
        learning_rate=parameters["learning_rate"],
        reg_lambda=parameters["reg_lambda"],
    )
    model.fit(x, y)
    # to here
    return model


def main() -> None:
    train, test, parameters = given()
    cost, few, many = by_difference(lambda trees: fit(parameters, train["x"], train["y"], trees), parameters)
    print_result(
        cost
        | {
            "bytes_per_tree": many.simulation_.bytes_sent / parameters["trees"],
            "auc": auc(test["y"], many.predict_proba(test["x"])[:, 1]),
            "auc_few": auc(test["y"], few.predict_proba(test["x"])[:, 1]),
            "megabytes": peak_megabytes(),
        }
    )


if __name__ == "__main__":
    main()
