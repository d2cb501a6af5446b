"""What attacks take from scipy and scikit-learn, with types; both load when they are used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from veilboost.types import AnyArray, Float64Array


def nearest_pairs(gap: Float64Array) -> list[tuple[int, int]]:
    """Each row with a column of its own, so that the sum of what they are apart is least."""
    from scipy import optimize  # pyright: ignore[reportMissingTypeStubs]

    solver: Any = optimize
    rows, columns = solver.linear_sum_assignment(gap)
    return list(zip(rows.tolist(), columns.tolist(), strict=True))


def between(towards: Float64Array, a: Float64Array, known: Float64Array, highest: Float64Array) -> Float64Array | None:
    """Of all x with a x = known and 0 <= x <= highest one furthest in a direction; None where there is none."""
    from scipy import optimize  # pyright: ignore[reportMissingTypeStubs]

    solver: Any = optimize
    bounds = np.stack([np.zeros_like(highest), highest], axis=1)
    found = solver.linprog(-towards, A_eq=a, b_eq=known, bounds=bounds, method="highs")
    return np.asarray(found.x, dtype=np.float64) if found.status == 0 else None


@dataclass(frozen=True)
class Logistic:
    """Scores are `start + weights x`; one row decides between two classes, otherwise there is one a class."""

    start: Float64Array
    weights: Float64Array
    classes: Float64Array


def logistic(x: Float64Array, labels: Float64Array) -> Logistic:
    """A regularised logistic regression in which classes count alike."""
    from sklearn import linear_model  # pyright: ignore[reportMissingTypeStubs]

    learner: Any = linear_model
    fitted = learner.LogisticRegression(C=0.1, class_weight="balanced", max_iter=500).fit(x, labels)
    start, weights, classes = (
        np.asarray(each, dtype=np.float64) for each in (fitted.intercept_, fitted.coef_, fitted.classes_)
    )
    return Logistic(start, weights, classes)


def forest_guess(x: AnyArray, labels: Float64Array, others: AnyArray) -> Float64Array:
    """A random forest's labels for other rows."""
    from sklearn import ensemble  # pyright: ignore[reportMissingTypeStubs]

    learner: Any = ensemble
    forest = learner.RandomForestClassifier(50, class_weight="balanced", random_state=0).fit(x, labels)
    return np.asarray(forest.predict(others), dtype=np.float64)


def beta_quantile(share: float, a: float, b: float) -> float:
    """Where a beta distribution has this share below."""
    from scipy import special  # pyright: ignore[reportMissingTypeStubs]

    functions: Any = special
    return float(functions.betaincinv(a, b, share))
