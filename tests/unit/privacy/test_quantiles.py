"""Cuts under noise: near the quantiles, the same whoever is asked, and made without looking at the data's range."""

from __future__ import annotations

import numpy as np
import pytest

from veilboost.crypto.csprng import Csprng
from veilboost.privacy.discrete import LEVELS, cell_counts, noisy_cuts

pytestmark = pytest.mark.fast

SHAPES = {
    "normal": lambda rng: rng.normal(size=20_000),
    "skewed": lambda rng: np.exp(3 * rng.normal(size=20_000)),
    "negative": lambda rng: -(10**6) - 1000 * rng.random(20_000),
    "few values": lambda rng: rng.integers(0, 5, size=20_000).astype(float),
    "around zero": lambda rng: np.where(rng.random(20_000) < 0.5, 0.0, rng.normal(size=20_000) * 1e-3),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_bins_hold_about_equally_many_rows_where_values_allow_it(shape):
    values = SHAPES[shape](np.random.default_rng(1)).astype(np.float32)
    cuts = noisy_cuts(Csprng(b"noise"), cell_counts(values), 16, sigma=20.0)
    assert (np.diff(cuts) > 0).all()
    assert np.isfinite(cuts).all()
    share = np.array([(values < cut).mean() for cut in cuts])
    # The cell of a cut is one part in 2048 of its size: values that crowd closer than that share a bin.
    if shape in {"normal", "skewed"}:
        assert len(cuts) == 15
        assert np.abs(share - np.arange(1, 16) / 16).max() < 0.02


def test_missing_values_do_not_move_the_quantiles():
    rng = np.random.default_rng(2)
    values = rng.normal(size=20_000).astype(np.float32)
    values[rng.random(20_000) < 0.5] = np.nan
    cuts = noisy_cuts(Csprng(b"noise"), cell_counts(values), 4, sigma=20.0)
    there = values[~np.isnan(values)]
    assert np.allclose([(there < cut).mean() for cut in cuts], [0.25, 0.5, 0.75], atol=0.03)


def test_one_value_is_found_whatever_it_is_and_all_missing_gives_what_noise_gives():
    for value in (0.0, -0.0, 1.5, -3e30, 1e-40):
        cuts = noisy_cuts(Csprng(b"noise"), cell_counts(np.full(5000, value, dtype=np.float32)), 4, sigma=5.0)
        assert all(abs(cut - value) <= max(abs(value) / 500, 1e-30) for cut in cuts)
    nothing = noisy_cuts(Csprng(b"noise"), cell_counts(np.full(50, np.nan, dtype=np.float32)), 4, sigma=5.0)
    assert np.isfinite(nothing).all()


def test_noise_moves_the_cuts_and_the_same_noise_gives_the_same():
    values = np.random.default_rng(3).normal(size=2000).astype(np.float32)
    one, same = (noisy_cuts(Csprng(b"a"), cell_counts(values), 8, sigma=50.0) for _ in range(2))
    other = noisy_cuts(Csprng(b"b"), cell_counts(values), 8, sigma=50.0)
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_one_person_changes_every_table_of_counts_by_the_stated_distance():
    """A table of a level counts values by the first bits of their order; one value leaves a cell and enters another."""
    values = np.random.default_rng(4).normal(size=300).astype(np.float32)
    moved = values.copy()
    moved[7] = -values[7] * 1000
    for level in range(1, LEVELS + 1):
        tables = []
        for each in (values, moved):
            bits = (each + np.float32(0)).view(np.uint32).astype(np.int64)
            ordered = np.where(bits >> 31, 0xFFFFFFFF - bits, bits | 0x80000000)
            tables.append(np.bincount(ordered >> (32 - level), minlength=2**level))
        assert np.linalg.norm(tables[0] - tables[1]) <= np.sqrt(2) + 1e-9
