"""The scene is reproducible, its parties overlap in part, and each adds something; built-in sets load."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from veilboost import errors
from veilboost.data import PartyTable, infer_objective, list_datasets, load_dataset, load_table, make_demo_data

pytestmark = pytest.mark.fast


def load_party(scene: dict[str, Any], party: str) -> PartyTable:
    return load_table(scene[party], id="customer_id", label="default" if party == "bank" else None)


def test_same_seed_same_scene_other_seed_another() -> None:
    first, again, other = (
        make_demo_data(200, random_state=3),
        make_demo_data(200, random_state=3),
        make_demo_data(200, random_state=4),
    )
    assert list(first) == ["bank", "shop", "telecom"]
    for party, table in first.items():
        assert table.equals(again[party])  # pyright: ignore
        assert not table.equals(other[party])  # pyright: ignore


def test_customers_overlap_only_in_part_and_stand_in_different_orders() -> None:
    scene = make_demo_data(1000)
    ids = {party: table.column("customer_id").to_pylist() for party, table in scene.items()}
    shared = set.intersection(*map(set, ids.values()))
    assert 450 < len(shared) < 650
    assert all(len(shared) < len(known) == len(set(known)) < 1000 for known in ids.values())
    orders = [[customer for customer in known if customer in shared] for known in ids.values()]
    assert orders[0] != orders[1] != orders[2]
    assert all(customer[0] == "C" and customer[1:].isdigit() for customer in shared)


def test_each_party_has_numbers_categories_and_gaps() -> None:
    scene = make_demo_data(1000)
    names: list[str] = []
    for party in scene:
        table = load_party(scene, party)
        names += table.names
        assert any(column.categories for column in table.columns)
        assert any(column.categories is None for column in table.columns)
        assert any(
            (column.values < 0).any() if column.categories else np.isnan(column.values).any()
            for column in table.columns
        )
        assert (table.label is not None) == (party == "bank")
    assert len(names) == len(set(names))


def test_too_small_a_scene_is_refused() -> None:
    with pytest.raises(errors.InvalidParameter):
        make_demo_data(10)


def matrix(tables: list[PartyTable], order: np.ndarray) -> tuple[np.ndarray, list[bool]]:
    columns: list[np.ndarray] = []
    categorical: list[bool] = []
    for table in tables:
        rows = np.argsort(table.ids)[np.searchsorted(np.sort(table.ids), order)]
        for column in table.columns:
            values = column.values[rows].astype(float)
            columns.append(np.where(values < 0, np.nan, values) if column.categories else values)
            categorical.append(column.categories is not None)
    return np.column_stack(columns), categorical


def test_together_is_better_than_alone() -> None:
    scene = make_demo_data()
    parties = {party: load_party(scene, party) for party in scene}
    order = np.array(sorted(set.intersection(*(set(table.ids.tolist()) for table in parties.values()))))
    bank = parties["bank"]
    assert bank.label is not None
    label = bank.label[np.argsort(bank.ids)[np.searchsorted(np.sort(bank.ids), order)]]
    train = np.random.default_rng(0).random(len(order)) < 0.7

    def auc(*names: str) -> float:
        features, categorical = matrix([parties[name] for name in names], order)
        model = HistGradientBoostingClassifier(
            max_iter=60, max_depth=4, categorical_features=categorical, random_state=0
        )
        model.fit(features[train], label[train])
        return float(roc_auc_score(label[~train], model.predict_proba(features[~train])[:, 1]))

    alone, with_shop, together = auc("bank"), auc("bank", "shop"), auc("bank", "shop", "telecom")
    assert 0.67 < alone < 0.77
    assert 0.81 < together < 0.89
    assert alone + 0.02 < with_shop < together - 0.02


@pytest.mark.parametrize("info", list_datasets(), ids=lambda info: info.name)
def test_built_in_sets_are_what_the_list_says(info: Any) -> None:
    loaded: Any = load_dataset(info.name)
    if info.parties:
        assert tuple(loaded) == info.parties
        tables = [load_party(loaded, party) for party in loaded]
        assert len(tables[0].columns) + len(tables[1].columns) + len(tables[2].columns) == info.features
    else:
        tables = [load_table(loaded, id="id", label="label")]
        assert (tables[0].rows, len(tables[0].columns)) == (info.rows, info.features)
    assert tables[0].label is not None
    assert infer_objective(tables[0].label, tables[0].label_classes) == info.task


def test_unknown_data_set() -> None:
    with pytest.raises(errors.UnknownDataset, match="VB-1005"):
        load_dataset("titanic")
