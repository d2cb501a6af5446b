"""The compatibility page is what its script makes, and what it says is true."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from veilboost import HorizontalClassifier, VerticalClassifier, VerticalRegressor
from veilboost.errors import InvalidParameter
from veilboost.estimators.foreign_names import ATTRIBUTES, FIT_ARGUMENTS, PARAMETERS

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
            with pytest.raises(InvalidParameter, match=f"^VB-1002: there is no parameter '{name}'") as caught:
                cls(**{name: None})
            assert caught.value.remedy == fix
            with pytest.raises(InvalidParameter, match=f"'{name}'"):
                cls().set_params(**{name: None})
    for name in {*FIT_ARGUMENTS, "learning_rat"} - set(inspect.signature(cls.fit).parameters):
        with pytest.raises(InvalidParameter, match=f"^VB-1002: fit has no argument '{name}'"):
            cls().fit(np.eye(4), [0, 1, 0, 1], **{name: None})
    for name in ATTRIBUTES:
        assert not hasattr(cls(), name)
        with pytest.raises(AttributeError, match=f"VB-1002: there is no attribute '{name}'"):
            getattr(cls(), name)
