import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from veilboost import VerticalClassifier, VerticalRegressor

pytestmark = pytest.mark.fast


def small(**parameters) -> VerticalClassifier:
    return VerticalClassifier(n_estimators=4, max_depth=3, **parameters)


def by_id(**parameters) -> VerticalClassifier:
    return small(id="customer_id", **parameters)


@pytest.fixture
def known(bank: pd.DataFrame, shop: pd.DataFrame) -> pd.DataFrame:
    """The bank's rows that the shop knows as well, in the bank's order."""
    return bank[bank["customer_id"].isin(shop["customer_id"])].reset_index(drop=True)


def test_fit_takes_the_people_whom_all_parties_know(bank, shop, known) -> None:
    fitted = by_id().fit({"bank": bank, "shop": shop}, "late")
    assert len(known) == 170
    of_shop = shop.set_index("customer_id").loc[known["customer_id"]].reset_index()
    ordered = by_id().fit({"bank": known, "shop": of_shop}, "late")
    assert fitted.model_sha256_ == ordered.model_sha256_
    assert fitted.active_ == "bank"
    assert fitted.n_features_in_ == 6
    assert fitted.feature_names_in_.tolist() == ["age", "income", "branch", "basket", "visits", "city"]
    assert fitted.feature_importances_.shape == (6,)


def test_equals_one_matrix_of_the_joined_table(bank, shop, known) -> None:
    joined = known.merge(shop, on="customer_id").sort_values("customer_id")
    columns = {"bank": ["age", "income", "branch"], "shop": ["basket", "visits", "city"]}
    one = small(parties=columns).fit(joined[columns["bank"] + columns["shop"]], joined["late"])
    assert by_id().fit({"bank": bank, "shop": shop}, "late").model_sha256_ == one.model_sha256_


def test_predictions_come_in_the_order_of_the_active_party(bank, shop, known) -> None:
    fitted = by_id().fit({"bank": bank, "shop": shop}, "late")
    expected = dict(zip(known["customer_id"], fitted.predict_proba({"bank": known, "shop": shop})[:, 1], strict=True))
    shuffled = known.sample(frac=1.0, random_state=1)
    again = fitted.predict_proba({"bank": shuffled, "shop": shop.iloc[::-1]})[:, 1]
    assert again.tolist() == [expected[number] for number in shuffled["customer_id"]]
    assert fitted.score({"bank": known, "shop": shop}, known["late"]) > 0.75


def test_predict_refuses_rows_that_a_party_does_not_know(bank, shop, known) -> None:
    fitted = by_id().fit({"bank": bank, "shop": shop}, "late")
    with pytest.raises(ValueError, match=r"^VB-1202: 30 of the 200 rows of bank are not in the table of shop"):
        fitted.predict({"bank": bank, "shop": shop})
    with pytest.raises(ValueError, match=r"^VB-1202: 170 of the 170"):
        fitted.predict({"bank": known, "shop": shop.assign(customer_id=shop["customer_id"] + 5000)})
    with pytest.raises(ValueError, match=r"^VB-1202: 170 of the 170"):
        fitted.predict({"bank": known, "shop": shop.assign(customer_id=shop["customer_id"].astype(str))})


