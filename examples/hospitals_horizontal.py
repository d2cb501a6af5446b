"""Five hospitals train one model without pooling their patients: horizontally partitioned data.

All hospitals measure the same columns about different patients. With `secagg` each hospital sends histograms under
masks that cancel in the sum, so that the server sees the sum of all hospitals and no single hospital's histogram. The
sum itself is not protected: see src/veilboost/protocols/secagg/LEAKAGE.md.

    python examples/hospitals_horizontal.py
"""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from veilboost import HorizontalClassifier, VerticalClassifier

SIZES = {"north": 25, "south": 40, "east": 60, "west": 90, "centre": 126}  # patients per hospital
SETTINGS = {"n_estimators": 40, "max_depth": 3, "learning_rate": 0.2}


def main() -> None:
    data = load_breast_cancer()
    X, X_test, y, y_test = train_test_split(data.data, data.target, train_size=sum(SIZES.values()), random_state=0)
    rows = dict(zip(SIZES, np.split(np.arange(len(X)), np.cumsum(list(SIZES.values()))[:-1]), strict=True))

    # Every hospital alone: one party that owns all columns of its own patients.
    for name, own in rows.items():
        alone = VerticalClassifier(parties=1, **SETTINGS).fit(X[own], y[own])
        print(f"{name + f', {len(own)} patients':22} AUC {auc(alone, X_test, y_test):.4f}")

    # All hospitals together: a table and labels per hospital.
    together = HorizontalClassifier(protocol="secagg", **SETTINGS)
    together.fit({name: X[own] for name, own in rows.items()}, {name: y[own] for name, own in rows.items()})
    print(f"{'together, secagg':22} AUC {auc(together, X_test, y_test):.4f}")

    # The masks change nothing: the model is the one that a single pooled table gives, partitioned among any others.
    other = HorizontalClassifier(protocol="secagg", participants=2, **SETTINGS).fit(X, y)
    print(f"\nsame model for two participants: {together.model_sha256_ == other.model_sha256_}")
    run = together.simulation_
    print(f"messages: {run.messages:,} ({run.bytes_sent / 1e6:.1f} MB)")


def auc(model: HorizontalClassifier | VerticalClassifier, X: np.ndarray, y: np.ndarray) -> float:
    return float(roc_auc_score(y, model.predict_proba(X)[:, 1]))


if __name__ == "__main__":
    main()
