"""Columns sampled by level, limits of splits by categories, and constraints: against XGBoost and their definitions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.datasets import load_breast_cancer, load_diabetes

from support import make_columns, make_labels, sha, split_among, train
from veilboost import HorizontalRegressor, VerticalClassifier, VerticalRegressor
from veilboost.boost.limits import level_columns
from veilboost.config import TrainingConfig
from veilboost.errors import MissingColumn, MixedTypes, UnsupportedCombination
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
    for name, spec in all_protocols().items():
        if name in LIMITING:
            check_config(spec, spec.settled(config))
            continue
        with pytest.raises(UnsupportedCombination, match="colsample_bylevel"):
            check_config(spec, spec.settled(config))


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


@pytest.mark.parametrize("least", [0.0, 1.0])
def test_rare_categories_keep_their_place_in_the_order(least):
    """XGBoost places a category whose hessian sum is below min_child_weight as if its weight were 0."""
    frame, y = categorical_data(60, 0.0, rows=400)
    label = (y > np.median(y)).astype(float)
    common = {"max_depth": 3, "base_score": 0.5, "max_cat_to_onehot": 1, "min_child_weight": least}
    ours = VerticalClassifier(n_estimators=1, gradient_bits=24, **common).fit(frame, label).predict_proba(frame)[:, 1]
    data = xgb.DMatrix(frame, label, enable_categorical=True)
    theirs = xgb.train({"nthread": 1, "objective": "binary:logistic", **common}, data, 1).predict(data)
    assert np.allclose(ours, theirs, rtol=1e-4) == (least == 0.0)


def test_many_categories_are_limited_by_default_as_in_xgboost():
    frame, y = categorical_data(150, 0.1, rows=6000)
    _, ours, theirs = both(frame, y, max_cat_to_onehot=1)
    np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-4)


# --- monotone and interaction constraints, against XGBoost and by their definitions ---------------------------------

NAMES = [f"x{at}" for at in range(6)]


def whole_numbers(missing: float = 0.0, rows: int = 900):
    """Whole numbers as features, so that both systems have the same bins; labels that break every constraint."""
    rng = np.random.default_rng(5)
    X = rng.integers(0, 12, (rows, 6)).astype(float)
    y = np.sin(X[:, 0]) + 0.3 * X[:, 1] - 0.02 * X[:, 1] ** 2 + X[:, 2] * X[:, 3] / 8 - X[:, 4] / 5
    X[rng.random(X.shape) < missing] = np.nan
    return X, np.exp(y / 4) + rng.normal(0, 0.2, rows) ** 2


def as_xgboost(X, y, rounds=6, **params):
    data = xgb.DMatrix(X, y, feature_names=NAMES)
    common = {"tree_method": "hist", "nthread": 1, "objective": "reg:squarederror", "base_score": 0.0}
    return xgb.train(common | params, data, rounds).predict(data)


DIRECTIONS = {"x0": 1, "x1": 1, "x2": -1, "x4": -1}
SETS = [["x0", "x1", "x2"], ["x2", "x3"], ["x4"]]


CONSTRAINTS = {
    "monotone": {"monotone_constraints": DIRECTIONS},
    "interaction": {"interaction_constraints": SETS},
    "in no set": {"interaction_constraints": [["x0", "x5"]]},
    "both": {"monotone_constraints": DIRECTIONS, "interaction_constraints": SETS},
}


@pytest.mark.parametrize("missing", [0.0, 0.15])
@pytest.mark.parametrize("step", [0.0, 0.5])
@pytest.mark.parametrize("constraints", CONSTRAINTS.values(), ids=CONSTRAINTS)
def test_constrained_models_are_xgboosts(missing, step, constraints):
    X, y = whole_numbers(missing)
    common = {"max_depth": 5, "max_delta_step": step, "base_score": 1.0}
    mine = {"n_estimators": 6, "max_bin": 32, "gradient_bits": 24, **common}
    ours = VerticalRegressor(parties=3, **mine, **constraints).fit(X, y).predict(X)
    np.testing.assert_allclose(ours, as_xgboost(X, y, **common, **constraints), rtol=1e-4, atol=1e-4)
    free = VerticalRegressor(**mine).fit(X, y).predict(X)
    assert np.abs(free - ours).max() > 0.01, "the constraints change the model"


@pytest.mark.parametrize("objective", ["poisson", "gamma", "tweedie"])
def test_constrained_models_of_other_losses_are_xgboosts(objective):
    """Their hessians depend on labels and margins, and so do the bounds of nodes."""
    X, y = whole_numbers(0.15)
    common = {"max_depth": 5, "learning_rate": 0.1, "min_child_weight": 0.1, "base_score": 1.0}
    ours = VerticalRegressor(
        parties=3, objective=objective, n_estimators=30, gradient_bits=30, **common, **CONSTRAINTS["both"]
    ).fit(X, y)
    name = "count:poisson" if objective == "poisson" else f"reg:{objective}"
    theirs = as_xgboost(X, y, rounds=30, objective=name, **common, **CONSTRAINTS["both"])
    np.testing.assert_allclose(ours.predict(X), theirs, rtol=1e-4)


def largest_violation(model, X, column, way):
    """By how much a prediction moves against its direction when one column rises and all others stay."""
    curves = []
    for value in range(12):
        moved = X.copy()
        moved[:, column] = value
        curves.append(way * model.predict(moved))
    return -np.diff(curves, axis=0).min()


@pytest.mark.parametrize("objective", ["regression", "poisson", "gamma"])
@pytest.mark.parametrize("interactions", [None, SETS])
def test_predictions_are_monotone(objective, interactions):
    X, y = whole_numbers(0.1)
    common = {"objective": objective, "n_estimators": 12, "max_depth": 6, "max_bin": 16, "min_child_weight": 0.1}
    free = VerticalRegressor(**common).fit(X, y)
    limits = {"monotone_constraints": DIRECTIONS, "interaction_constraints": interactions}
    model = VerticalRegressor(**common, **limits).fit(X, y)
    for name, way in DIRECTIONS.items():
        assert largest_violation(model, X[:200], NAMES.index(name), way) <= 0, name
    assert largest_violation(free, X[:200], 0, 1) > 0.01, "the labels break the constraint"


@pytest.mark.parametrize("data", [load_diabetes, load_breast_cancer])
@pytest.mark.parametrize("protocol", ["plain", "lattice"])
def test_predictions_are_monotone_on_real_data(data, protocol):
    """Columns of both parties, against the direction that the labels suggest for one of them."""
    X, y = data(return_X_y=True)
    X, count = X[:, :8], 4 if protocol == "lattice" else 30
    # Of the active party and of the passive party, one each with and against its correlation with the labels.
    ways = {at: int(np.sign(np.corrcoef(X[:, at], y)[0, 1])) * (-1 if at in {1, 5} else 1) for at in (1, 2, 5, 7)}
    estimator = VerticalRegressor if data is load_diabetes else VerticalClassifier
    common = {"protocol": protocol, "parties": 2, "n_estimators": count, "max_bin": 16, "min_child_weight": 0.1}
    free, model = (estimator(**common, monotone_constraints=constraints).fit(X, y) for constraints in (None, ways))
    used = {int(column) for tree in model.joined_.trees for column in tree.feature[tree.left >= 0]}
    place = [info.name for info in model.joined_.columns]
    assert any(place.index(f"x{at}") in used for at in ways), "a split by a constrained column"

    def violation(fitted, at):
        rising = np.unique(np.quantile(X[:, at], np.linspace(0, 1, 60)))
        curves = []
        for value in rising:
            moved = X[::5].copy()
            moved[:, at] = value
            curves.append(ways[at] * fitted.predict(moved, output_margin=True))
        return -np.diff(curves, axis=0).min()

    assert max(violation(model, at) for at in ways) <= 0
    assert max(violation(free, at) for at in ways) > 0.01, "the data break the constraints"


def paths(tree, node=0, above=()):
    """The columns of every path from the root to a leaf."""
    if tree.left[node] < 0:
        return [frozenset(above)]
    here = (*above, int(tree.feature[node]))
    return paths(tree, int(tree.left[node]), here) + paths(tree, int(tree.left[node]) + 1, here)


def test_paths_stay_within_a_set():
    X, y = whole_numbers()
    allowed = [{NAMES.index(name) for name in names} for names in SETS] + [{at} for at in range(6)]

    def outside(**constraints):
        model = VerticalRegressor(n_estimators=12, max_depth=6, **constraints).fit(X, y)
        place = [NAMES.index(info.name) for info in model.joined_.columns]
        every = {frozenset(place[column] for column in path) for tree in model.joined_.trees for path in paths(tree)}
        assert any(len(path) > 1 for path in every)
        return [path for path in every if not any(path <= each for each in allowed)]

    assert not outside(interaction_constraints=SETS)
    assert outside()


def test_columns_are_named_by_position_too():
    X, y = whole_numbers()
    common = {"n_estimators": 3, "max_depth": 4}
    by_name = VerticalRegressor(**common, monotone_constraints=DIRECTIONS, interaction_constraints=SETS).fit(X, y)
    sequence = [1, 1, -1, 0, -1]
    positions = [[0, 1, 2], [2, 3], [4]]
    by_place = VerticalRegressor(**common, monotone_constraints=sequence, interaction_constraints=positions).fit(X, y)
    named_sets = dict(zip("abc", SETS, strict=True))
    by_set = VerticalRegressor(**common, monotone_constraints=tuple(sequence), interaction_constraints=named_sets)
    assert by_place.model_sha256_ == by_name.model_sha256_ == by_set.fit(X, y).model_sha256_
    assert VerticalRegressor(**common, monotone_constraints=[0] * 6).fit(X, y).model_sha256_ == (
        VerticalRegressor(**common).fit(X, y).model_sha256_
    )


@pytest.mark.parametrize(
    ("constraints", "code"),
    [
        ({"monotone_constraints": {"age": 1}}, MissingColumn.code),
        ({"monotone_constraints": [1] * 7}, "VB-1002"),
        ({"monotone_constraints": "(1,0)"}, "VB-1002"),
        ({"monotone_constraints": {"x0": 2}}, "VB-1002"),
        ({"interaction_constraints": [["x0", "x9"]]}, MissingColumn.code),
        ({"interaction_constraints": "[[0, 1]]"}, "VB-1002"),
        ({"monotone_constraints": DIRECTIONS, "objective": "absolute_error"}, "VB-1004"),
        ({"monotone_constraints": DIRECTIONS, "protocol": "smm1"}, "VB-1004"),
        ({"interaction_constraints": SETS, "protocol": "elxgb"}, "VB-1004"),
    ],
)
def test_impossible_constraints_are_refused(constraints, code):
    X, y = whole_numbers(rows=60)
    with pytest.raises(ValueError, match=code):
        VerticalRegressor(n_estimators=1, **constraints).fit(X, y)


def test_a_column_of_categories_has_no_direction():
    frame, y = categorical_data(5, 0.0, rows=200)
    with pytest.raises(MixedTypes):
        VerticalRegressor(n_estimators=1, monotone_constraints={"a": 1}).fit(frame, y)
    VerticalRegressor(n_estimators=1, monotone_constraints={"a": 1}, categories="ordinal").fit(frame, y)


@pytest.mark.parametrize(
    "constraints", [*CONSTRAINTS.values(), {"colsample_bylevel": 0.5}], ids=[*CONSTRAINTS, "level"]
)
def test_a_horizontal_model_is_that_of_pooled_rows(constraints):
    X, y = whole_numbers(0.1)
    common = {"n_estimators": 4, "max_depth": 4, "max_bin": 16, "base_score": 1.0, "gradient_bits": 20}
    horizontal = HorizontalRegressor(protocol="secagg", participants=3, **common, **constraints).fit(X, y)
    pooled = VerticalRegressor(parties=1, **common, **constraints).fit(X, y)
    np.testing.assert_allclose(horizontal.predict(X), pooled.predict(X), rtol=1e-6)
    assert horizontal.joined_.skeleton.config.monotone_constraints == constraints.get("monotone_constraints", {})


def test_exported_models_predict_the_same(tmp_path):
    X, y = whole_numbers(0.1)
    model = VerticalRegressor(n_estimators=4, max_depth=4, **CONSTRAINTS["both"]).fit(X, y)
    model.export_xgboost(tmp_path / "model.json")
    booster = xgb.Booster(model_file=str(tmp_path / "model.json"))
    names = [info.name for info in model.joined_.columns]
    given = xgb.DMatrix(X[:, [NAMES.index(name) for name in names]], feature_names=booster.feature_names)
    np.testing.assert_allclose(booster.predict(given), model.predict(X), rtol=1e-5)