def test_predict_reads_nothing_but_the_columns_of_training(bank, shop, known) -> None:
    fitted = by_id().fit({"bank": bank, "shop": shop}, "late")
    bare = known.drop(columns="late")
    expected = fitted.predict({"bank": bare, "shop": shop})
    troubled = known.assign(
        late="who knows",
        infinite=np.inf,
        mixed=[1, "two"] * (len(known) // 2),
        opened=pd.Timestamp("2024-01-01"),
        lists=[[1]] * len(known),
    )
    shuffled = troubled[troubled.columns[::-1]]
    for frame in (known, troubled, shuffled):
        np.testing.assert_array_equal(fitted.predict({"bank": frame, "shop": shop, "stranger": None}), expected)


def test_text_ids_and_text_labels(bank, shop, known) -> None:
    spelt = [f.assign(customer_id="C" + f["customer_id"].astype(str)) for f in (bank, shop, known)]
    spelt[0]["late"] = np.where(bank["late"] == 1, "yes", "no")
    fitted = by_id().fit({"bank": spelt[0], "shop": spelt[1]}, "late")
    assert fitted.classes_.tolist() == ["no", "yes"]
    numeric = by_id().fit({"bank": bank, "shop": shop}, "late")
    assert numeric.classes_.tolist() == [0, 1]
    assert numeric.classes_.dtype.kind == "i"
    says = fitted.predict({"bank": spelt[2], "shop": spelt[1]})
    assert ((says == "yes") == (numeric.predict({"bank": known, "shop": shop}) == 1)).all()


def test_labels_by_name_and_as_an_array_are_the_same(bank, shop) -> None:
    by_name = by_id().fit({"bank": bank, "shop": shop}, "late")
    for labels in (bank["late"], bank["late"].to_numpy(), bank["late"].tolist(), bank["late"].astype(object)):
        by_array = by_id().fit({"bank": bank.drop(columns="late"), "shop": shop}, labels)
        assert by_array.model_sha256_ == by_name.model_sha256_
        assert by_array.classes_.tolist() == [0, 1]


def test_frames_of_different_kinds_side_by_side(people, bank, shop) -> None:
    expected = by_id(categorical=["branch"]).fit({"bank": bank, "shop": shop}, "late")
    for of_bank, of_shop in ((pl.from_pandas, pa.Table.from_pandas), (pa.Table.from_pandas, pl.from_pandas)):
        fitted = by_id(categorical=["branch"]).fit({"bank": of_bank(bank), "shop": of_shop(shop)}, "late")
        assert fitted.model_sha256_ == expected.model_sha256_
    numbers = people[["age", "income", "branch"]].to_numpy()
    mixed = small().fit({"bank": people[["basket", "city"]], "shop": numbers}, people["late"])
    assert [info.name for info in mixed.shares_["shop"].columns] == ["shop.0", "shop.1", "shop.2"]
    assert mixed.predict({"bank": people, "shop": numbers}).shape == (len(people),)


def test_matrix_of_objects_may_hold_text(people) -> None:
    objects = people[["basket", "city"]].to_numpy(dtype=object)
    fitted = small(categorical=["bank.0"]).fit({"bank": people[["branch"]].to_numpy(), "shop": objects}, people["late"])
    assert fitted.shares_["shop"].columns[1].categories == ("Aachen", "Bonn", "Celle", "Dresden")
    assert fitted.shares_["bank"].columns[0].categories == ("1", "2", "3", "4", "5")
    with pytest.raises(ValueError, match=r"^VB-1109: column 'shop.0'") as caught:
        small().fit({"shop": np.array([["Berlin"], [2]] * 2, dtype=object)}, [0, 1, 0, 1])
    assert "Berlin" not in str(caught.value)


def test_same_rows_without_ids(people) -> None:
    frames = {"bank": people[["age", "income"]], "shop": people[["basket", "city"]]}
    together = small().fit(frames, people["late"])
    alone = small().fit({"bank": people[["age", "income"]]}, people["late"])
    assert together.score(frames, people["late"]) > alone.score(frames, people["late"])
    with pytest.raises(ValueError, match=r"^VB-1202: shop has 239 rows, bank has 240"):
        together.predict(frames | {"shop": people.iloc[1:]})


def test_active_party_with_labels_only(bank, shop, known) -> None:
    court = bank[["customer_id", "late"]]
    fitted = by_id().fit({"court": court, "bank": bank.drop(columns="late"), "shop": shop}, "late")
    assert fitted.model_sha256_ == by_id().fit({"bank": bank, "shop": shop}, "late").model_sha256_
    rows = {"court": known[["customer_id"]], "bank": known, "shop": shop}
    assert (fitted.predict(rows) == fitted.predict(rows | {"court": known})).all()


def test_people_who_are_left_out_leave_no_trace(bank, shop, known) -> None:
    """Neither a category nor an infinite weight of theirs."""
    strangers = ~bank["customer_id"].isin(known["customer_id"])
    odd = bank.assign(job="clerk").assign(job=lambda f: np.where(f["age"] > 40, "baker", f["job"]))
    expected = by_id().fit({"bank": odd, "shop": shop}, "late")
    marked = odd.assign(job=lambda f: np.where(strangers, "spy", f["job"]))
    weight = np.where(strangers, np.inf, 1.0)
    fitted = by_id().fit({"bank": marked, "shop": shop}, "late", sample_weight=weight)
    assert fitted.model_sha256_ == expected.model_sha256_
    assert all("spy" not in (info.categories or ()) for info in fitted.joined_.columns)


@pytest.mark.parametrize(
    ("change", "label", "code"),
    [
        ({"shop": None}, "late", "VB-1102"),
        ({"shop": "shop.csv"}, "late", "VB-1102"),
        ({"shop": np.ones(3)}, "late", "VB-1102"),
        ({"shop": np.ones((200, 2))}, "late", "VB-1112"),  # a matrix has no id column
        ({}, "nothing", "VB-1104"),
        ({}, None, "VB-1104"),
        ({}, np.zeros(7), "VB-1202"),
        ({}, np.zeros((200, 2)), "VB-1202"),
        ({}, np.full(200, np.nan), "VB-1105"),
        ({}, np.array([None] * 200), "VB-1105"),
        ({"shop": pd.DataFrame({"customer_id": [-5, -6], "x": [1, 2]})}, "late", "VB-1201"),
        ({"shop": pd.DataFrame({"customer_id": [1, 1], "x": [1, 2]})}, "late", "VB-1103"),
        ({"shop": pd.DataFrame({"customer_id": [1, 2]})}, "late", "VB-1113"),
    ],
)
def test_tables_that_do_not_fit_have_a_code(bank, shop, change, label, code: str) -> None:
    with pytest.raises(ValueError, match=f"^{code}: "):
        by_id().fit({"bank": bank, "shop": shop} | change, label)


def test_more_that_does_not_fit(bank, shop, known) -> None:
    with pytest.raises(ValueError, match=r"^VB-1115: "):
        by_id().fit({"bank": bank, "shop": shop.assign(age=1)}, "late")
    with pytest.raises(ValueError, match=r"^VB-1113: "):
        by_id().fit({}, [0, 1])
    with pytest.raises(ValueError, match=r"^VB-1112: there is no column 'nothing'"):
        by_id(categorical=["nothing"]).fit({"bank": bank, "shop": shop}, "late")
    with pytest.raises(ValueError, match=r"^VB-1202: shop has 210 rows"):
        small().fit({"bank": bank, "shop": shop.drop(columns="customer_id")}, "late")
    with pytest.raises(ValueError, match=r"^VB-1106: the labels are text"):
        VerticalRegressor(id="customer_id").fit({"bank": bank.assign(late="no"), "shop": shop}, "late")
    fitted = by_id().fit({"bank": bank, "shop": shop}, "late")
    with pytest.raises(ValueError, match=r"^VB-1306: there are no rows of shop"):
        fitted.predict({"bank": known})
    with pytest.raises(ValueError, match=r"^VB-1112: there is no feature column 'city'"):
        fitted.predict({"bank": known, "shop": shop.drop(columns="city")})
    with pytest.raises(ValueError, match=r"^VB-1306: column 'visits' of shop changed"):
        fitted.predict({"bank": known, "shop": shop.assign(visits="often")})
