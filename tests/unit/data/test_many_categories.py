"""Columns with many values do not memorise the labels, and only their owner is told."""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import roc_auc_score

from two_parties import job_with, make_two, running, settings_of, trained
from veilboost import HorizontalClassifier, VerticalClassifier, make_demo_data
from veilboost.data import DataWarning
from veilboost.data.categories import MIN_CATEGORY_ROWS, frequent_codes
from veilboost.data.load import load_table
from veilboost.engine.pool import Pool
from veilboost.engine.sharded import ShardedEngine
from veilboost.engine.tables import gathered, table_in_place, with_frequent_categories

EMAIL = "person{}@example.org"


def test_the_most_frequent_values_are_kept() -> None:
    few = np.array([1, 500, 2])
    assert frequent_codes(few, 3).tolist() == [0, 1, 2]  # rare values of a column with few values stay
    assert frequent_codes(few, 2).tolist() == [1]
    equal = np.full(5, MIN_CATEGORY_ROWS)
    assert frequent_codes(equal, 3).tolist() == [0, 1, 2]
    assert frequent_codes(np.array([99, 100, 101, 300]), 3).tolist() == [1, 2, 3]


@pytest.mark.parametrize("count", [1, 4])
def test_shards_keep_the_same_values(tmp_path: Path, count: int) -> None:
    rng = np.random.default_rng(3)
    town = np.array([f"t{at:02d}" for at in range(80)])[np.minimum(rng.geometric(0.05, 3000) - 1, 79)]
    frame = pa.table({"town": pa.array([None if at % 50 == 0 else name for at, name in enumerate(town)])})
    pq.write_table(frame, tmp_path / "a.parquet")
    (whole,) = with_frequent_categories(load_table(frame), 10).columns
    in_place = table_in_place(ShardedEngine(Pool(), count, "ray"), tmp_path)
    (shards,) = gathered(with_frequent_categories(in_place, 10)).columns
    names = frame["town"].to_pylist()
    counts = Counter(name for name in names if name is not None).most_common(10)
    kept = sorted(name for name, rows in counts if rows >= MIN_CATEGORY_ROWS)
    assert whole.categories == shards.categories == tuple(kept)
    assert 1 < len(kept) < 10
    np.testing.assert_array_equal(whole.values, shards.values)
    assert whole.values.tolist() == [kept.index(name) if name in kept else -1 for name in names]


@pytest.fixture(scope="module")
def town() -> tuple[dict[str, pd.DataFrame], dict[str, pd.DataFrame]]:
    """The demo data set, for training and for testing."""
    tables = {name: table.to_pandas() for name, table in make_demo_data(3000).items()}
    common = set.intersection(*(set(table["customer_id"]) for table in tables.values()))
    ids = np.array(sorted(common))
    rng = np.random.default_rng(0)
    test = set(rng.permutation(ids)[: len(ids) // 3])
    return (
        {name: table[~table["customer_id"].isin(test)] for name, table in tables.items()},
        {name: table[table["customer_id"].isin(test)] for name, table in tables.items()},
    )


def auc(train: dict[str, Any], test: dict[str, Any], **settings: Any) -> float:
    model = VerticalClassifier(id="customer_id", n_estimators=30, **settings).fit(train, "default")
    return float(roc_auc_score(test["bank"]["default"], model.predict_proba(test)[:, 1]))


@pytest.mark.parametrize("distinct", [10**9, 500], ids=["unique", "near-unique"])
def test_a_column_of_identifiers_does_not_change_the_quality(town: Any, distinct: int) -> None:
    train, test = town
    rng = np.random.default_rng(1)

    def with_email(tables: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
        email = [EMAIL.format(at) for at in rng.integers(distinct, size=len(tables["shop"]))]
        return tables | {"shop": tables["shop"].assign(email=email)}

    without = auc(train, test)
    more, new = with_email(train), with_email(test)
    with pytest.warns(DataWarning, match=r"^shop: column 'email' has \d+ categories, more than 64") as caught:
        found = auc(more, new)
    assert abs(found - without) < 0.005
    assert not any("@example" in str(each.message) for each in caught)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        kept = auc(more, new, max_categories=60_000, max_cat_threshold=60_000)
        assert kept < without - 0.02  # what the bound prevents


def test_a_horizontal_participant_sends_no_rare_value(town: Any) -> None:
    shop = town[0]["bank"].assign(email=[EMAIL.format(at) for at in range(len(town[0]["bank"]))])
    X, y = shop.drop(columns=["customer_id", "default"]), shop["default"]
    with pytest.warns(DataWarning, match="'email'"):
        model = HorizontalClassifier(participants=2, n_estimators=2, max_depth=2).fit(X, y)
    (email,) = (info for info in model.joined_.columns if info.name == "email")
    assert email.categories == ()


def test_a_daemon_tells_its_owner_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = make_two(tmp_path)
    shop = pq.read_table(folder / "shop.parquet")
    emails = pa.array([EMAIL.format(at) for at in range(shop.num_rows)])
    pq.write_table(shop.append_column("email", emails), folder / "shop.parquet")
    with caplog.at_level(logging.WARNING, "veilboost"), running(settings_of(folder, "shop")) as daemon:
        bank = settings_of(folder, "bank", more=f'[peers.shop]\naddress = "127.0.0.1:{daemon.port}"')
        trained(bank, job_with(daemon))
    events = [record for record in caplog.records if getattr(record, "event", "") == "categories_dropped"]
    assert [record.fields["columns"] for record in events] == [1]  # type: ignore[attr-defined]
    assert events[0].fields["peer"] == "bank"  # type: ignore[attr-defined]  # logged by the shop
    assert "email" not in caplog.text
    share = next((folder / "runs-shop" / "first").rglob("manifest.json")).read_text()
    assert '"email"' in share
    assert "@example" not in share
    for file in (folder / "runs-bank").rglob("*"):
        assert file.is_dir() or b"email" not in file.read_bytes()
