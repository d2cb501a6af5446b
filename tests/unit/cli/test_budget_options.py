"""--eps and --eps-features, whatever a protocol calls them."""

import math

import pytest

from veilboost.cli.options import with_budget
from veilboost.config import TrainingConfig
from veilboost.errors import InvalidParameter, UnsupportedCombination
from veilboost.protocols.registry import protocol_named


@pytest.mark.parametrize(
    ("protocol", "eps", "eps_features", "options"),
    [
        ("sealed", 4.0, None, {"eps": 4.0}),
        ("sealed", 4.0, 8.0, {"eps": 4.0, "eps_features": 8.0}),
        ("ldp", 2.0, None, {"epsilon": 2.0}),
        ("elxgb", 2.0, None, {"epsilon": 2.0}),
        ("federboost", math.inf, None, {"epsilon": 0.0}),
        ("lattice", None, None, {}),
    ],
)
def test_a_budget_becomes_the_option_of_the_protocol(protocol, eps, eps_features, options):
    assert with_budget(TrainingConfig(), protocol_named(protocol), eps, eps_features).options == options


def test_horizontal_jobs_too():
    assert with_budget(TrainingConfig(), protocol_named("mal"), 4.0, None).options == {"epsilon": 4.0}


@pytest.mark.parametrize(
    ("protocol", "eps", "eps_features", "error"),
    [
        ("lattice", 1.0, None, UnsupportedCombination),
        ("ldp", None, 1.0, UnsupportedCombination),
        ("sealed", 0.0, None, InvalidParameter),
        ("sealed", math.nan, None, InvalidParameter),
    ],
)
def test_a_budget_that_nothing_would_keep_is_refused(protocol, eps, eps_features, error):
    with pytest.raises(error):
        with_budget(TrainingConfig(), protocol_named(protocol), eps, eps_features)


def test_a_budget_is_said_once():
    with pytest.raises(UnsupportedCombination, match="both given"):
        with_budget(TrainingConfig(options={"eps": 1.0}), protocol_named("sealed"), 2.0, None)
