import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from xgboost import XGBRegressor

from veilboost import VerticalClassifier, VerticalRegressor
from veilboost.errors import InvalidParameter, UnsupportedCombination

pytestmark = pytest.mark.fast

COLUMNS = ["age", "income", "branch", "basket", "visits", "city"]


@pytest.mark.parametrize("labels", [["b", "a", "c"], [7, 3, 11], [0.0, 2.0, 1.0], np.array(["b", "a", "c"], object)])
def test_multiclass_labels_of_any_type(labels) -> None:
    X, codes = load_iris(return_X_y=True)
    y = np.asarray(labels)[codes]
    fitted = VerticalClassifier(n_estimators=5, parties=2).fit(X, y)
    assert fitted.classes_.tolist() == sorted(labels)
    probability = fitted.predict_proba(X)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0)
    assert (fitted.predict(X) == y).mean() > 0.95
    assert (fitted.classes_[probability.argmax(axis=1)] == fitted.predict(X)).all()


def test_booleans_stay_booleans(people: pd.DataFrame) -> None:
    y = people["late"].to_numpy(dtype=bool)
    for X in (people[COLUMNS], {"bank": people[COLUMNS]}):
        predicted = VerticalClassifier(n_estimators=3).fit(X, y).predict(X)
        assert predicted.dtype == bool
        assert (predicted == y).mean() > 0.8


def test_objective_by_name(people: pd.DataFrame) -> None:
    X, y = people[COLUMNS], people["late"]
    softmax = VerticalClassifier(n_estimators=3, objective="multiclass").fit(X, y)
    assert softmax.joined_.skeleton.trees_per_round == 2
    assert softmax.predict_proba(X).shape == (len(X), 2)
    assert softmax.score(X, y) > 0.8
    with pytest.raises(ValueError, match=r"^VB-1106: .* 5 classes, and binary needs two"):
        VerticalClassifier(objective="binary").fit(X, people["branch"])
    with pytest.raises(InvalidParameter, match=r"is not for a classifier; .*, or use VerticalRegressor"):
        VerticalClassifier(objective="reg:gamma").fit(X, y)
    for estimator in (VerticalClassifier(objective="rank:pairwise"), VerticalRegressor(objective="rank:pairwise")):
        with pytest.raises(InvalidParameter, match=r"does not exist here; set objective to [^V]*$"):
            estimator.fit(X, y)


def test_regression_and_poisson(people: pd.DataFrame) -> None:
    X = people[COLUMNS]
    assert VerticalRegressor(n_estimators=20).fit(X, people["value"]).score(X, people["value"]) > 0.8
    counts = people["visits"]
    fitted = VerticalRegressor(n_estimators=30, objective="poisson").fit(X, counts)
    predicted = fitted.predict(X)
    assert predicted.min() > 0
    assert fitted.score(X, counts) > 0.8
    np.testing.assert_array_equal(fitted.set_params(objective="auto").predict(X), predicted)  # the model decides


def test_own_objective_equals_the_built_in_one(people: pd.DataFrame) -> None:
    X, y = people[COLUMNS], people["value"]
    own = VerticalRegressor(n_estimators=4, objective=lambda y, margin: (margin - y, np.ones_like(y))).fit(X, y)
    built_in = VerticalRegressor(n_estimators=4, base_score=0.0).fit(X, y)
    np.testing.assert_array_equal(own.predict(X), built_in.predict(X))


def logistic(y_true, y_pred):
    p = 1 / (1 + np.exp(-y_pred))
    return p - y_true, p * (1 - p)


def test_own_objective_of_a_classifier_is_in_log_odds(people: pd.DataFrame) -> None:
    X, y = people[COLUMNS], np.where(people["late"] == 1, "late", "in time")
    own = VerticalClassifier(n_estimators=4, objective=logistic).fit(X, y)
    built_in = VerticalClassifier(n_estimators=4, base_score=0.5).fit(X, y)
    np.testing.assert_allclose(own.predict_proba(X), built_in.predict_proba(X), atol=1e-4)
    assert set(own.predict(X)) == {"late", "in time"}


@pytest.mark.parametrize("weighted", [False, True])
def test_own_objective_takes_what_xgboosts_takes(weighted: bool) -> None:
    """The same function, unchanged, in both libraries. With weights XGBoost's function multiplies them itself."""
    rng = np.random.default_rng(3)
    X = rng.integers(0, 8, (300, 3)).astype(float)
    y = 3 * X[:, 0] + X[:, 1] + rng.normal(size=300)
    weight = rng.integers(1, 4, 300).astype(float) if weighted else None

    def asymmetric(y_true, y_pred, sample_weight=None):
        g = np.where(y_pred > y_true, 3.0, 1.0) * (y_pred - y_true)
        h = np.where(y_pred > y_true, 3.0, 1.0)
        return (g, h) if sample_weight is None else (g * sample_weight, h * sample_weight)

    common = {"objective": asymmetric, "n_estimators": 5, "max_depth": 3, "base_score": 0.0}
    ours = VerticalRegressor(**common, gradient_bits=24).fit(X, y, sample_weight=weight)
    theirs = XGBRegressor(**common).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-4)


