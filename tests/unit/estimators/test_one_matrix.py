import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.datasets import load_iris

from veilboost import VeilBoostError, VerticalClassifier, VerticalRegressor

pytestmark = pytest.mark.fast

NUMBERS = ["age", "income", "branch", "basket", "visits"]


def small(**parameters) -> VerticalClassifier:
    return VerticalClassifier(n_estimators=4, max_depth=3, **parameters)


def test_number_of_parties_takes_contiguous_blocks(people: pd.DataFrame) -> None:
    fitted = small(parties=3).fit(people[NUMBERS], people["late"])
    held = {party: [info.name for info in part.columns] for party, part in fitted.shares_.items()}
    assert held == {"active": ["age", "income"], "passive1": ["branch", "basket"], "passive2": ["visits"]}
    assert fitted.active_ == "active"


def test_there_are_at_most_as_many_parties_as_columns(people: pd.DataFrame) -> None:
    fitted = small(parties=9).fit(people[["age", "income"]], people["late"])
    assert list(fitted.shares_) == ["active", "passive1"]


def test_parties_name_their_columns_by_position_and_by_name(people: pd.DataFrame) -> None:
    parties = {"bank": [0, 1, np.int64(2)], "shop": ["basket", "visits"]}
    fitted = small(parties=parties, active="shop").fit(people[NUMBERS], people["late"])
    assert [info.name for info in fitted.shares_["bank"].columns] == ["age", "income", "branch"]
    assert fitted.shares_["shop"].skeleton is not None
    assert fitted.score(people[NUMBERS], people["late"]) > 0.8


def test_column_of_nobody_is_not_used(people: pd.DataFrame) -> None:
    fitted = small(parties={"bank": ["income"], "shop": ["age"]}).fit(people[NUMBERS], people["late"])
    used = fitted.feature_importances_ > 0
    assert used.tolist() == [True, True, False, False, False]  # in the order of the matrix
    assert fitted.feature_importances_.sum() == pytest.approx(1.0)


def test_active_party_may_hold_labels_only(people: pd.DataFrame) -> None:
    fitted = small(parties={"court": [], "shop": [0, 1, 2, 3, 4]}).fit(people[NUMBERS], people["late"])
    alone = small(parties=1).fit(people[NUMBERS], people["late"])
    assert fitted.model_sha256_ == alone.model_sha256_
    np.testing.assert_array_equal(fitted.predict_proba(people[NUMBERS]), alone.predict_proba(people[NUMBERS]))


@pytest.mark.parametrize("convert", [pd.DataFrame, pl.from_pandas, pa.Table.from_pandas])
def test_frames_of_all_kinds_with_text_and_missing_values(people: pd.DataFrame, convert) -> None:
    frame = people[[*NUMBERS, "city"]]
    expected = small(categorical=["branch"]).fit(frame, people["late"])
    fitted = small(categorical=["branch"]).fit(convert(frame), people["late"])
    assert fitted.model_sha256_ == expected.model_sha256_
    assert {info.name for info in fitted.joined_.columns if info.categories} == {"branch", "city"}
    np.testing.assert_array_equal(fitted.predict_proba(convert(frame)), expected.predict_proba(frame))


def test_numeric_columns_declared_categorical_by_position(people: pd.DataFrame) -> None:
    matrix = people[NUMBERS].to_numpy()
    by_position = small(categorical=[2]).fit(matrix, people["late"])
    by_name = small(categorical="x2").fit(matrix, people["late"])
    assert by_position.joined_.columns[2].categories == ("1", "2", "3", "4", "5")
    assert by_position.model_sha256_ == by_name.model_sha256_
    assert by_position.predict(matrix).shape == (len(people),)


def test_one_row_predicts_as_it_does_among_others(people: pd.DataFrame) -> None:
    frame = people[[*NUMBERS, "city"]]
    fitted = small().fit(frame, people["late"])
    together = fitted.predict_proba(frame)
    for at in range(0, 60, 5):  # among them rows without a city, where nothing tells text from numbers
        np.testing.assert_array_equal(fitted.predict_proba(frame.iloc[[at]])[0], together[at])


