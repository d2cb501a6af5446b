"""Exported models, loaded and run by XGBoost itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_joined import COLOURS, OBJECTIVES, TOWNS, federation, labels, people, trained

from veilboost.boost.bins import ABOVE_ALL
from veilboost.boost.objective import make_objective
from veilboost.config import TrainingConfig
from veilboost.errors import NotExportable
from veilboost.model.export import export_xgboost, to_xgboost_json
from veilboost.model.joined import JoinedModel, join
from veilboost.types import Column

xgboost = pytest.importorskip("xgboost")

pytestmark = pytest.mark.fast


def booster_of(model: JoinedModel) -> xgboost.Booster:
    with TemporaryDirectory() as folder:
        export_xgboost(model, Path(folder) / "model.json")
        return xgboost.Booster(model_file=str(Path(folder) / "model.json"))


def codes(columns: Sequence[Column]) -> np.ndarray:
    """Rows as an exported model takes them, for columns that use the training's categories."""
    return np.stack(
        [
            column.values
            if column.categories is None
            else np.where(column.values < 0, np.nan, column.values).astype(np.float32)
            for column in columns
        ],
        axis=1,
    )


def assert_same(model: JoinedModel, columns: Sequence[Column]) -> None:
    booster = booster_of(model)
    names = to_xgboost_json(model)["learner"]["feature_names"]
    rows = xgboost.DMatrix(codes(columns), feature_names=names)
    margins = model.margins(columns)
    theirs = booster.predict(rows, output_margin=True)
    theirs = theirs.T if theirs.ndim == 2 else theirs[np.newaxis]
    np.testing.assert_allclose(theirs, margins, rtol=1e-5, atol=2e-6)
    ours = make_objective(model.skeleton.objective, classes=model.skeleton.trees_per_round).predict(margins)
    # Regression may cancel to nearly zero, where float32 sums have no relative precision left.
    slack = 2e-6 if model.skeleton.objective == "regression" else 0.0
    np.testing.assert_allclose(booster.predict(rows), ours, rtol=1e-5, atol=slack)


@pytest.mark.parametrize("proposal", ["global", "local"])
@pytest.mark.parametrize("categories", ["ordinal", "onehot", "sets"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_xgboost_predicts_the_same(objective: str, categories: str, proposal: str) -> None:
    model = join(trained(objective, categories=categories, proposal=proposal))
    assert_same(model, people(300, seed=6))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 10_000),
    objective=st.sampled_from(OBJECTIVES),
    categories=st.sampled_from(["ordinal", "onehot", "sets"]),
    depth=st.integers(1, 6),
)
def test_xgboost_predicts_random_models(seed: int, objective: str, categories: str, depth: int) -> None:
    parts = trained(
        objective,
        people(60, seed),
        categories=categories,
        max_depth=depth,
        min_child_weight=0.0,
        n_estimators=3,
        subsample=0.8,
        random_state=seed,
    )
    assert_same(join(parts), people(100, seed + 1))


def test_a_file_for_booster(tmp_path: Path) -> None:
    model = join(trained("multiclass"))
    export_xgboost(model, tmp_path / "model.json")
    booster = xgboost.Booster(model_file=str(tmp_path / "model.json"))
    assert booster.num_boosted_rounds() == 4
    assert booster.num_features() == 6
    assert booster.feature_names == [column.name for column in people()]
    assert booster.feature_types == ["float", "c", "float", "c", "float", "float"]
    booster.save_model(tmp_path / "again.json")
    rows = xgboost.DMatrix(codes(people(50)), feature_names=booster.feature_names)
    again = xgboost.Booster(model_file=str(tmp_path / "again.json"))
    assert np.array_equal(again.predict(rows), booster.predict(rows))


def test_ordinal_codes_are_numbers_to_xgboost() -> None:
    learner = to_xgboost_json(join(trained(categories="ordinal")))["learner"]
    assert set(learner["feature_types"]) == {"float"}


def test_attributes_tell_how_to_encode() -> None:
    model = join(trained())
    attributes = booster_of(model).attributes()
    assert json.loads(attributes["veilboost.categories"]) == {"colour": list(COLOURS), "town": list(TOWNS)}
    assert json.loads(attributes["veilboost.columns"]) == [column.name for column in people()]
    assert json.loads(attributes["veilboost.classes"]) is None
    assert attributes["veilboost.sha256"] == model.sha256()
    named = replace(model, skeleton=replace(model.skeleton, classes=("no", "yes")))
    assert json.loads(booster_of(named).attributes()["veilboost.classes"]) == ["no", "yes"]


