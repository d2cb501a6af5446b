"""Whatever the table, the estimators keep their promises."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilboost import VerticalClassifier, VerticalRegressor

pytestmark = pytest.mark.fast

# Few values and some missing, so that ties and empty sides are common.
CELLS = st.one_of(st.integers(-3, 3).map(float), st.just(float("nan")), st.floats(-1e6, 1e6, width=32))


@st.composite
def tables(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A matrix, two classes, and whole weights that leave rows of both."""
    rows, columns = draw(st.integers(4, 24)), draw(st.integers(1, 5))
    cells = draw(st.lists(CELLS, min_size=rows * columns, max_size=rows * columns))
    labels = draw(st.lists(st.integers(0, 1), min_size=rows, max_size=rows))
    weight = draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows))
    labels[:2], weight[:2] = [0, 1], [1, 2]
    return np.array(cells).reshape(rows, columns), np.array(labels), np.array(weight)


def classifier(**parameters) -> VerticalClassifier:
    return VerticalClassifier(n_estimators=3, max_depth=3, min_child_weight=0.1, max_bin=32, **parameters)


@settings(max_examples=40, deadline=None)
@given(tables(), st.integers(2, 5), st.sampled_from(["global", "local"]))
def test_parties_do_not_change_the_model(table, parties: int, proposal: str) -> None:
    X, y, _ = table
    alone = classifier(parties=1, proposal=proposal).fit(X, y)
    together = classifier(parties=parties, proposal=proposal).fit(X, y)
    assert together.model_sha256_ == alone.model_sha256_
    np.testing.assert_array_equal(together.predict_proba(X), alone.predict_proba(X))


@settings(max_examples=40, deadline=None)
@given(tables())
def test_weights_are_repetitions(table) -> None:
    X, y, weight = table
    weighted = classifier(weighted_bins=True).fit(X, y, sample_weight=weight)
    repeated = classifier().fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert weighted.model_sha256_ == repeated.model_sha256_


@settings(max_examples=30, deadline=None)
@given(tables(), st.randoms(use_true_random=False))
def test_row_order_does_not_matter_where_rows_have_ids(table, random) -> None:
    X, y, _ = table
    first, second = (np.array(random.sample(range(len(X)), len(X))) for _ in range(2))
    half = (X.shape[1] + 1) // 2

    def frames(of_a: np.ndarray, of_b: np.ndarray) -> dict[str, pa.Table]:
        """Both parties' rows, each in its own order; b has a column of no use beside its own."""
        columns = {f"x{at}": X[:, at] for at in range(X.shape[1])} | {"one": np.ones(len(X))}
        a, b = list(columns)[:half], list(columns)[half:]
        return {
            "a": pa.table({"id": of_a} | {name: columns[name][of_a] for name in a}),
            "b": pa.table({"id": of_b} | {name: columns[name][of_b] for name in b}),
        }

    straight = np.arange(len(X))
    expected = classifier(id="id").fit(frames(straight, straight), y)
    shuffled = classifier(id="id").fit(frames(first, second), y[first])
    assert shuffled.model_sha256_ == expected.model_sha256_
    predicted = expected.predict_proba(frames(straight, second))
    np.testing.assert_array_equal(shuffled.predict_proba(frames(first, straight)), predicted[first])


@settings(max_examples=25, deadline=None)
@given(tables())
def test_save_and_load_change_nothing(tmp_path_factory, table) -> None:
    X, y, _ = table
    folder = tmp_path_factory.mktemp("model")
    for estimator in (classifier(), VerticalRegressor(n_estimators=2)):
        saved = estimator.fit(X, y)
        saved.save(folder)
        loaded = type(estimator).load(folder)
        assert loaded.model_sha256_ == saved.model_sha256_
        np.testing.assert_array_equal(loaded.predict(X), saved.predict(X))