def test_unknown_category_counts_as_missing(people: pd.DataFrame) -> None:
    frame = people[[*NUMBERS, "city"]]
    fitted = small().fit(frame, people["late"])
    abroad, nowhere = frame.assign(city="Paris"), frame.assign(city=None)
    np.testing.assert_array_equal(fitted.predict_proba(abroad), fitted.predict_proba(nowhere))


def test_matrix_for_a_model_of_a_frame_goes_by_position(people: pd.DataFrame) -> None:
    fitted = small().fit(people[NUMBERS], people["late"])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        by_position = fitted.predict_proba(people[NUMBERS].to_numpy())
    np.testing.assert_array_equal(by_position, fitted.predict_proba(people[NUMBERS]))
    unnamed = small().fit(people[NUMBERS].to_numpy(), people["late"])
    with pytest.warns(UserWarning, match="fitted without feature names"):
        assert (unnamed.predict(people[NUMBERS]) == fitted.predict(people[NUMBERS])).all()


def test_frame_with_numbers_for_names() -> None:
    X, y = load_iris(return_X_y=True)
    fitted = VerticalClassifier(n_estimators=2, parties={"a": [0, 1], "b": [2, 3]}).fit(pd.DataFrame(X), y)
    assert fitted.score(pd.DataFrame(X), y) > 0.9


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"parties": 0}, "VB-1002"),
        ({"parties": True}, "VB-1002"),
        ({"parties": "two"}, "VB-1002"),
        ({"parties": {"a": [0, 1], "b": [1]}}, "VB-1002"),
        ({"parties": {"a": [0], "b": [5]}}, "VB-1112"),
        ({"parties": {"a": [0], "b": [-1]}}, "VB-1112"),
        ({"parties": {"a": ["age"], "b": ["nothing"]}}, "VB-1112"),
        ({"parties": {"a": ["age"], "b": []}}, "VB-1113"),
        ({"parties": {}}, "VB-1113"),
        ({"parties": {1: [0], 2: [1]}}, "VB-1002"),
        ({"active": "nobody"}, "VB-1002"),
        ({"categorical": ["nothing"]}, "VB-1112"),
        ({"protocol": "nothing"}, "VB-1001"),
        ({"objective": "regression"}, "VB-1002"),
        ({"objective": "nothing"}, "VB-1002"),
        ({"n_jobs": 0}, "VB-1002"),
        ({"n_jobs": -2}, "VB-1002"),
        ({"n_jobs": "two"}, "VB-1002"),
        ({"learning_rate": 0}, "VB-1002"),
        ({"id": "customer_id"}, "VB-1004"),
        ({"early_stopping_rounds": 3}, "VB-1004"),
    ],
)
def test_impossible_parameters_have_a_code(people: pd.DataFrame, parameters, code: str) -> None:
    with pytest.raises(ValueError, match=f"^{code}: ") as caught:
        VerticalClassifier(n_estimators=2, **parameters).fit(people[NUMBERS], people["late"])
    assert isinstance(caught.value, VeilBoostError)


def test_data_that_cannot_be_has_a_code(people: pd.DataFrame) -> None:
    X, y = people[NUMBERS], people["late"]
    with pytest.raises(ValueError, match=r"^VB-1110: column 'x1' is infinite"):
        small().fit(np.array([[0.0, 1.0], [1.0, np.inf]]), [0, 1])
    with pytest.raises(ValueError, match=r"^VB-1106: the labels hold only one class"):
        small().fit(X, y * 0)
    with pytest.raises(ValueError, match=r"^VB-1106: Unknown label type: continuous"):
        small().fit(X, people["value"])
    with pytest.raises(ValueError, match=r"^VB-1106: .* negative"):
        VerticalRegressor(objective="poisson").fit(X, people["value"] - 100)
    with pytest.raises(ValueError, match=r"^VB-1004: .* mapping"):
        small().fit(people, "late")
    with pytest.raises(ValueError, match=r"^VB-1306: "):
        small().fit({"bank": X}, y).predict(X)