def test_names_that_xgboost_refuses_are_replaced() -> None:
    columns = people()
    odd = ["a[1]", "a_1_", "a<1]", "two\nlines\ud800", "ünïcode 年", 'quo"te\\n']
    renamed = [replace(column, name=name) for column, name in zip(columns, odd, strict=True)]
    config = TrainingConfig(objective="binary", n_estimators=2, max_depth=3)
    model = join(federation(renamed, labels(columns, "binary"), config))
    learner = to_xgboost_json(model)["learner"]
    assert learner["feature_names"] == ["a_1_", "a_1__2", "a_1__3", "two_lines_", "ünïcode 年", 'quo"te\\n']
    assert json.loads(learner["attributes"]["veilboost.columns"]) == odd
    assert_same(model, renamed)


@pytest.mark.parametrize(
    ("objective", "margin"),
    [("binary", m) for m in (-20.0, -13.8, -3.0, 0.0, 3.0, 7.0, 13.8, 20.0)]
    + [("poisson", m) for m in (-100.0, -13.8, 0.0, 13.8, 100.0)]
    + [("regression", m) for m in (-1e6, 0.0, 1e-9, 1e6)],
)
def test_base_scores_that_float32_probabilities_cannot_hold(objective: str, margin: float) -> None:
    model = join(trained(objective))
    model = replace(model, skeleton=replace(model.skeleton, base_margin=np.array([margin])))
    rows = people(50)
    names = [column.name for column in rows]
    theirs = booster_of(model).predict(xgboost.DMatrix(codes(rows), feature_names=names), output_margin=True)
    np.testing.assert_allclose(theirs, model.margins(rows)[0], rtol=5e-7, atol=5e-6)


def test_leaves_are_exact_where_the_base_score_is_plain() -> None:
    model = join(trained())
    for tree, exported in zip(
        model.trees, to_xgboost_json(model)["learner"]["gradient_booster"]["model"]["trees"], strict=True
    ):
        values = np.array(exported["split_conditions"], dtype=np.float32)
        assert np.array_equal(values[tree.leaves], tree.weight[tree.leaves])


def test_base_margins_that_differ_by_class() -> None:
    model = join(trained("multiclass"))
    skeleton = replace(model.skeleton, base_margin=np.array([0.5, -1.25, 3.0]))
    assert_same(replace(model, skeleton=skeleton), people(50))


@pytest.mark.parametrize("side", ["present left", "present right"])
@pytest.mark.parametrize("default_left", [False, True])
def test_categories_that_all_go_one_way(side: str, default_left: bool) -> None:
    model = join(trained(categories="sets"))
    sets = np.zeros_like(model.left_sets)
    if side == "present left":
        for tree in model.trees:
            for node in np.flatnonzero(tree.set_of >= 0):
                sets[tree.set_of[node], : len(model.columns[tree.feature[node]].categories or ())] = True
    trees = tuple(
        replace(tree, default_left=np.where(tree.set_of >= 0, default_left, tree.default_left)) for tree in model.trees
    )
    assert any((tree.set_of >= 0).any() for tree in trees)
    assert_same(replace(model, left_sets=sets, trees=trees), people(200, seed=2))


def test_a_threshold_above_all_values() -> None:
    model = join(trained(categories="ordinal"))
    trees = tuple(replace(tree, threshold=np.full_like(tree.threshold, ABOVE_ALL)) for tree in model.trees)
    assert_same(replace(model, trees=trees), people(200, seed=2))


def test_values_at_a_threshold_take_the_same_branch() -> None:
    model = join(trained(categories="ordinal"))
    columns = list(people(40, seed=8))
    for position, column in enumerate(columns):
        cuts = np.concatenate([tree.threshold[tree.feature == position] for tree in model.trees])
        if column.categories is None and len(cuts):
            around = np.concatenate((cuts, np.nextafter(cuts, np.float32(-np.inf))))
            columns[position] = replace(column, values=np.resize(around, 40).astype(np.float32))
    assert_same(model, columns)


def test_a_single_leaf() -> None:
    model = join(trained(gamma=1e9))
    assert all(tree.nodes == 1 for tree in model.trees)
    assert_same(model, people(20))


def test_xgboost_trains_on() -> None:
    model = join(trained("regression", n_estimators=2))
    rows = people()
    data = xgboost.DMatrix(
        codes(rows),
        labels(rows, "regression"),
        feature_names=[column.name for column in rows],
        feature_types=["c" if column.categories else "float" for column in rows],
        enable_categorical=True,
    )
    longer = xgboost.train({"objective": "reg:squarederror"}, data, 2, xgb_model=booster_of(model))
    assert longer.num_boosted_rounds() == 4
    first = longer.predict(data, iteration_range=(0, 2))
    np.testing.assert_allclose(first, model.margins(rows)[0], rtol=1e-5, atol=2e-6)


def test_custom_losses_stay_here() -> None:
    model = join(trained("regression"))
    with pytest.raises(NotExportable, match="custom"):
        to_xgboost_json(replace(model, skeleton=replace(model.skeleton, objective="custom")))


def test_a_base_score_beyond_float32() -> None:
    model = join(trained("regression"))
    with pytest.raises(NotExportable, match="base score"):
        to_xgboost_json(replace(model, skeleton=replace(model.skeleton, base_margin=np.array([1e39]))))
