"""Importance, as XGBoost counts it, and summaries."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from test_joined import OBJECTIVES, trained

from veilboost.errors import InvalidParameter
from veilboost.model.explain import (
    IMPORTANCE_KINDS,
    describe,
    importance,
    importance_by_party,
)
from veilboost.model.export import to_xgboost_json
from veilboost.model.joined import join

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("kind", IMPORTANCE_KINDS)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_equals_the_exported_boosters_score(objective: str, kind: str) -> None:
    xgboost = pytest.importorskip("xgboost")
    model = join(trained(objective))
    booster = xgboost.Booster()
    booster.load_model(bytearray(json.dumps(to_xgboost_json(model)).encode()))
    ours = {column: value for _, column, value in importance(model, kind, normalise=False) if value > 0}
    assert ours == pytest.approx(booster.get_score(importance_type=kind), rel=1e-4)


@pytest.mark.parametrize("kind", IMPORTANCE_KINDS)
def test_normalised_values_add_up_and_are_sorted(kind: str) -> None:
    model = join(trained())
    for values in (
        [entry.value for entry in importance(model, kind)],
        [value for _, value in importance_by_party(model, kind)],
    ):
        assert sum(values) == pytest.approx(1)
        assert values == sorted(values, reverse=True)


def test_every_column_is_listed_with_its_party() -> None:
    model = join(trained(n_estimators=1, max_depth=1))
    listed = importance(model, "weight", normalise=False)
    assert sorted(entry.value for entry in listed) == [0, 0, 0, 0, 0, 1]
    assert {(entry.party, entry.column) for entry in listed} == {
        ("party0", "income"),
        ("party0", "colour"),
        ("party1", "steps"),
        ("party1", "town"),
        ("party2", "age"),
        ("party2", "noise"),
    }


def test_parties_add_up_their_columns() -> None:
    model = join(trained("multiclass"))
    for kind in ("weight", "total_gain", "total_cover"):
        expected = dict.fromkeys(model.skeleton.parties, 0.0)
        for entry in importance(model, kind, normalise=False):
            expected[entry.party] += entry.value
        assert dict(importance_by_party(model, kind, normalise=False)) == pytest.approx(expected)
    totals = dict(importance_by_party(model, "total_gain", normalise=False))
    splits = dict(importance_by_party(model, "weight", normalise=False))
    means = dict(importance_by_party(model, "gain", normalise=False))
    assert means == pytest.approx({party: totals[party] / splits[party] for party in totals})


def test_names_are_masked_where_their_owner_says_so() -> None:
    parts = trained()
    parts["party2"] = replace(parts["party2"], share_names=False)
    model = join(parts)
    assert model.shown_names == ("income", "colour", "steps", "town", "party2#1", "party2#2")
    assert {entry.column for entry in importance(model) if entry.party == "party2"} == {"party2#1", "party2#2"}
    text = json.dumps([importance(model), describe(model)])
    assert "age" not in text
    assert "noise" not in text


def test_nothing_splits() -> None:
    model = join(trained(gamma=1e9))
    assert [entry.value for entry in importance(model)] == [0.0] * 6
    assert describe(model)["depth"] == 0


def test_refuses_an_unknown_kind() -> None:
    with pytest.raises(InvalidParameter, match="shap"):
        importance(join(trained()), "shap")


def test_summary() -> None:
    model = join(trained("multiclass"))
    summary = describe(model)
    assert json.loads(json.dumps(summary)) == summary
    assert summary["protocol"] == "plain"
    assert summary["objective"] == "multiclass"
    assert (summary["rounds"], summary["trees"], summary["trees_per_round"]) == (4, 12, 3)
    assert summary["depth"] == 4
    assert summary["columns"] == {"party0": 2, "party1": 2, "party2": 2}
    assert sum(summary["splits"].values()) == sum(len(tree.inner) for tree in model.trees)
    assert summary["leaves"] == sum(summary["splits"].values()) + 12
    assert summary["sha256"] == model.sha256()
    assert np.array_equal(summary["base_margin"], model.skeleton.base_margin)
