from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilboost.boost.cuts import propose_cuts

pytestmark = pytest.mark.fast
floats = st.floats(width=32, allow_infinity=False, allow_nan=True)


@given(st.lists(floats, max_size=80), st.integers(2, 20), st.sampled_from(["quantile", "width"]))
def test_cuts_increase_and_separate_values(values, max_bin, binning):
    column = np.array(values, dtype=np.float32)
    cuts = propose_cuts(column, None, max_bin, binning)
    assert cuts.dtype == np.float32
    assert len(cuts) <= max_bin - 1
    assert (np.diff(cuts) > 0).all()
    present = column[~np.isnan(column)]
    if binning == "quantile":
        bins = np.searchsorted(cuts, present, side="right")
        assert len(np.unique(bins)) == (len(cuts) + 1 if len(present) else 0), "no bin of the training rows is empty"


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60))
def test_few_distinct_values_get_a_bin_each(values):
    column = np.array(values, dtype=np.float32)
    cuts = propose_cuts(column, None, 32, "quantile")
    assert len(cuts) == len(set(values)) - 1


def test_heavy_values_do_not_cost_bins():
    column = np.concatenate((np.zeros(900), np.arange(1, 101))).astype(np.float32)
    cuts = propose_cuts(column, None, 11, "quantile")
    counts = np.bincount(np.searchsorted(cuts, column, side="right"))
    assert counts.tolist() == [900, *[10] * 10]


def test_light_values_share_evenly():
    column = np.random.default_rng(0).normal(size=10_000).astype(np.float32)
    counts = np.bincount(np.searchsorted(propose_cuts(column, None, 32, "quantile"), column, side="right"))
    assert len(counts) == 32
    assert counts.min() >= 300
    assert counts.max() <= 325


def test_weights_count_as_repetition():
    rng = np.random.default_rng(1)
    column = rng.normal(size=500).astype(np.float32)
    times = rng.integers(1, 5, size=500)
    weighted = propose_cuts(column, times.astype(np.float64), 16, "quantile")
    repeated = propose_cuts(np.repeat(column, times), None, 16, "quantile")
    np.testing.assert_array_equal(weighted, repeated)


def test_equal_width_covers_the_range():
    column = np.array([0, 1, 10], dtype=np.float32)
    np.testing.assert_allclose(propose_cuts(column, None, 5, "width"), [2, 4, 6, 8])


def test_neighbouring_floats_are_still_separated():
    low = np.float32(1.0)
    high = np.nextafter(low, np.float32(2), dtype=np.float32)
    cuts = propose_cuts(np.array([low, high]), None, 4, "quantile")
    assert low < cuts[0] <= high
