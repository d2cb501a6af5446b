"""The owner's word: every rule refuses what it should, and says so without giving anything away."""

from __future__ import annotations

import dataclasses
import math
import re
import tomllib
from typing import Any

import pytest

from veilboost.config import TrainingConfig
from veilboost.errors import AgainstPolicy, ImpossibleSetting
from veilboost.party.policy import (
    ExplainRequest,
    ExportRequest,
    Policy,
    PredictRequest,
    SpentToday,
    TrainRequest,
    decide,
    objections,
)
from veilboost.privacy.statement import Protection, Statement, Status
from veilboost.protocols.plain.spec import SPEC as PLAIN
from veilboost.protocols.spec import ProtocolSpec

pytestmark = pytest.mark.fast

PRINT = "ab" * 32


def protocol(active: Status, passive: Status) -> ProtocolSpec:
    protections = (
        Protection("active", "labels", "passive", Status.SOUND, ""),
        Protection("active", "labels", "passive", active, ""),
        Protection("passive", "features", "active", passive, ""),
    )
    return dataclasses.replace(PLAIN, name="veiled", statement=Statement(protections))


VEILED = protocol(Status.HEURISTIC, Status.SOUND)
POLICY = Policy(
    explanations="party",
    peers={"bank": (PRINT,), "telecom": ("any",)},
    protocols=("veiled",),
    tables=("main",),
    columns=("age", "visits"),
    min_rows=10,
    min_node_rows=20,
    max_rows=1000,
    max_trees=50,
    max_depth=6,
    max_classes=2,
    max_rewinds=3,
    assignments_per_job=624,
    assignments_total=1000,
    epsilon_per_job=1.0,
    epsilon_total=3.0,
    delta=1e-6,
    predictions_per_day=100,
    export_to=("bank",),
)
JOB = TrainRequest(
    peers={"bank": PRINT, "telecom": None},
    protocol=VEILED,
    role="passive",
    table="main",
    columns=("age", "visits"),
    trees=50,
    depth=6,
    min_node_rows=20,
    rows=1000,
    round_rows=10,
    trees_per_round=2,
    rewinds=2,
    assignments_spent=376,
    epsilon=1.0,
    delta=1e-6,
    epsilon_spent=2.0,
)
PREDICT = PredictRequest({"bank": PRINT}, rows=40, predicted=SpentToday(60, 10))
EXPLAIN = ExplainRequest({"bank": PRINT}, assignments=100, assignments_spent=300)
EXPORT = ExportRequest({"bank": PRINT}, to="bank")


def test_what_the_policy_allows_passes_up_to_its_limits() -> None:
    for request in (JOB, PREDICT, EXPLAIN, EXPORT):
        assert list(objections(POLICY, request)) == []
        decide(POLICY, request)


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("peers", {"peers": {"bank": PRINT, "stranger": None}}),
        ("peers", {"peers": {"bank": "cd" * 32}}),
        ("protocols", {"protocol": dataclasses.replace(VEILED, name="other")}),
        ("allow_unprotected", {"protocol": protocol(Status.SOUND, Status.BROKEN)}),
        ("allow_unprotected", {"protocol": protocol(Status.SOUND, Status.UNPROTECTED)}),
        ("allow_unprotected", {"protocol": protocol(Status.UNPROTECTED, Status.SOUND), "role": "active"}),
        ("allow_unprotected", {"role": "nobody the statement speaks of"}),
        ("tables", {"table": "salaries"}),
        ("columns", {"columns": ("age", "income")}),
        ("min_rows", {"rows": 9}),
        ("min_rows", {"rows": -1}),
        ("min_rows", {"round_rows": 9}),
        ("min_node_rows", {"min_node_rows": 19}),
        ("min_node_rows", {"min_node_rows": None}),
        ("max_rows", {"rows": 1001}),
        ("max_trees", {"trees": 51}),
        ("max_depth", {"depth": 7}),
        ("max_classes", {"trees_per_round": 3}),
        ("max_rewinds", {"rewinds": 4}),
        ("max_rewinds", {"restarts": 4}),
        ("assignments_per_job", {"rewinds": 3}),
        ("assignments_total", {"assignments_spent": 377}),
        ("epsilon_per_job", {"epsilon": 1.1, "epsilon_spent": 0.0}),
        ("epsilon_per_job", {"epsilon": math.nan, "epsilon_spent": 0.0}),
        ("epsilon_per_job", {"epsilon": -1.0}),
        ("epsilon_total", {"epsilon_spent": 2.1}),
        ("epsilon_total", {"epsilon_spent": math.nan}),
        ("delta", {"delta": 1e-5}),
        ("delta", {"delta": math.nan}),
    ],
)
def test_a_job_outside_the_policy_is_refused_by_its_rule(rule: str, change: dict[str, Any]) -> None:
    request = dataclasses.replace(JOB, **change)
    assert rule in {found.rule for found in objections(POLICY, request)}
    with pytest.raises(AgainstPolicy) as refused:
        decide(POLICY, request)
    assert str(refused.value).startswith(f"VB-1612: the policy rule {rule} refuses it: ")
    assert "; the owner can " in str(refused.value)


