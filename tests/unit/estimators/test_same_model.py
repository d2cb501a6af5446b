"""One model, whoever holds which columns, however many threads work, in whatever order rows come."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from veilboost import VerticalClassifier, VerticalRegressor, make_demo_data

pytestmark = pytest.mark.fast

COLUMNS = ["age", "income", "branch", "basket", "visits", "city"]
ESTIMATORS = [
    (VerticalClassifier(n_estimators=5, categorical=["branch"]), "late"),
    (VerticalClassifier(n_estimators=5, categories="onehot", max_bin=8, colsample_bytree=0.6, subsample=0.7), "late"),
    (VerticalClassifier(n_estimators=3, proposal="local", max_bin=8), "late"),
    (VerticalClassifier(n_estimators=3), "branch"),
    (VerticalRegressor(n_estimators=5, weighted_bins=True), "value"),
    (VerticalRegressor(n_estimators=5, objective="poisson", categories="ordinal"), "visits"),
]


@pytest.mark.parametrize(("estimator", "label"), ESTIMATORS)
def test_same_model_for_any_number_of_parties_and_threads(people: pd.DataFrame, estimator, label: str) -> None:
    columns = [name for name in COLUMNS if name != label]
    estimator = clone(estimator)
    weight = np.random.default_rng(0).integers(1, 4, len(people))
    found = {
        (parties, threads): estimator.set_params(parties=parties, n_jobs=threads)
        .fit(people[columns], people[label], sample_weight=weight)
        .model_sha256_
        for parties in (1, 2, 5)
        for threads in (1, 2)
    }
    assert len(set(found.values())) == 1, found


@pytest.mark.parametrize(("estimator", "label"), ESTIMATORS)
def test_same_model_for_rows_in_another_order(people: pd.DataFrame, estimator, label: str) -> None:
    columns = [name for name in COLUMNS if name != label]
    estimator = clone(estimator).set_params(id="customer_id")
    frames = {
        "bank": people[["customer_id", label, *columns[:2]]],
        "shop": people[["customer_id", *columns[2:4]]],
        "telecom": people[["customer_id", *columns[4:]]],
    }
    expected = estimator.fit(frames, label)
    sha256, predicted = expected.model_sha256_, expected.predict(frames)
    for seed in range(3):
        shuffled = {
            party: frame.sample(frac=1.0, random_state=seed + at) for at, (party, frame) in enumerate(frames.items())
        }
        assert estimator.fit(shuffled, label).model_sha256_ == sha256
    np.testing.assert_array_equal(estimator.predict(frames), predicted)


def test_columns_of_more_than_256_bins(people: pd.DataFrame) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(600, 4)), rng.integers(0, 2, 600)
    hashes = {VerticalClassifier(n_estimators=2, max_bin=400, parties=p).fit(X, y).model_sha256_ for p in (1, 4)}
    assert len(hashes) == 1


def test_same_model_on_the_scene() -> None:
    scene = make_demo_data(400)
    fitted = VerticalClassifier(n_estimators=3, id="customer_id").fit(scene, "default")
    reverse = {party: table.take(np.arange(table.num_rows)[::-1]) for party, table in scene.items()}
    assert (
        fitted.model_sha256_
        == VerticalClassifier(n_estimators=3, id="customer_id").fit(reverse, "default").model_sha256_
    )
