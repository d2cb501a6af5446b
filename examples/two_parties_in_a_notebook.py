"""Measure the benefit of a federation: two parties in one process, as in a notebook.

A clinic has the labels and the first half of the columns of scikit-learn's breast cancer data; a laboratory has the
second half. The clinic trains alone, then together with the laboratory. The joint model equals, bit for bit, the one
that is trained on the pooled columns.

    python examples/two_parties_in_a_notebook.py
"""

from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from veilboost import VerticalClassifier


def main() -> None:
    data = load_breast_cancer()
    X, X_test, y, y_test = train_test_split(data.data, data.target, test_size=0.4, random_state=0)
    parties = {"clinic": list(range(15)), "laboratory": list(range(15, 30))}
    settings = {"n_estimators": 50, "max_depth": 3, "learning_rate": 0.2}

    alone = VerticalClassifier(parties={"clinic": parties["clinic"]}, **settings).fit(X, y)
    together = VerticalClassifier(parties=parties, **settings).fit(X, y)
    central = VerticalClassifier(parties=1, **settings).fit(X, y)

    print(f"{len(X)} tumours for training, {len(X_test)} for testing\n")
    for name, model in (("clinic alone", alone), ("together", together), ("pooled", central)):
        print(f"{name:18} AUC {roc_auc_score(y_test, model.predict_proba(X_test)[:, 1]):.4f}")

    run = together.simulation_
    print(f"\nsame model as pooled: {together.model_sha256_ == central.model_sha256_}")
    print(f"messages: {run.messages:,} ({run.bytes_sent / 1e6:.1f} MB)")


if __name__ == "__main__":
    main()
