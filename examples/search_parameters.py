"""Search for parameters of a federation with scikit-learn and, if it is installed, with Optuna.

Every trial is a training of the whole federation. Successive halving trains most of them with few trees, Optuna chooses
the next trial from the earlier ones. Between organisations every trial also is a release of the same labels: search on
data that may be pooled, or set the privacy budget for all trials together.

    python examples/search_parameters.py
"""

from typing import Any

from sklearn.datasets import load_breast_cancer
from sklearn.experimental import enable_halving_search_cv  # noqa: F401 - makes HalvingGridSearchCV importable
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import HalvingGridSearchCV, cross_val_score, train_test_split

from veilboost import VerticalClassifier


def halving(X: Any, y: Any) -> VerticalClassifier:
    """Twelve candidates with 5 trees, the best four with 15, the best one or two with 45."""
    search = HalvingGridSearchCV(
        VerticalClassifier(parties=2),
        {"max_depth": [2, 3, 4], "learning_rate": [0.1, 0.3], "reg_lambda": [1.0, 10.0]},
        resource="n_estimators",
        min_resources=5,
        max_resources=45,
        scoring="roc_auc",
        cv=3,
        random_state=0,
    ).fit(X, y)
    print(f"halving: {search.n_candidates_} candidates, the best has {search.best_params_}")
    return search.best_estimator_


def with_optuna(X: Any, y: Any) -> VerticalClassifier | None:
    try:
        import optuna
    except ModuleNotFoundError:
        print("optuna is not installed: pip install optuna")
        return None

    def auc(trial: Any) -> float:
        model = VerticalClassifier(
            parties=2,
            n_estimators=30,
            max_depth=trial.suggest_int("max_depth", 2, 5),
            learning_rate=trial.suggest_float("learning_rate", 0.05, 0.5, log=True),
            reg_lambda=trial.suggest_float("reg_lambda", 0.1, 30.0, log=True),
        )
        return float(cross_val_score(model, X, y, scoring="roc_auc", cv=3).mean())

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(auc, n_trials=12)
    print(f"optuna: {len(study.trials)} trials, the best has {study.best_params}")
    return VerticalClassifier(parties=2, n_estimators=30, **study.best_params).fit(X, y)


def main() -> None:
    X, X_test, y, y_test = train_test_split(*load_breast_cancer(return_X_y=True), test_size=0.4, random_state=0)
    for name, search in (("halving", halving), ("optuna", with_optuna)):
        model = search(X, y)
        if model is not None:
            print(f"{name:18} AUC {roc_auc_score(y_test, model.predict_proba(X_test)[:, 1]):.4f}")


if __name__ == "__main__":
    main()
