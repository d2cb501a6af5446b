"""Columns sampled by level, limits of splits by categories, and constraints: against XGBoost and by their definitions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import xgboost as xgb

from support import make_columns, make_labels, sha, split_among, train
from veilboost import VerticalRegressor
from veilboost.boost.limits import level_columns
from veilboost.config import TrainingConfig
from veilboost.errors import UnsupportedCombination
from veilboost.model.joined import join
from veilboost.protocols.registry import all_protocols
from veilboost.protocols.validation import check_config

pytestmark = pytest.mark.fast

LIMITING = {"plain", "paillier", "lattice", "secagg"}


def used_by_level(tree) -> list[set[int]]:
    """The columns that a tree splits by, level by level."""
    levels, nodes = [], [0]
    while nodes:
        splits = [node for node in nodes if tree.left[node] >= 0]
        levels.append({int(tree.feature[node]) for node in splits})
        nodes = [int(tree.left[node]) + side for node in splits for side in (0, 1)]
    return levels


# --- columns by level -----------------------------------------------------------------------------------------------


def test_the_columns_of_a_level_do_not_depend_on_their_owners():
    config = TrainingConfig(colsample_bylevel=0.5, max_depth=4)
    together = level_columns([9], 3, config)[0]
    parts = level_columns([4, 0, 5], 3, config)
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), together)
    assert (together.sum(axis=1) == 4).all()  # as in XGBoost, rounded down
    assert len({level.tobytes() for level in together}) > 1
    assert level_columns([9], 3, TrainingConfig()) is None
    assert (level_columns([2], 0, TrainingConfig(colsample_bylevel=0.1))[0].sum(axis=1) == 1).all()


@pytest.mark.parametrize("protocol", ["plain", "paillier", "lattice"])
def test_every_level_uses_its_columns_only(protocol):
    columns = make_columns(3, rows=200, numeric=6, categorical=2, missing=0.1)
    config = TrainingConfig(objective="binary", n_estimators=3, max_depth=3, max_bin=8, colsample_bylevel=0.3)
    run = train(split_among(columns, make_labels(3, columns), 3), config, protocol)
    model, seen = join(run.shares), 0
    for number, tree in enumerate(model.trees):
        allowed = level_columns([8], number, config)[0]
        for level, used in zip(allowed, used_by_level(tree), strict=False):
            assert used <= set(np.flatnonzero(level).tolist())
            seen += len(used)
    assert seen > 8
    assert sha(run) == sha(train(split_among(columns, make_labels(3, columns), 1), config))


def test_protocols_that_cannot_limit_splits_refuse():
    config = TrainingConfig(objective="binary", colsample_bylevel=0.5)
    limiting = set()
    for name, spec in all_protocols().items():
        try:
            check_config(spec, spec.settled(config))
            limiting.add(name)
        except UnsupportedCombination as error:
            assert "colsample_bylevel" in str(error)
    assert limiting == LIMITING


# --- splits by categories, against XGBoost --------------------------------------------------------------------------


def categorical_data(categories: int, missing: float, rows: int = 2500):
    rng = np.random.default_rng(categories)
    codes = rng.integers(0, categories, (rows, 2)).astype(float)
    y = rng.normal(size=(categories, 2))[codes.astype(int), [0, 1]].sum(axis=1) + rng.normal(0, 0.3, rows)
    codes[rng.random(codes.shape) < missing] = np.nan
    names = [f"c{code:03}" for code in range(categories)]
    frame = pd.DataFrame(
        {
            name: pd.Categorical.from_codes(np.nan_to_num(codes[:, at], nan=-1).astype(int), categories=names)
            for at, name in enumerate("ab")
        }
    )
    return frame, y


def both(frame, y, **params):
    """Predictions of the same parameters here and in XGBoost, on pooled columns."""
    common = {"max_depth": 3, "base_score": 0.0, **params}
    ours = VerticalRegressor(n_estimators=4, gradient_bits=24, max_categories=1000, **common).fit(frame, y)
    data = xgb.DMatrix(frame, y, enable_categorical=True)
    given = {"tree_method": "hist", "nthread": 1, "eta": 0.3, "objective": "reg:squarederror", **common}
    return ours, ours.predict(frame), xgb.train(given, data, 4).predict(data)


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize(("onehot", "largest"), [(1, 64), (1, 3), (1, 1), (12, 64), (13, 64)])
def test_splits_by_categories_are_xgboosts(missing, onehot, largest):
    frame, y = categorical_data(12, missing)
    _, ours, theirs = both(frame, y, max_cat_to_onehot=onehot, max_cat_threshold=largest)
    np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-4)


def test_limits_of_sets_change_the_model():
    """So that the tests above compare something."""
    frame, y = categorical_data(12, 0.2)
    found = [
        both(frame, y, max_cat_to_onehot=a, max_cat_threshold=b)[1] for a, b in ((1, 64), (1, 3), (1, 1), (13, 64))
    ]
    assert len({values.tobytes() for values in found}) == len(found)


def test_many_categories_are_limited_by_default_as_in_xgboost():
    frame, y = categorical_data(150, 0.1, rows=6000)
    _, ours, theirs = both(frame, y, max_cat_to_onehot=1)
    np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-4)
