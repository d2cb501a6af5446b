"""The bench of lines: its lines are those that `plan --network` knows by name, and it reads what a job chose."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from veilboost.config import TrainingConfig
from veilboost.protocols.lattice.choice import JobSizes, choose
from veilboost.protocols.registry import protocol_named
from veilboost.wire.transcript import LINES, Network

pytestmark = pytest.mark.fast


@pytest.fixture(autouse=True)
def bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[3] / "bench"))


def test_no_module_of_the_bench_has_the_name_of_one_of_the_tests() -> None:
    # Both are imported by name alone: the one that is found first would hide the other.
    root = Path(__file__).resolve().parents[3]
    of_tests = {path.stem for path in (root / "tests").glob("*.py")}
    assert not of_tests & {path.stem for path in (root / "bench").glob("**/*.py")}


def test_named_lines_are_the_same_in_the_bench_and_in_plan() -> None:
    shaped = importlib.import_module("line").LINES
    assert {name: (each.rate, each.round_trip) for name, each in shaped.items()} == {
        name: (each.bandwidth, 2 * each.latency) for name, each in LINES.items()
    }
    assert all(Network.parse(name) == each for name, each in LINES.items())


def test_every_protocol_of_the_bench_accepts_its_options() -> None:
    wan = importlib.import_module("wan")
    for protocol in wan.VERTICAL:
        given = dict(wan.OPTIONS.get(protocol, {}))
        config = TrainingConfig(**wan.TRAINING, options=given)
        assert protocol_named(protocol).options.from_dict(config.options) is not None


@pytest.mark.parametrize("line", LINES)
def test_the_table_shows_the_layout_of_every_level(line: str) -> None:
    wan = importlib.import_module("wan")
    choice = choose("auto", JobSizes(24_000, 384, 12, 6, 60, 12), LINES[line])
    letters = {"runs": "r", "masks": "m", "expansion": "e"}
    assert wan.levels(str(choice)) == " ".join(letters[each.layout] for each in choice.levels())
    assert wan.levels("") == ""
