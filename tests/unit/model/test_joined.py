"""Parts put together: routing, hashing, and which parts belong together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from veilboost.boost.grower import Tree
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.errors import DuplicateColumns, ForeignColumns, MissingShare, RowsDiffer
from veilboost.model.joined import JoinedModel, join
from veilboost.model.share import ColumnInfo, ModelShare, SplitRecords
from veilboost.party.simulation import simulate_training
from veilboost.types import Column

pytestmark = pytest.mark.fast

OBJECTIVES = ("binary", "multiclass", "regression", "poisson")
THREE_PARTIES = (0, 2, 4, 6)
COLOURS = ("blue", "green", "red", "white", "yellow")
TOWNS = tuple(f"town{k:02d}" for k in range(12))


def people(rows: int = 240, seed: int = 0) -> tuple[Column, ...]:
    """Six columns: numbers with and without missing values, categories with and without."""
    rng = np.random.default_rng(seed)
    income = rng.normal(size=rows).astype(np.float32)
    income[rng.random(rows) < 0.2] = np.nan
    steps = rng.integers(0, 7, rows).astype(np.float32)  # few values: many ties
    town = rng.integers(0, len(TOWNS), rows).astype(np.int32)
    town[rng.random(rows) < 0.15] = -1
    return (
        Column("income", income),
        Column("colour", rng.integers(0, len(COLOURS), rows).astype(np.int32), COLOURS),
        Column("steps", steps),
        Column("town", town, TOWNS),
        Column("age", rng.uniform(18, 90, rows).astype(np.float32)),
        Column("noise", rng.normal(size=rows).astype(np.float32)),
    )


def labels(columns: Sequence[Column], objective: str, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    income, colour, steps, town, age, _ = (column.values for column in columns)
    score = np.nan_to_num(income, nan=0.7) + (colour % 2) + 0.2 * steps + (town % 3 == 0) - age / 60
    score = score + rng.normal(scale=0.3, size=len(score))
    if objective == "binary":
        return (score > 0.5).astype(np.float64)
    if objective == "multiclass":
        return np.digitize(score, [0.0, 1.0]).astype(np.float64)
    return np.floor(np.exp(score)) if objective == "poisson" else score


def federation(
    columns: Sequence[Column],
    label: np.ndarray,
    config: TrainingConfig,
    borders: Sequence[int] = THREE_PARTIES,
    active: int = 1,
    **options: object,
) -> dict[str, ModelShare]:
    """Parts of a training in which party k owns the columns from borders[k] to borders[k + 1]."""
    ids = np.arange(len(label))
    tables = {
        f"party{k}": PartyTable(ids, tuple(columns[low:high]), label if k == active else None)
        for k, (low, high) in enumerate(pairwise(borders))
    }
    return dict(simulate_training(tables, f"party{active}", "plain", config, **options).shares)


def trained(
    objective: str = "binary", columns: Sequence[Column] | None = None, **parameters: object
) -> dict[str, ModelShare]:
    columns = people() if columns is None else columns
    settings_ = {"n_estimators": 4, "max_depth": 4, "max_bin": 16, **parameters}
    config = TrainingConfig(objective=objective, **settings_)
    return federation(columns, labels(columns, objective), config)


def walk(parts: Mapping[str, ModelShare], columns: Sequence[Column]) -> np.ndarray:
    """Margins row by row and node by node, from the parts themselves."""
    skeleton = next(part.skeleton for part in parts.values() if part.skeleton is not None)
    by_name = {column.name: column for column in columns}
    rows = len(columns[0].values)
    out = np.repeat(np.array(skeleton.base_margin)[:, None], rows, axis=1)
    for number, tree in enumerate(skeleton.trees):
        for row in range(rows):
            node = 0
            while tree.left[node] != -1:
                left = _goes_left(parts[skeleton.parties[tree.owner[node]]], number, node, by_name, row)
                node = tree.left[node] + (0 if left else 1)
            out[number % skeleton.trees_per_round, row] += float(tree.weight[node])
    return out


def _goes_left(part: ModelShare, tree: int, node: int, by_name: Mapping[str, Column], row: int) -> bool:
    records = part.records
    keys = list(zip(records.tree.tolist(), records.node.tolist(), strict=True))
    rule = records.rule(keys.index((tree, node)))
    info = part.columns[rule.feature]
    column = by_name[info.name]
    value = column.values[row]
    if column.categories is None or info.categories is None:
        return rule.default_left if math.isnan(value) else bool(value < rule.threshold)
    if value < 0 or column.categories[value] not in info.categories:
        return rule.default_left
    code = info.categories.index(column.categories[value])
    return code < rule.threshold if rule.left_set is None else code in rule.left_set


@pytest.mark.parametrize("proposal", ["global", "local"])
@pytest.mark.parametrize("categories", ["ordinal", "onehot", "sets"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_margins_equal_a_walk_row_by_row(objective: str, categories: str, proposal: str) -> None:
    parts = trained(objective, categories=categories, proposal=proposal)
    fresh = people(60, seed=5)
    assert np.array_equal(join(parts).margins(fresh), walk(parts, fresh))


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 10_000),
    objective=st.sampled_from(OBJECTIVES),
    categories=st.sampled_from(["ordinal", "onehot", "sets"]),
    depth=st.integers(1, 6),
    subsample=st.sampled_from([1.0, 0.6]),
    colsample=st.sampled_from([1.0, 0.5]),
)
def test_margins_of_random_models(
    seed: int, objective: str, categories: str, depth: int, subsample: float, colsample: float
) -> None:
    parts = trained(
        objective,
        people(80, seed),
        categories=categories,
        max_depth=depth,
        subsample=subsample,
        colsample_bytree=colsample,
        min_child_weight=0.0,
        random_state=seed,
        n_estimators=2,
    )
    fresh = people(30, seed + 1)
    assert np.array_equal(join(parts).margins(fresh), walk(parts, fresh))


@pytest.mark.parametrize("proposal", ["global", "local"])
def test_predicts_what_training_measured(proposal: str) -> None:
    columns = people(200)
    label = labels(columns, "regression")
    held_out = np.arange(200) % 4 == 0
    config = TrainingConfig(objective="regression", n_estimators=3, max_bin=8, proposal=proposal)
    ids = np.arange(200)
    tables = {"bank": PartyTable(ids, columns[:3], label), "shop": PartyTable(ids, columns[3:])}
    run = simulate_training(tables, "bank", "plain", config, held_out=held_out)
    error = join(run.shares).margins([column.take(held_out) for column in columns])[0] - label[held_out]
    assert run.history[-1].validation == pytest.approx(float(np.sqrt(np.mean(error**2))), rel=1e-12)


def test_rows_beyond_one_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    model = join(trained())
    whole = model.margins(people(100, seed=9))
    monkeypatch.setattr("veilboost.model.joined._ROWS_AT_ONCE", 7)
    assert np.array_equal(model.margins(people(100, seed=9)), whole)


def test_order_of_columns_does_not_matter_and_strange_categories_are_missing() -> None:
    parts = trained()
    model = join(parts)
    town = people(40, seed=3)[3]
    renamed = replace(town, categories=("atlantis", *TOWNS[1:]))
    missing = replace(town, values=np.where(town.values == 0, -1, town.values))
    others = [column for column in people(40, seed=3) if column.name != "town"]
    assert np.array_equal(model.margins([renamed, *others]), model.margins([*others, missing]))
    assert np.array_equal(model.margins([renamed, *others]), walk(parts, [renamed, *others]))


def test_no_rows() -> None:
    assert join(trained("multiclass")).margins(people(0)).shape == (3, 0)


def test_refuses_columns_that_do_not_fit() -> None:
    model = join(trained())
    columns = people(10)
    with pytest.raises(ForeignColumns):
        model.margins(columns[1:])
    with pytest.raises(RowsDiffer):
        model.margins([*columns[:5], columns[5].take(np.arange(9))])


def test_refuses_names_that_two_parties_share() -> None:
    parts = trained()
    part = parts["party2"]
    parts["party2"] = replace(part, columns=(ColumnInfo("steps"), *part.columns[1:]))
    with pytest.raises(DuplicateColumns):
        join(parts).margins(people(10))


# --- which parts belong together ---------------------------------------------------------------------------


def test_columns_and_owners_are_in_the_jobs_order() -> None:
    model = join(dict(reversed(trained().items())))
    assert [info.name for info in model.columns] == [column.name for column in people()]
    assert model.column_owner.tolist() == [0, 0, 1, 1, 2, 2]
    assert model.skeleton.parties == ("party0", "party1", "party2")
    for tree in model.trees:
        assert (model.column_owner[tree.feature[tree.inner]] == tree.owner[tree.inner]).all()
        assert (tree.right[tree.inner] == tree.left[tree.inner] + 1).all()
        assert (tree.right[tree.leaves] == -1).all()


def test_refuses_incomplete_or_mixed_parts() -> None:
    parts, others = trained(), trained("regression")
    for absent in parts:
        with pytest.raises(MissingShare):
            join({name: part for name, part in parts.items() if name != absent})
    with pytest.raises(MissingShare, match="2 shares contain"):
        join({**parts, "party0": replace(parts["party0"], skeleton=others["party1"].skeleton)})
    with pytest.raises(MissingShare, match="party0"):
        join({**parts, "party0": others["party0"]})
    with pytest.raises(MissingShare, match="stranger"):
        join({**parts, "stranger": replace(parts["party0"], party="stranger")})
    with pytest.raises(MissingShare):
        join({})


# --- the hash ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("categories", ["ordinal", "onehot", "sets"])
def test_hash_does_not_depend_on_who_owns_what(categories: str) -> None:
    columns = people()
    for objective in ("binary", "multiclass"):
        config = TrainingConfig(objective=objective, n_estimators=3, max_depth=4, max_bin=8, categories=categories)
        label = labels(columns, objective)
        hashes = {
            join(federation(columns, label, config, borders, active)).sha256()
            for borders, active in [
                ((0, 6), 0),
                ((0, 2, 6), 0),
                ((0, 2, 6), 1),
                ((0, 5, 6), 0),
                ((0, 1, 2, 3, 4, 5, 6), 3),
                (THREE_PARTIES, 2),
            ]
        }
        assert len(hashes) == 1


def test_hash_knows_columns_by_name() -> None:
    parts = trained()
    part = parts["party0"]
    wider = replace(
        part,
        columns=(ColumnInfo("unused"), *part.columns),
        records=replace(part.records, feature=part.records.feature + 1),
    )
    renamed = replace(part, columns=(ColumnInfo("wage"), *part.columns[1:]))
    assert join({**parts, "party0": wider}).sha256() == join(parts).sha256()
    assert join({**parts, "party0": renamed}).sha256() != join(parts).sha256()


def test_hash_does_not_depend_on_how_nodes_are_numbered() -> None:
    parts = trained(max_depth=3, n_estimators=1)
    model = join(parts)
    skeleton = parts["party1"].skeleton
    assert skeleton is not None
    tree = skeleton.trees[0]
    # Depth first instead of level by level; siblings stay neighbours.
    order = [0]
    stack = [0]
    while stack:
        node = stack.pop()
        if tree.left[node] != -1:
            order.extend((int(tree.left[node]), int(tree.left[node]) + 1))
            stack.extend((int(tree.left[node]), int(tree.left[node]) + 1))
    assert order != sorted(order)
    place = {node: number for number, node in enumerate(order)}
    renumbered = Tree(
        left=np.array([place.get(int(tree.left[node]), -1) for node in order], dtype=np.int32),
        owner=tree.owner[order],
        weight=tree.weight[order],
        gain=tree.gain[order] * 2,
        cover=tree.cover[order] + 1,
    )
    moved = {
        name: replace(
            part,
            records=SplitRecords.of(
                {(0, place[int(node)]): part.records.rule(k) for k, node in enumerate(part.records.node)}
            ),
            skeleton=None if part.skeleton is None else replace(part.skeleton, trees=(renumbered,)),
        )
        for name, part in parts.items()
    }
    assert join(moved).sha256() == model.sha256()
    assert np.array_equal(join(moved).margins(people(50)), model.margins(people(50)))


def _changed(model: JoinedModel, **fields: object) -> str:
    """The hash after a change to the root of the first tree."""
    tree = model.trees[0]
    arrays = {name: getattr(tree, name).copy() for name in fields}
    for name, value in fields.items():
        arrays[name][0] = value
    return replace(model, trees=(replace(tree, **arrays), *model.trees[1:])).sha256()


def test_hash_sees_every_change_that_predictions_see() -> None:
    model = join(trained(categories="ordinal"))
    tree = model.trees[0]
    skeleton = model.skeleton
    leaf = int(tree.leaves[0])
    weight = tree.weight.copy()
    weight[leaf] = np.nextafter(weight[leaf], np.float32(9))
    others = {
        _changed(model, feature=(int(tree.feature[0]) + 1) % 6),
        _changed(model, threshold=np.nextafter(tree.threshold[0], np.float32(9))),
        _changed(model, default_left=not tree.default_left[0]),
        _changed(model, left=tree.right[0], right=tree.left[0]),
        replace(model, trees=model.trees[1:]).sha256(),
        replace(model, trees=(replace(tree, weight=weight), *model.trees[1:])).sha256(),
        replace(model, skeleton=replace(skeleton, base_margin=skeleton.base_margin + 1e-12)).sha256(),
        replace(model, skeleton=replace(skeleton, objective="regression")).sha256(),
        model.sha256(),
    }
    assert len(others) == 9


def test_hash_sees_categories() -> None:
    def hash_of(categories: str, names: tuple[str, ...]) -> str:
        columns = [replace(column, categories=names) if column.name == "town" else column for column in people()]
        return join(trained(columns=columns, categories=categories)).sha256()

    other = (*TOWNS[:-1], "townzz")
    for mode in ("ordinal", "sets"):
        assert hash_of(mode, TOWNS) != hash_of(mode, other)
        assert hash_of(mode, TOWNS) == hash_of(mode, TOWNS)


def test_hash_of_sets_lists_left_categories_by_text() -> None:
    model = join(trained(categories="sets"))
    sets = [node["among"] for tree in model.canonical()["trees"] for node in tree if "among" in node]
    assert sets
    assert all(members == sorted(members) for members in sets)
    assert {text for members in sets for text in members} <= {*TOWNS, *COLOURS}
