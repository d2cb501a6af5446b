from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilboost.boost.bins import Ranked, between, propose_cuts, quantiles

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


def shares_one_by_one(values, max_bin):
    """The rule as it is told: walk the different values, add up shares, start a bin where a whole share is reached."""
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) <= max_bin:
        return between(distinct[:-1], distinct[1:])
    heavy = set[int]()
    while True:
        fair = Fraction(sum(int(c) for k, c in enumerate(counts) if k not in heavy), max_bin - len(heavy))
        more = {k for k, c in enumerate(counts) if c >= fair} - heavy
        if not more:
            break
        heavy |= more
    reached, starts = Fraction(0), list[int]()
    for k, count in enumerate(counts):
        after = reached + (1 if k in heavy else int(count) / fair)
        if math.floor(after) != math.floor(reached) and k + 1 < len(distinct):
            starts.append(k + 1)
        reached = after
    return between(distinct[np.array(starts) - 1], distinct[starts])


present = st.floats(width=32, allow_infinity=False, allow_nan=False)
ties = st.integers(-4, 4).map(float)
repeated = st.lists(st.tuples(present, st.integers(1, 70)), min_size=1, max_size=30).map(
    lambda pairs: [value for value, times in pairs for _ in range(times)]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(present | ties, min_size=1, max_size=120) | repeated, st.integers(2, 40))
def test_cuts_follow_the_rule_exactly(values, max_bin):
    """Also the rule for weights, which is in floats: on few rows it is as good."""
    column = np.array(values, dtype=np.float32) + np.float32(0)
    found = propose_cuts(column, None, max_bin, "quantile")
    assert found.tobytes() == shares_one_by_one(column, max_bin).tobytes()
    assert found.tobytes() == propose_cuts(column, np.ones(len(column)), max_bin, "quantile").tobytes()


@given(
    st.lists(st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-45, -1e-45, -np.inf]), min_size=1, max_size=40).flatmap(
        lambda values: st.tuples(st.just(values), st.permutations(values))
    ),
    st.integers(2, 6),
    st.sampled_from(["quantile", "width", "weighted"]),
)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # the width of an infinite range
def test_the_order_of_rows_changes_no_byte(orders, max_bin, binning):
    """Nor which of the two zeros comes first."""
    weights = np.ones(len(orders[0])) if binning == "weighted" else None
    kind = "width" if binning == "width" else "quantile"
    one, other = (propose_cuts(np.array(each, dtype=np.float32), weights, max_bin, kind) for each in orders)
    assert one.tobytes() == other.tobytes()


def test_very_many_rows_are_shared_exactly():
    """Of 2^31 - 1 rows with different values every bin ends where it should; a sum of floats would be off."""
    rows, max_bin = 2**31 - 1, 1024
    search = quantiles(rows, max_bin)
    ranks = next(search)
    around = search.send(Ranked(ranks.astype(np.float32), ranks - 1, ranks))
    ends = [-(-k * rows // max_bin) for k in range(1, max_bin)]
    assert around.tolist() == ends + [end + 1 for end in ends]
