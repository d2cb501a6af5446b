"""The difference of rounds of `secagg`: it opens a lost participant, and there is none without a change of members."""

from __future__ import annotations

import numpy as np
import pytest

from lossy import Lossy, config_of
from veilboost.audit.attacks import attack, audit, secagg_differences
from veilboost.audit.attacks.dropouts import roots
from veilboost.audit.sources import views_of_simulation
from veilboost.data.table import PartyTable
from veilboost.types import Column

pytestmark = pytest.mark.fast


def dealt(rows=400, participants=5, columns=6):
    rng = np.random.default_rng(5)
    found = {}
    for at, ids in enumerate(np.array_split(np.arange(rows), participants)):
        values = rng.normal(size=(columns, len(ids)))
        label = (values.sum(axis=0) + rng.logistic(size=len(ids)) > 0).astype(np.float64)
        given = tuple(Column(f"n{j}", each.astype(np.float32)) for j, each in enumerate(values))
        found[f"p{at}"] = PartyTable(ids, given, label)
    return found


def played(losses, returns=(), **changes):
    tables, dropouts = dealt(), changes.pop("dropouts", 1)
    config = config_of(dropouts, n_estimators=6, max_depth=2, **changes)
    return views_of_simulation(Lossy(tables, config, losses, returns, record="payload").train(), tables)


def finding(views, truth, victim):
    return attack(secagg_differences, views["server"], truth, victim, np.random.default_rng(0))


@pytest.mark.parametrize("objective", ["binary", "regression"])
@pytest.mark.parametrize(
    ("losses", "returns"),
    [
        ({"p2": (2, 1)}, {}),
        ({"p2": (3, "roster")}, {}),
        ({"p2": (1, "roster")}, {"p2": 4}),
        ({"p2": (0, 0)}, {"p2": 2}),
    ],
)
def test_a_lost_participants_rows_per_bin_are_found(objective, losses, returns):
    views, truth = played(losses, returns, objective=objective)
    found = finding(views, truth, "p2")
    assert found.succeeded, found
    assert found.outcome.value > (0.99 if objective == "regression" else 0.85)
    assert finding(views, truth, "p1") is None, "nothing is known of those that stayed"
    assert secagg_differences.name in {each.attack for each in audit(views, truth)}


def test_a_run_without_a_change_of_members_gives_no_difference():
    for dropouts, losses in ((1, {}), (0, {}), (2, {"p1": (2, 1), "p2": (2, 1)})):
        views, truth = played(losses, dropouts=dropouts)
        assert all(finding(views, truth, name) is None for name in truth.tables)


def test_noise_hides_the_difference():
    """At epsilon 1 the noise on a sum is many times a participant's share of it, so guesses are coin tosses."""
    views, truth = played({"p2": (2, "roster")}, options={"epsilon": 1.0}, base_score=0.5)
    assert not finding(views, truth, "p2").succeeded


def test_the_sums_of_a_round_are_those_of_its_roster():
    views, _ = played({"p2": (2, 1)}, objective="regression")
    found = roots(views["server"])
    assert [len(each.participants) for each in found] == [5, 5, 5, 4, 4, 4]
    assert found[3].sums.sum() * 5 == pytest.approx(found[0].sums.sum() * 4)
