"""The compatibility page is what its script makes, and what it says is true."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from sklearn.base import clone
from xgboost import XGBClassifier

from veilboost import HorizontalClassifier, VerticalClassifier, VerticalRegressor
from veilboost.errors import InvalidParameter
from veilboost.estimators.foreign_names import ATTRIBUTES, FIT_ARGUMENTS, PARAMETERS, PREDICT_ARGUMENTS, SAME

pytestmark = pytest.mark.fast

BENCH = Path(__file__).resolve().parents[3] / "bench"


@pytest.fixture
def compatibility(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    monkeypatch.delitem(sys.modules, "compatibility", raising=False)
    return __import__("compatibility")


def test_the_page_is_up_to_date(compatibility: ModuleType) -> None:
    assert compatibility.PAGE.read_text() == compatibility.page()


def test_a_name_without_a_fix_is_found_out(compatibility: ModuleType) -> None:
    with pytest.raises(KeyError, match="brand_new"):
        compatibility.rows(["brand_new"], ["max_depth"], PARAMETERS)


@pytest.mark.parametrize("cls", [VerticalClassifier, VerticalRegressor, HorizontalClassifier])
def test_every_refused_name_has_its_error(cls: type) -> None:
    own = set(inspect.signature(cls).parameters)
    for name, fix in PARAMETERS.items():
        if name not in own:
            with pytest.raises(InvalidParameter, match=f"^VB-1002: .*{name}") as caught:
                cls(**{name: "other"})
            assert caught.value.remedy == fix
            with pytest.raises(InvalidParameter, match=name):
                cls().set_params(**{name: "other"})
    for name in {*FIT_ARGUMENTS, "learning_rat"} - set(inspect.signature(cls.fit).parameters):
        with pytest.raises(InvalidParameter, match=f"^VB-1002: fit has no argument '{name}'"):
            cls().fit(np.eye(4), [0, 1, 0, 1], **{name: None})
    for method in ("predict", "predict_proba"):
        for name in (*PREDICT_ARGUMENTS, "iteration_rang"):
            if hasattr(cls, method):
                with pytest.raises(InvalidParameter, match=f"^VB-1002: {method} has no argument '{name}'"):
                    getattr(cls(), method)(np.eye(4), **{name: None})
    for name in ATTRIBUTES:
        assert not hasattr(cls(), name)
        with pytest.raises(AttributeError, match=f"VB-1002: there is no attribute '{name}'"):
            getattr(cls(), name)


@pytest.mark.parametrize("cls", [VerticalClassifier, VerticalRegressor, HorizontalClassifier])
def test_values_that_change_nothing_are_accepted(cls: type) -> None:
    every = [(name, value) for name, values in SAME.items() for value in (*values, None)]
    for name, value in (*every, ("missing", float("nan")), ("missing", None)):
        assert name in PARAMETERS
        assert cls(**{name: value}).get_params() == cls().get_params()
        assert cls().set_params(**{name: value}, max_depth=3).max_depth == 3
    assert clone(cls(**dict(every), max_depth=3)).get_params() == cls(max_depth=3).get_params()


def test_xgboost_trains_the_same_model_with_values_that_change_nothing() -> None:
    X, y = np.arange(80.0).reshape(20, 4) % 7, np.arange(20) % 3 % 2
    common = {"n_estimators": 3, "max_depth": 2}
    plain = XGBClassifier(**common).fit(X, y).predict_proba(X)
    for name in set(XGBClassifier().get_params()) & set(SAME):
        for value in SAME[name]:
            found = XGBClassifier(**common, **{name: value}).fit(X, y).predict_proba(X)
            np.testing.assert_array_equal(found, plain, err_msg=f"{name}={value}")


def test_a_misspelt_parameter_is_told() -> None:
    for call in (VerticalClassifier, VerticalClassifier().set_params):
        with pytest.raises(InvalidParameter, match="there is no parameter 'max_depht'; did you mean 'max_depth'"):
            call(max_depht=3)
        with pytest.raises(InvalidParameter, match="use learning_rate"):
            call(eta=0.1)
