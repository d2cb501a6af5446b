"""The predicted cost of a job that waits for an approval."""

from __future__ import annotations

from dataclasses import replace

import pytest

from veilboost.party.proposals import Subject
from veilboost.plan import proposals
from veilboost.plan.predict import Calibration, predict
from veilboost.plan.proposals import predicted
from veilboost.protocols.cost import PlannedJob

pytestmark = pytest.mark.fast
COSTS = Calibration({}, {}, {"rows": 1e-6}, {"rows": 2e-6}, {"rows": 4.0}, {"levels": 100.0}, {}, {})
JOB = Subject(
    kind="training",
    role="passive",
    job="credit",
    protocol="plain",
    settings={},
    table="main",
    columns=("a", "b", "c"),
    rows=1000,
    size={"trees": 5, "depth": 4, "bins": 16, "parties": 3},
)


@pytest.fixture(autouse=True)
def _measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals, "load_calibrations", lambda file: {"plain": COSTS, "secagg": COSTS})


def test_every_party_counts_with_as_many_columns() -> None:
    assert predicted(JOB) == predict("plain", PlannedJob(1000, (3, 3, 3), 5, 4, 16), COSTS)


def test_the_rows_of_all_participants_count() -> None:
    found = predicted(replace(JOB, protocol="secagg", role="participant"))
    assert found == predict("secagg", PlannedJob(3000, (3,), 5, 4, 16, 3), COSTS)


@pytest.mark.parametrize("changes", [{"protocol": "lattice"}, {"size": None}, {"columns": ()}, {"rows": 0}])
def test_what_cannot_be_predicted(changes: dict[str, object]) -> None:
    assert predicted(replace(JOB, **changes)) is None
