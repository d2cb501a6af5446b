"""HorizontalClassifier and HorizontalRegressor."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from veilboost import HorizontalClassifier, HorizontalRegressor
from veilboost.errors import (
    InvalidParameter,
    MissingColumn,
    MissingLabel,
    RowsDiffer,
    UnreadableModel,
    UnsupportedCombination,
)


@parametrize_with_checks(
    [
        HorizontalClassifier(protocol="secagg", participants=2, n_estimators=20, max_bin=64),
        HorizontalRegressor(protocol="secagg", participants=2, n_estimators=20, max_bin=64),
    ],
)
def test_scikit_learn_checks(estimator, check) -> None:
    check(estimator)


@pytest.mark.fast
def test_mal_learns_from_one_matrix() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    model = HorizontalClassifier(
        protocol="mal", participants=3, n_estimators=60, max_bin=18, options={"epsilon": 0}
    ).fit(X[:400], y[:400])
    assert roc_auc_score(y[400:], model.predict_proba(X[400:])[:, 1]) > 0.9
    assert set(model.simulation_.outcome.reports) == {"participant0", "participant1", "participant2"}
    assert model.feature_importances_.sum() == pytest.approx(1.0)
    assert max(tree.depth for tree in model.joined_.skeleton.trees) == 1


@pytest.mark.fast
def test_classes_keep_their_names_and_models_survive_a_folder(tmp_path) -> None:
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = HorizontalClassifier(protocol="secagg", participants=3, n_estimators=10, max_depth=3).fit(X, names)
    assert (model.predict(X) == names).mean() > 0.95
    model.save(tmp_path / "m")
    again = HorizontalClassifier.load(tmp_path / "m")
    assert again.model_sha256_ == model.model_sha256_
    assert (again.predict(X) == model.predict(X)).all()
    assert (again.protocol, again.max_depth, again.objective) == ("secagg", 3, "multiclass")
    with pytest.raises(UnreadableModel):
        HorizontalRegressor.load(tmp_path / "m")


@pytest.mark.fast
def test_a_table_per_participant_with_categories() -> None:
    rng = np.random.default_rng(0)
    people = pd.DataFrame({"age": rng.normal(40, 9, 300), "town": rng.choice(["a", "b", "c"], 300)})
    people["late"] = ((people["age"] > 40) ^ (people["town"] == "a")).astype(int)
    tables = {"north": people[:120], "south": people[120:]}
    model = HorizontalClassifier(protocol="secagg", max_depth=3, n_estimators=20, max_bin=32).fit(tables, "late")
    assert (model.predict(people[["age", "town"]]) == people["late"]).mean() > 0.9
    split = {name: table.drop(columns="late") for name, table in tables.items()}
    same = clone(model).fit(split, {name: table["late"] for name, table in tables.items()})
    assert same.model_sha256_ == model.model_sha256_
    with pytest.raises(MissingColumn):
        clone(model).fit({"north": people[:120], "south": people[120:].rename(columns={"age": "years"})}, "late")
    with pytest.raises(MissingLabel):
        clone(model).fit(split, {"north": tables["north"]["late"]})


@pytest.mark.fast
def test_regression() -> None:
    X, y = load_diabetes(return_X_y=True)
    options = {"epsilon": 0}
    model = HorizontalRegressor(
        protocol="mal", participants=2, n_estimators=80, learning_rate=0.1, max_bin=18, options=options
    ).fit(X, y)
    assert model.score(X, y) > 0.4
    assert HorizontalRegressor(n_estimators=20).fit(X, y).joined_.skeleton.protocol == "secagg"


@pytest.mark.fast
def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidParameter):
        HorizontalClassifier(participants=0).fit(np.eye(4), [0, 1, 0, 1])
    with pytest.raises(RowsDiffer):
        HorizontalClassifier(participants=5).fit(np.eye(4), [0, 1, 0, 1])
    with pytest.raises(UnsupportedCombination, match="callable objective"):
        HorizontalClassifier(participants=2, objective=lambda y, margin: (margin, y)).fit(np.eye(4), [0, 1, 0, 1])
    with pytest.raises(NotFittedError):
        HorizontalRegressor().predict(np.eye(4))


@pytest.mark.fast
def test_weights_and_validation_rows() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    model = HorizontalClassifier(
        protocol="secagg", participants=3, n_estimators=60, max_depth=3, max_bin=16, learning_rate=0.9,
        early_stopping_rounds=2,
    )  # fmt: skip
    weight = np.where(y == 1, 1.0, 3.0)
    weight[:7] = 0.0
    model.fit(X[:400], y[:400], sample_weight=weight[:400], eval_set=(X[400:], y[400:]))
    curve = model.evals_result_["validation_0"]["logloss"]
    assert model.best_iteration_ == int(np.argmin(curve)) < 57
    assert len(curve) == model.best_iteration_ + 3
    names = {"north": slice(0, 250), "south": slice(250, 400)}
    by_party = [{name: values[part] for name, part in names.items()} for values in (X, y, weight)]
    model.set_params(early_stopping_rounds=None).fit(by_party[0], by_party[1], by_party[2])
    whole = clone(model).fit(X[:400], y[:400], weight[:400])
    assert model.model_sha256_ == whole.model_sha256_  # whoever holds which row
    assert model.evals_result_ == {}
    with pytest.raises(UnsupportedCombination, match="eval_set"):
        clone(model).set_params(early_stopping_rounds=2).fit(X, y)
    mal = HorizontalClassifier(protocol="mal", participants=2, n_estimators=20, early_stopping_rounds=2)
    with pytest.raises(UnsupportedCombination, match="same label"):
        mal.fit(X[:400], y[:400], sample_weight=weight[:400], eval_set=(X[400:], y[400:]))
    mal.fit(X[:400], y[:400], sample_weight=1.0 + np.arange(400) % 2, eval_set=(X[400:], y[400:]))
    assert mal.best_iteration_ == int(np.argmin(mal.evals_result_["validation_0"]["logloss"]))
    with pytest.raises(RowsDiffer):
        clone(model).fit(by_party[0], by_party[1], weight)
