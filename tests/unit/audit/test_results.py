"""Numbers, intervals and verdicts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilboost.audit.attack import Finding, Outcome, balanced_accuracy, over_runs, share_right, wilson
from veilboost.privacy.statement import Protection, Status
from veilboost.report.pages import audit_page


def finding(value: float, low: float, baseline: float = 0.5, bar: float | None = None) -> Finding:
    outcome = Outcome("accuracy", value, baseline, low, min(1.0, 2 * value - low), "a <sentence>", bar)
    return Finding("an attack", "plain", "p1", "passive", "p0", "active", "labels", outcome, 0.5)


def test_verdicts() -> None:
    assert finding(0.9, 0.8).verdict == "succeeded"
    assert finding(0.9, 0.7).verdict == "better than chance"
    assert finding(0.5, 0.4).verdict == "resisted"
    assert finding(0.6, 0.55, bar=0.55).succeeded
    told = finding(0.9, 0.8).to_dict()
    assert told["verdict"] == "succeeded"
    assert told["threshold"] == 0.75
    assert "bar" not in told


@given(st.integers(1, 500), st.floats(0, 1))
def test_wilson_holds_the_share(count: int, share: float) -> None:
    low, high = wilson(share, count)
    assert 0 <= low <= share + 1e-9
    assert share - 1e-9 <= high <= 1
    wider = wilson(share, max(count // 4, 1))
    assert wider[1] - wider[0] >= high - low - 1e-9


@given(st.integers(1, 100_000))
def test_nothing_found_is_nothing_and_everything_is_everything(count: int) -> None:
    assert wilson(0.0, count)[0] == 0.0
    assert wilson(1.0, count)[1] == 1.0


def test_balanced_accuracy_is_half_where_one_class_is_always_named() -> None:
    truth = np.array([0.0] * 90 + [1.0] * 10)
    outcome = balanced_accuracy(truth, np.zeros(100), "majority {majority:.2f}, value {value:.1f}")
    assert (outcome.value, outcome.baseline) == (0.5, 0.5)
    assert outcome.sentence == "majority 0.90, value 0.5"
    exact = balanced_accuracy(truth, truth, "")
    assert exact.value == 1.0
    assert 0.5 < exact.low < 1.0


def test_guesses_that_hang_together_count_less() -> None:
    hits = np.arange(400) % 2 == 0
    alone, together = (share_right("bits", hits, 0.5, "", clusters=clusters) for clusters in (None, 20))
    assert together.high - together.low > 2 * (alone.high - alone.low)


def test_runs_are_averaged_with_students_interval() -> None:
    mean = over_runs([finding(value, value - 0.1) for value in (0.6, 0.7, 0.8)])
    assert mean.outcome.value == pytest.approx(0.7)
    # t(0.975, 2) = 4.3027, standard error 0.1 / sqrt(3)
    assert mean.outcome.low == pytest.approx(0.7 - 4.3027 * 0.1 / np.sqrt(3), abs=1e-4)
    assert (mean.runs, mean.seconds) == (3, 1.5)
    assert over_runs([finding(0.6, 0.5)]).runs == 1


def test_the_page_needs_nothing_else_and_escapes_what_it_shows() -> None:
    claims = [Protection("active", "labels", "everyone", Status.UNPROTECTED, "a & b").to_dict()]
    text = audit_page("plain", [finding(0.9, 0.8).to_dict()], claims)
    assert "a &lt;sentence&gt;" in text
    assert "a &amp; b" in text
    assert "<script" not in text
    assert "http:" not in text
    assert "https:" not in text
    assert "No attack" in audit_page("plain", [], claims)