def test_own_objective_in_the_former_order_is_refused(people: pd.DataFrame) -> None:
    model = VerticalRegressor(objective=lambda margin, y: (margin - y, np.ones_like(y)))
    with pytest.raises(InvalidParameter, match=r"change it to \(y_true, y_pred\)"):
        model.fit(people[COLUMNS], people["value"])


def test_own_objective_is_for_two_classes(people: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match=r"^VB-1004: .* two classes"):
        VerticalClassifier(objective=logistic).fit(people[COLUMNS], people["branch"])


@pytest.mark.parametrize("protocol", ["elxgb", "ldp"])
def test_own_objective_has_no_private_leaves(people: pd.DataFrame, protocol: str) -> None:
    """Their noise is scaled to the range of a known loss."""
    options = {"private_leaves": True, "clip": 1.0, "clip_hessian": 1.0}
    options |= {"backend": "lattice"} if protocol == "elxgb" else {}
    common = {"protocol": protocol, "options": options, "min_child_weight": 0.0, "base_score": 0.5, "n_estimators": 1}
    X, y = people[["age", "income"]], people["late"]
    VerticalClassifier(objective="binary", **common).fit(X, y)
    with pytest.raises(UnsupportedCombination, match="which a custom objective does not have"):
        VerticalClassifier(
            objective=lambda y_true, y_pred: (100 * (y_pred - y_true), np.full_like(y_true, 0.1)), **common
        ).fit(X, y)


# --- weights ----------------------------------------------------------------------------------------------

ESTIMATORS = [
    (VerticalClassifier(n_estimators=5), "late"),
    (VerticalClassifier(n_estimators=3), "branch"),
    (VerticalRegressor(n_estimators=5), "whole"),
    (VerticalRegressor(n_estimators=5, objective="poisson"), "visits"),
]


@pytest.fixture
def weight(people: pd.DataFrame) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 4, len(people))


@pytest.mark.parametrize(("estimator", "label"), ESTIMATORS)
def test_whole_weight_is_the_row_so_many_times(people: pd.DataFrame, weight, estimator, label: str) -> None:
    """Exactly, where weights also count for the bins."""
    people["whole"] = (people["value"] * 4).round()
    estimator = clone(estimator).set_params(weighted_bins=True, max_bin=16)
    weighted = estimator.fit(people[COLUMNS], people[label], sample_weight=weight).model_sha256_
    repeated = people.loc[people.index.repeat(weight)]
    assert estimator.set_params(weighted_bins=False).fit(repeated[COLUMNS], repeated[label]).model_sha256_ == weighted


@pytest.mark.parametrize(("estimator", "label"), ESTIMATORS)
def test_weight_of_zero_counts_for_nothing(people: pd.DataFrame, weight, estimator, label: str) -> None:
    people["whole"] = (people["value"] * 4).round()
    counts = weight > 0
    # Rows that count for nothing bring outliers, a category and a label of their own.
    people.loc[~counts, ["age", "income", "basket"]] = -1e6
    people.loc[~counts, "city"] = "Atlantis"
    people.loc[~counts, label] = 99
    weighted = estimator.fit(people[COLUMNS], people[label], sample_weight=counts.astype(float)).model_sha256_
    assert estimator.fit(people.loc[counts, COLUMNS], people.loc[counts, label]).model_sha256_ == weighted


def test_weights_of_one_change_nothing(people: pd.DataFrame) -> None:
    plain = VerticalClassifier(n_estimators=3).fit(people[COLUMNS], people["late"])
    ones = VerticalClassifier(n_estimators=3).fit(people[COLUMNS], people["late"], sample_weight=[1] * len(people))
    assert plain.model_sha256_ == ones.model_sha256_


def test_weights_follow_their_rows_through_the_alignment(bank: pd.DataFrame, shop: pd.DataFrame) -> None:
    weight = np.arange(len(bank)) % 5
    fitted = VerticalClassifier(n_estimators=3, id="customer_id").fit({"bank": bank, "shop": shop}, "late", weight)
    order = np.random.default_rng(0).permutation(len(bank))
    shuffled = {"bank": bank.iloc[order], "shop": shop.iloc[::-1]}
    again = VerticalClassifier(n_estimators=3, id="customer_id").fit(shuffled, "late", weight[order])
    assert fitted.model_sha256_ == again.model_sha256_
    assert fitted.model_sha256_ != again.fit(shuffled, "late", weight).model_sha256_


@pytest.mark.parametrize(
    ("weight", "code"),
    [
        ([1.0] * 7, "VB-1202"),
        (np.ones((240, 2)), "VB-1202"),
        ([-1.0] * 240, "VB-1002"),
        ([0.0] * 240, "VB-1002"),
        ([np.nan] * 240, "VB-1110"),
        ([np.inf] * 240, "VB-1110"),
    ],
)
def test_impossible_weights_have_a_code(people: pd.DataFrame, weight, code: str) -> None:
    for X in (people[COLUMNS], {"bank": people[COLUMNS]}):
        with pytest.raises(ValueError, match=f"^{code}: "):
            VerticalClassifier(n_estimators=3).fit(X, people["late"], sample_weight=weight)
