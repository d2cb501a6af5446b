"""The comparison of two commits: what its interval promises, and what follows from it."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytestmark = pytest.mark.fast

BENCH = Path(__file__).resolve().parents[3] / "bench"


@pytest.fixture
def against(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    for name in ("against", "common"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return __import__("against")


@pytest.mark.parametrize("count", [6, 7, 10, 15, 30])
def test_the_interval_holds_the_median_as_often_as_it_says(against: ModuleType, count: int) -> None:
    rng = np.random.default_rng(count)
    held, probability, runs = 0, 0.0, 4000
    for values in rng.exponential(size=(runs, count)):
        low, high, probability = against.interval_of_median(values.tolist())
        held += low <= math.log(2) <= high
    assert probability >= 0.95
    # Five and more standard deviations of a share of 4000: the seed is fixed, by chance 1e-6 or less.
    assert held / runs == pytest.approx(probability, abs=5 * math.sqrt(probability * (1 - probability) / runs))


def test_no_narrower_pair_would_do(against: ModuleType) -> None:
    values = [float(k) for k in range(10)]
    assert against.interval_of_median(values)[:2] == (1.0, 8.0)  # 97.9 %; the next pair has 89.1 %
    assert against.interval_of_median(values[:6])[:2] == (0.0, 5.0)


@pytest.mark.parametrize(("factor", "verdict"), [(1.1, "slower"), (0.9, "faster"), (1.0, "no difference shown")])
def test_rounds_are_compared_with_one_another(against: ModuleType, factor: float, verdict: str) -> None:
    """A machine that slows down over the rounds does not hide a difference."""
    there = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
    wobble = [1.01, 0.99, 1.0, 1.02, 0.98, 1.0]
    found = against.compared([t * w * factor for t, w in zip(there, wobble, strict=True)], there)
    assert found["ratio"] == pytest.approx(factor)
    assert found["verdict"] == verdict


def test_a_bench_can_be_measured_with_made_up_rows(against: ModuleType, tmp_path: Path) -> None:
    small = against.made_up(tmp_path / "rows.parquet", rows=300, columns=4)
    against.TREES["plain"] = 2
    assert against.measured(sys.executable, "plain", small) > -1  # processor seconds of so little are mostly noise
