"""`veilboost privacy`, `veilboost ledger`, and the privacy of a simulation, as a person and a program read them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from veilboost.cli.main import app
from veilboost.privacy.event import Adjacency, Duchi, ExactRelease, Gaussian
from veilboost.privacy.ledger import Ledger
from veilboost.protocols import registry
from veilboost.protocols.plain.spec import SPEC as PLAIN

pytestmark = pytest.mark.fast

CALIBRATE = ["privacy", "calibrate", "--protocol", "noisy", "--rows", "24000"]
ABOUT = {"adjacency": Adjacency.LABEL, "adversary": "passive parties", "protocol": "noisy"}


def run(*arguments):
    return CliRunner().invoke(app, [str(word) for word in arguments])


def answer(*arguments):
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.exception
    return json.loads(result.stdout)


@pytest.fixture(autouse=True)
def noisy(monkeypatch):
    """A protocol that answers with what it was asked."""
    spec = replace(PLAIN, name="noisy", calibrate=lambda request: {"sigma1": 0.5, "trees": request.trees})
    known = {**registry.all_protocols(), "noisy": spec}
    monkeypatch.setattr(registry, "all_protocols", lambda: known)


def test_calibrate_asks_the_protocol():
    told = answer(*CALIBRATE, "--eps-ap", 4, "--delta-ap", 1e-3, "--eps-pp", 1, "--trees", 60, "--option", "W=1")
    assert (told["sigma1"], told["trees"], told["protocol"]) == (0.5, 60, "noisy")
    asked = told["request"]
    assert (asked["epsilon_active"], asked["delta_active"], asked["epsilon_passive"]) == (4.0, 1e-3, 1.0)
    assert (asked["delta_passive"], asked["rows"], asked["options"]) == (None, 24000, {"W": 1})
    assert "sigma1" in run(*CALIBRATE, "--eps-ap", 4).stdout


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--eps-ap", "0"], "VB-1002"),
        (["--eps-ap=-1"], "VB-1002"),
        (["--eps-ap", "inf"], "VB-1002"),
        (["--eps-pp", "nan"], "VB-1002"),
        (["--eps-ap", "1", "--delta-ap", "0"], "VB-1002"),
        (["--eps-ap", "1", "--delta-ap", "1"], "VB-1002"),
        (["--eps-pp", "1", "--delta-pp=-0.1"], "VB-1002"),
        (["--eps-ap", "1", "--bins", "0"], "VB-1002"),
        ([], "VB-1002"),
        (["--eps-ap", "1", "--protocol", "nonsense"], "VB-1001"),
        (["--eps-ap", "1", "--protocol", "plain"], "VB-1004"),
    ],
)
def test_impossible_budgets_are_refused(words, code):
    assert run(*CALIBRATE, *words).exception.code == code


def test_spent_tells_both_accountings(tmp_path):
    events = [
        Gaussian(0.2, what="gradients", release="all", count=60, paper_epsilon=1.0, paper_delta=1e-3, **ABOUT),
        ExactRelease(what="the sum of gradients", release="sums", **ABOUT | {"adversary": "a clerk"}),
    ]
    kept = {"party": "bank", "job": "first/1", "delta": 1e-5, "events": [event.to_dict() for event in events]}
    (tmp_path / "ledger.json").write_text(json.dumps(kept))
    told = answer("privacy", "spent", tmp_path)
    assert told["paper"][0]["epsilon_per_release"] == 1.0
    noised, exact = told["composed"]
    assert noised["epsilon"] == pytest.approx(7.3294, abs=1e-4)
    assert noised["adjacency"] == "label"
    assert exact["epsilon"] is None  # JSON has no infinity
    assert exact["exact_releases"] == 1
    assert answer("privacy", "spent", tmp_path, "--delta", 1e-3)["composed"][0]["epsilon"] < noised["epsilon"]
    text = run("privacy", "spent", tmp_path).stdout
    assert "7.329" in text
    assert "infinite" in text
    assert run("privacy", "spent", tmp_path, "--delta", 2).exception.code == "VB-1002"


@pytest.mark.parametrize("content", [None, "not json", "{}", '{"party": "a", "job": "b", "delta": 1, "events": [{}]}'])
def test_a_run_without_a_ledger_is_told_apart(tmp_path, content):
    if content is not None:
        (tmp_path / "ledger.json").write_text(content)
    assert run("privacy", "spent", tmp_path).exception.code == "VB-1706"


def test_a_ledger_is_shown_by_job_and_adjacency(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.append("one/1", Duchi(0.5, what="x", release="r", **ABOUT))
    ledger.append("two/1", Duchi(0.25, what="x", release="r", **ABOUT | {"adjacency": Adjacency.PASSIVE_RECORD}))
    ledger.reserve("three/1", 1.0, 1e-6, lambda: None)
    told = answer("ledger", "show", "--ledger", ledger.path)
    assert told["spent"] == pytest.approx(1.75, abs=1e-3)
    assert told["by_adjacency"]["label"] == pytest.approx(1.5, abs=1e-3)  # what is set aside may go to either
    assert told["rows"] == 3
    assert [job["job"] for job in told["jobs"]] == ["one/1", "two/1", "three/1"]
    assert "three/1" in run("ledger", "show", "--ledger", ledger.path).stdout
    assert run("ledger", "close", "one/1", "--ledger", ledger.path).exception.code == "VB-1004"


def test_a_ledger_must_be_named_once(tmp_path):
    assert run("ledger", "show").exception.code == "VB-1004"
    assert run("ledger", "show", "--ledger", tmp_path / "none").exception.code == "VB-1101"


def test_a_simulation_without_noise_says_what_it_showed():
    told = answer("simulate", "--dataset", "breast_cancer", "--trees", 1, "--no-baselines")
    for name in told["columns"]:
        for view in told["privacy"][name]["composed"]:
            assert (view["releases"], view["epsilon"]) == (0, None)
            assert view["exact_releases"] == 2  # of one tree
            assert len(view["exact"]) == 2
