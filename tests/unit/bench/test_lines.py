"""The lines that the bench shapes are those that `plan --network` knows by name."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from veilboost.wire.transcript import LINES, Network

pytestmark = pytest.mark.fast


def test_named_lines_are_the_same_in_the_bench_and_in_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[3] / "bench"))
    shaped = importlib.import_module("line").LINES
    assert {name: (each.rate, each.round_trip) for name, each in shaped.items()} == {
        name: (each.bandwidth, 2 * each.latency) for name, each in LINES.items()
    }
    assert all(Network.parse(name) == each for name, each in LINES.items())