@pytest.mark.parametrize(
    ("rule", "request_"),
    [
        ("predictions_per_day", dataclasses.replace(PREDICT, rows=41)),
        ("predictions_per_day", dataclasses.replace(PREDICT, rows=-1)),
        ("predictions_per_day", dataclasses.replace(PREDICT, predicted=SpentToday(101, 0), rows=0)),
        ("peers", dataclasses.replace(PREDICT, peers={"shop": PRINT})),
        ("assignments_total", dataclasses.replace(EXPLAIN, assignments_spent=901)),
        ("peers", dataclasses.replace(EXPLAIN, peers={"shop": PRINT})),
        ("export_to", dataclasses.replace(EXPORT, to="telecom")),
        ("peers", dataclasses.replace(EXPORT, peers={"bank": "cd" * 32})),
    ],
)
def test_predictions_and_exports_outside_the_policy_are_refused(rule: str, request_: Any) -> None:
    with pytest.raises(AgainstPolicy, match=f"rule {rule} "):
        decide(POLICY, request_)


def test_an_empty_policy_allows_nothing() -> None:
    broken = {found.rule for found in objections(Policy(), dataclasses.replace(JOB, protocol=PLAIN))}
    assert {"peers", "protocols", "allow_unprotected"} <= broken
    with pytest.raises(AgainstPolicy):
        decide(Policy(), EXPORT)


def test_exposure_must_be_accepted_by_name_and_for_the_role_it_concerns() -> None:
    exposed = dataclasses.replace(JOB, protocol=protocol(Status.BROKEN, Status.SOUND))
    decide(POLICY, exposed)  # it is the active side that is exposed
    plain = dataclasses.replace(JOB, protocol=PLAIN)
    named = dataclasses.replace(POLICY, protocols=("plain",))
    with pytest.raises(AgainstPolicy, match="does not protect these data of the passive party: features"):
        decide(named, plain)
    decide(dataclasses.replace(named, allow_unprotected=("plain",)), plain)
    with pytest.raises(AgainstPolicy, match="rule protocols"):  # accepting exposure alone names no protocol
        decide(dataclasses.replace(POLICY, allow_unprotected=("plain",)), plain)


def test_rows_are_judged_when_they_are_known() -> None:
    decide(POLICY, dataclasses.replace(JOB, rows=None))


def test_a_helper_without_a_table_has_nothing_to_expose() -> None:
    decide(POLICY, dataclasses.replace(JOB, role="csp", table=None, columns=()))


def test_a_star_is_every_table_and_column() -> None:
    decide(
        dataclasses.replace(POLICY, tables=("*",), columns=("*",)), dataclasses.replace(JOB, table="x", columns=("y",))
    )


def test_budgets_bind_only_what_spends() -> None:
    free = dataclasses.replace(POLICY, epsilon_per_job=None, epsilon_total=None)
    decide(free, dataclasses.replace(JOB, epsilon=100.0))
    decide(POLICY, dataclasses.replace(JOB, epsilon=0.0, delta=0.0))
    with pytest.raises(AgainstPolicy, match="epsilon_total"):
        decide(POLICY, dataclasses.replace(JOB, epsilon=0.5, epsilon_spent=9.0))


def test_a_refusal_gives_away_neither_columns_nor_what_others_did() -> None:
    request = dataclasses.replace(
        JOB,
        columns=("age", "secret_column"),
        epsilon=0.9,
        epsilon_spent=2.345678,
        assignments_spent=789,
        peers={"shop": PRINT},
    )
    said = " ".join(f"{found.what} {found.change}" for found in objections(POLICY, request))
    assert "1 of the 2 features" in said
    for secret in ("secret_column", "visits", "2.345", "0.65", "789", "211", "bank", "telecom"):
        assert secret not in said
    told = next(objections(POLICY, dataclasses.replace(PREDICT, rows=77, predicted=SpentToday(99, 0))))
    assert "99" not in told.what


@pytest.mark.parametrize(
    "wrong",
    [
        {"peers": {"bank": ("abcd",)}},
        {"peers": {"bank": ("*",)}},
        {"peers": {"bank": "any"}},
        {"peers": {"a bank": ("any",)}},
        {"protocols": "plain"},
        {"protocols": ("plain", "plain")},
        {"max_depth": 0},
        {"max_trees": 1.5},
        {"epsilon_total": math.inf},
        {"delta": 2},
        {"predictions_per_day": -1},
        {"predictions_per_day": True},
    ],
)
def test_an_impossible_policy_is_refused_when_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(ImpossibleSetting, match=next(iter(wrong))):
        Policy(**wrong)


def test_the_line_that_a_refusal_asks_for_can_be_put_into_the_job() -> None:
    small = dataclasses.replace(JOB, min_node_rows=1)
    with pytest.raises(AgainstPolicy) as refused:
        decide(POLICY, small)
    found = re.search(r"set (min_node_rows = \d+) under \[training\] in the job", str(refused.value))
    assert found is not None
    training = TrainingConfig.from_dict(tomllib.loads(f"[training]\n{found[1]}")["training"])
    decide(POLICY, dataclasses.replace(small, min_node_rows=training.min_node_rows))


def test_no_line_is_asked_for_where_the_protocol_could_not_take_it() -> None:
    with pytest.raises(AgainstPolicy) as refused:
        decide(POLICY, dataclasses.replace(JOB, min_node_rows=None))
    assert "in the job" not in str(refused.value)
    assert "lower min_node_rows under [policy]" in str(refused.value)


def test_a_helper_without_a_table_has_no_nodes_to_count() -> None:
    decide(POLICY, dataclasses.replace(JOB, table=None, min_node_rows=1))
