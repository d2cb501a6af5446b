"""Contributions of a joined model against XGBoost's `pred_contribs` for the exported one."""

from __future__ import annotations

import numpy as np
import pytest
from test_export import booster_of, codes
from test_joined import OBJECTIVES, people, trained

from veilboost.model import joined
from veilboost.model.export import to_xgboost_json
from veilboost.model.joined import JoinedModel, join
from veilboost.types import Column

xgboost = pytest.importorskip("xgboost")

pytestmark = pytest.mark.fast


def theirs(model: JoinedModel, columns: tuple[Column, ...]) -> np.ndarray:
    """XGBoost's contributions, (rows, groups, features + 1)."""
    names = to_xgboost_json(model)["learner"]["feature_names"]
    found = booster_of(model).predict(xgboost.DMatrix(codes(columns), feature_names=names), pred_contribs=True)
    return found if found.ndim == 3 else found[:, None]


@pytest.mark.parametrize("categories", ["ordinal", "onehot", "sets"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_equal_to_xgboosts(objective: str, categories: str) -> None:
    model = join(trained(objective, categories=categories))
    columns = people(200, seed=6)
    np.testing.assert_allclose(model.contributions(columns), theirs(model, columns), atol=1e-5)


def test_rows_add_up_to_their_margins_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    model = join(trained("multiclass", max_depth=6, n_estimators=6))
    columns = people(150, seed=8)
    found = model.contributions(columns)
    np.testing.assert_allclose(found.sum(axis=2).T, model.margins(columns), atol=1e-9)
    monkeypatch.setattr(joined, "ROWS_AT_ONCE", 24)
    np.testing.assert_array_equal(model.contributions(columns), found)
    nobody = tuple(Column(column.name, column.values[:0], column.categories) for column in columns)
    assert model.contributions(nobody).shape == (0, 3, 7)


def test_a_model_of_single_leaves_has_only_its_base() -> None:
    model = join(trained("regression", gamma=1e12))
    found = model.contributions(people(20))
    assert not found[..., :-1].any()
    np.testing.assert_allclose(found[..., -1].T, model.margins(people(20)))
