"""Errors, parameters and the fixed-point grid."""

from __future__ import annotations

import ast
import dataclasses
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import veilboost
from veilboost.config import DEFAULTS, TrainingConfig
from veilboost.errors import GradientRange, InvalidParameter, UnsupportedCombination, VeilBoostError, coded_errors
from veilboost.fields import info_of
from veilboost.fixedpoint import MAX_BITS, Scale, choose_scale, exponent_for, to_fixed

pytestmark = pytest.mark.fast


def test_codes_are_unique_and_every_one_has_a_page_and_a_remedy():
    errors = list(coded_errors())
    codes = [error.code for error in errors]
    assert len(codes) == len(set(codes)) > 20
    pages = Path(__file__).parents[2] / "docs" / "reference" / "errors"
    for error in errors:
        assert re.fullmatch(r"VB-\d{4}", error.code)
        assert error.fix
        page = (pages / f"{error.code}.md").read_text()
        assert page.startswith(f"# {error.code}: {error.__name__}\n")
    listed = {path.stem for path in pages.glob("VB-*.md")}
    assert listed == set(codes), "no page without its error"


def test_wrong_settings_always_come_with_a_fix_of_their_own():
    """The class's own fix fits all parameters, so it says too little about any of them."""
    vague: list[str] = []
    for path in Path(veilboost.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            settings = isinstance(call, ast.Call) and ast.unparse(call.func) in {
                "InvalidParameter",
                "UnsupportedCombination",
            }
            if settings and len(call.args) == 1 and not isinstance(call.args[0], ast.Starred):
                vague.append(f"{path.name}:{call.lineno}: {ast.unparse(call)}")
    assert not vague


def test_an_error_reads_code_what_remedy():
    error = InvalidParameter("max_depth=0 is outside [1, 16]")
    assert str(error) == f"VB-1002: max_depth=0 is outside [1, 16]; {InvalidParameter.fix}"
    assert isinstance(error, ValueError)
    assert isinstance(error, VeilBoostError)
    assert str(InvalidParameter("x", "do this")) == "VB-1002: x; do this"


@pytest.mark.parametrize("item", dataclasses.fields(TrainingConfig), ids=lambda item: item.name)
def test_every_parameter_has_help_and_refuses_nonsense(item):
    info = info_of(item)
    assert info.help
    none = ["interaction_constraints"]  # an empty list of sets
    for wrong in ("nonsense", math.nan, math.inf, object(), *([] if item.name in none else [[]])):
        with pytest.raises(InvalidParameter, match=item.name):
            TrainingConfig.from_dict({item.name: wrong})
    if info.low > -math.inf:
        with pytest.raises(InvalidParameter):
            TrainingConfig.from_dict({item.name: info.low - 1})
        if info.low_open:
            with pytest.raises(InvalidParameter):
                TrainingConfig.from_dict({item.name: info.low})
    if info.high < math.inf:
        with pytest.raises(InvalidParameter):
            TrainingConfig.from_dict({item.name: info.high + 1})


def test_parameters_survive_a_round_trip_and_numpy_numbers():
    config = TrainingConfig.from_dict({"max_depth": np.int64(3), "gamma": np.float32(0.5), "learning_rate": 1})
    assert type(config.max_depth) is int
    assert type(config.gamma) is float
    assert type(config.learning_rate) is float
    assert TrainingConfig.from_dict(config.to_dict()) == config
    assert TrainingConfig() == DEFAULTS
    with pytest.raises(InvalidParameter, match=r"no parameter .depth.; did you mean max_depth"):
        TrainingConfig.from_dict({"depth": 3})
    with pytest.raises(InvalidParameter):
        TrainingConfig(max_depth=True)
    with pytest.raises(UnsupportedCombination):
        TrainingConfig(proposal="local", weighted_bins=True)


@given(st.floats(1e-30, 1e30), st.integers(8, 30))
def test_the_grid_is_as_fine_as_its_bits_allow(bound, bits):
    exponent = exponent_for(bound, bits)
    assert bound * 2.0**exponent <= 2.0**bits
    assert bound * 2.0 ** (exponent + 1) > 2.0**bits


def test_unit_gradients_use_twenty_bits():
    assert choose_scale(1.0, 0.25, 1.0, 20) == Scale(20, 22)
    assert choose_scale(1.0, 0.25, 1024.0, 20) == Scale(20, 22)
    assert choose_scale(1.0, 0.25, 2.0**15, 20) == Scale(15, 17)
    with pytest.raises(GradientRange):
        choose_scale(1.0, 1.0, 2.0**31, 20)


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(0, 0.25)), min_size=1, max_size=20), st.integers(1, 1000))
def test_a_weight_counts_as_repetition_on_the_grid(pairs, times):
    g, h = np.array(pairs).T
    scale = choose_scale(1.0, 0.25, float(times), 20)
    once = to_fixed(g, h, scale)
    weighted = to_fixed(g, h, scale, np.full(len(g), float(times)))
    np.testing.assert_array_equal(weighted, once.astype(np.int64) * times)
    np.testing.assert_allclose(once[:, 0] * scale.g_unit, g, atol=scale.g_unit / 2)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 2.0**11])
def test_values_that_do_not_fit_are_refused(bad):
    with pytest.raises(GradientRange):
        to_fixed(np.array([bad]), np.array([0.1]), Scale(MAX_BITS - 10, 20))
    with pytest.raises(GradientRange):
        exponent_for(bad if not math.isfinite(bad) else math.nan, 20)
