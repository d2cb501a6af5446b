"""Every horizontal protocol keeps the public contract."""

from __future__ import annotations

import pytest

from veilboost.protocols.mal.spec import SPEC as MAL
from veilboost.protocols.secagg.spec import SPEC as SECAGG
from veilboost.testing.contract import HorizontalContract

pytestmark = pytest.mark.fast


class TestMal(HorizontalContract):
    spec = MAL
    unsent = frozenset({"ExtremesMissing", "RowsHeldBack", "MetricsRequest", "RoundMetrics"})


class TestSecagg(HorizontalContract):
    """A run of two bounded losses needs no scales, and no metric; without dropouts it has no rosters."""

    spec = SECAGG
    unsent = frozenset(
        {"ScaleRequest", "ScaleAnswer", "MetricRequest", "MaskedMetric", "MaskedScores"}
        | {"RosterRequest", "RosterAccepted", "RosterConfirmed", "MissedLevel"}
    )
