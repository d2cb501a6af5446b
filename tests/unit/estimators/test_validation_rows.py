import numpy as np
import pandas as pd
import pytest

from veilboost import VerticalClassifier, VerticalRegressor

pytestmark = pytest.mark.fast

COLUMNS = ["age", "income", "branch", "basket", "visits", "city"]


def many(**parameters) -> VerticalClassifier:
    return VerticalClassifier(n_estimators=60, max_depth=4, learning_rate=0.5, **parameters)


@pytest.fixture
def halves(people: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    return people.iloc[:150], people.iloc[150:]


def test_early_stopping_on_one_matrix(halves) -> None:
    train, rest = halves
    fitted = many(eval_metric="logloss", early_stopping_rounds=5)
    fitted.fit(train[COLUMNS], train["late"], eval_set=(rest[COLUMNS], rest["late"]))
    curve = fitted.evals_result_["validation_0"]["logloss"]
    assert len(curve) < 60
    assert fitted.best_iteration_ == int(np.argmin(curve)) == len(curve) - 6
    probability = fitted.predict_proba(rest[COLUMNS])[:, 1]
    truth = rest["late"].to_numpy()
    loss = -np.log(np.where(truth == 1, probability, 1 - probability)).mean()
    assert loss == pytest.approx(min(curve))
    short = many().set_params(n_estimators=fitted.best_iteration_ + 1).fit(train[COLUMNS], train["late"])
    assert short.model_sha256_ == fitted.model_sha256_


def test_early_stopping_on_a_table_per_party(bank: pd.DataFrame, shop: pd.DataFrame) -> None:
    train, rest = bank.iloc[:140], bank.iloc[140:]
    parameters = {"id": "customer_id", "eval_metric": "logloss", "early_stopping_rounds": 4}
    fitted = many(**parameters).fit(
        {"bank": train, "shop": shop}, "late", eval_set=({"bank": rest, "shop": shop}, "late")
    )
    assert fitted.best_iteration_ < 59
    assert len(fitted.evals_result_["validation_0"]["logloss"]) == fitted.best_iteration_ + 5
    order = np.random.default_rng(0).permutation(len(rest))
    shuffled = rest.iloc[order]
    again = many(**parameters).fit(
        {"bank": train, "shop": shop.iloc[::-1]},
        "late",
        eval_set=({"bank": shuffled.drop(columns="late"), "shop": shop}, shuffled["late"].to_numpy()),
    )
    assert again.evals_result_ == fitted.evals_result_
    assert again.model_sha256_ == fitted.model_sha256_


def test_multiclass_keeps_whole_rounds(halves) -> None:
    train, rest = halves
    fitted = many(early_stopping_rounds=2)
    fitted.fit(train[COLUMNS], train["branch"], eval_set=(rest[COLUMNS], rest["branch"]))
    assert len(fitted.joined_.trees) == 5 * (fitted.best_iteration_ + 1)
    assert list(fitted.evals_result_["validation_0"]) == ["mlogloss"]


@pytest.mark.parametrize("categories", ["sets", "onehot", "ordinal"])
def test_validation_rows_do_not_touch_the_model(halves, categories: str) -> None:
    """Not even by categories, outliers and missing values of their own."""
    train, rest = halves
    odd = rest.assign(age=1e6, visits=np.nan)
    odd.loc[odd.index[:20], "city"] = "Atlantis"
    fitted = VerticalClassifier(n_estimators=5, categories=categories, categorical=["branch"])
    alone = fitted.fit(train[COLUMNS], train["late"]).model_sha256_
    watched = fitted.fit(train[COLUMNS], train["late"], eval_set=(odd[COLUMNS], odd["late"]))
    assert watched.model_sha256_ == alone
    assert len(watched.evals_result_["validation_0"]["auc"]) == 5
    assert watched.best_iteration_ == 4


def test_validation_rows_do_not_touch_a_regression(halves) -> None:
    train, rest = halves
    fitted = VerticalRegressor(n_estimators=5)
    alone = fitted.fit(train[COLUMNS], train["value"]).model_sha256_
    watched = fitted.fit(train[COLUMNS], train["value"], eval_set=(rest[COLUMNS], rest["value"] * 1000))
    assert watched.model_sha256_ == alone


def test_curve_is_empty_without_validation_rows(people: pd.DataFrame) -> None:
    fitted = VerticalClassifier(n_estimators=3).fit(people[COLUMNS], people["late"])
    assert fitted.evals_result_ == {}
    assert fitted.best_iteration_ == 2


def test_validation_rows_that_do_not_fit_have_a_code(bank: pd.DataFrame, shop: pd.DataFrame) -> None:
    fitted = VerticalClassifier(n_estimators=3, id="customer_id")
    frames = {"bank": bank, "shop": shop}
    cases = [
        (frames, "VB-1002"),
        ((frames, bank["late"], 1), "VB-1002"),
        ((frames, bank["late"] + 5), "VB-1106"),
        ((frames, bank["late"].iloc[:9]), "VB-1202"),
        (({"bank": bank}, "late"), "VB-1306"),
        ((frames, "nothing"), "VB-1104"),
        (({"bank": bank.drop(columns="age"), "shop": shop}, "late"), "VB-1112"),
    ]
    for eval_set, code in cases:
        with pytest.raises(ValueError, match=f"^{code}: "):
            fitted.fit(frames, "late", eval_set=eval_set)
