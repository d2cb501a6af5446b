"""Every claim about sizes, worked out again: security margin, flooding, room for sums, shapes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilboost.crypto.lattice.keys import FAMILIES, Blocks
from veilboost.crypto.lattice.parameters import (
    DEGREE,
    ERROR_SIGMA,
    LEAST_RUN,
    MOST_RUN,
    POLYNOMIAL_BYTES,
    PRIMES,
    Sizes,
    rows_per_block,
    run_length,
    sizes_for,
)

pytestmark = pytest.mark.fast
Q = PRIMES[0] * PRIMES[1]
ROUNDING = PRIMES[1] * math.sqrt((DEGREE * 2 / 3 + 1) / 12)  # of the modulus switch, before it: s times 1/2 at most
shapes = {"rows": st.integers(1, 2**24), "slots": st.integers(1, 20_000), "features": st.integers(1, 2000)}


def noise_deviation(rows: int, features: int) -> float:
    """Errors of the rows in the tile, u times the key's error, the mask's error times s: both ternary, variance 2/3."""
    return ERROR_SIGMA * math.sqrt(rows * min(features, 64) + DEGREE * 2 / 3 + DEGREE * 2 / 3)


def test_the_modulus_stays_below_the_standards_bound():
    """HomomorphicEncryption.org 2018, table 1: N = 4096, ternary secret, 128 bits, log2 q at most 109."""
    assert Q.bit_length() == 100
    assert all(pow(base, p - 1, p) == 1 for p in PRIMES for base in (2, 3, 5, 7))
    assert 3.2 <= ERROR_SIGMA < 3.3


@given(**shapes)
def test_a_nodes_answer_is_within_2_to_the_minus_40(rows, slots, features):
    """Uniform noise on 2B integers, moved by x, is at a distance of |x| / 2B from itself; distances add up."""
    log_flood = sizes_for(rows, slots, features).log_flood
    moved = noise_deviation(rows, features) * math.sqrt(2 / math.pi)  # the mean size of a normal number

    def distance(log: int) -> float:
        return FAMILIES * slots * moved / 2 ** (log + 1)

    assert distance(log_flood) <= 2**-40
    assert log_flood == 57 or distance(log_flood - 1) > 2**-40, "and not more than is needed"


@pytest.mark.parametrize("log_flood", range(57, 63))
def test_noise_stays_below_half_a_step(log_flood):
    """Flood at its largest, eight deviations of the rounding and ten of the largest noise that it may hide."""
    sizes = Sizes(log_flood)
    noise = 10 * noise_deviation(2**24, 64)
    assert noise < 2**21
    assert 2**log_flood + 8 * ROUNDING + noise < 2 ** (sizes.log_delta - 1)


def test_a_sum_goes_wrong_less_than_once_in_2_to_the_60():
    """At the least flood. Rounding is a sum of many bounded terms, so its tail is below the normal one's.

    The flood F is uniform in [-B, B) and half a step is 2B: the chance that |F + R| exceeds it is
    E max(|R| - B, 0) / 2B, and for a normal R of deviation d that is d (phi(t) - t Q(t)) / B with t = B / d.
    """
    bound, t = 2.0**57, 2**57 / ROUNDING
    assert 8.4 < t < 8.5
    density, tail = math.exp(-t * t / 2) / math.sqrt(2 * math.pi), math.erfc(t / math.sqrt(2)) / 2
    assert ROUNDING * (density - t * tail) / bound < 2**-60


@pytest.mark.parametrize("log_flood", range(57, 63))
def test_the_largest_sum_is_the_largest_that_cannot_wrap_around(log_flood):
    sizes, step = Sizes(log_flood), 2 ** (log_flood + 2)
    assert sizes.largest_sum * step + step // 2 < Q // 2
    assert (sizes.largest_sum + 2) * step > Q // 2


@given(**shapes, largest=st.integers(0, 2**31))
def test_rows_of_a_block_never_add_up_beyond_the_bound(rows, slots, features, largest):
    found = rows_per_block(rows, largest, slots, features)
    assert found <= rows
    assert found == 0 or found * largest <= sizes_for(found, slots, features).largest_sum
    if not found:
        assert LEAST_RUN * largest > sizes_for(rows, slots, features).largest_sum


def test_some_sizes_by_hand():
    # sqrt(24,000 * 12 + 5461) * 3.24 is 1755; times 768 values and 0.8 it is 2^20.04; so 40 + 20.04 - 1, rounded up.
    assert sizes_for(24_000, 384, 12) == Sizes(60)
    assert sizes_for(1, 1, 1) == Sizes(57)
    assert Sizes(60).largest_sum == (Q // 2 >> 62) - 1 == 2**37 - 29
    assert rows_per_block(24_000, 2**20, 384, 12) == 24_000
    assert rows_per_block(10**6, 2**20, 384, 12) < 10**6
    assert rows_per_block(0, 2**20, 384, 12) == 1
    assert rows_per_block(100, 2**62, 384, 12) == 0


@given(st.integers(0, 10**7), st.integers(0, 10**5))
def test_runs_are_powers_of_two_in_range(rows, slots):
    run = run_length(rows, slots)
    assert LEAST_RUN <= run <= MOST_RUN
    assert run.bit_count() == 1
    Blocks(np.empty(0, np.int32), np.zeros(1, np.int64), np.zeros(1, np.int64), np.array([run], np.int32)).check()


@given(st.integers(1, 10**6), st.integers(1, 5000))
def test_the_run_is_near_the_shape_with_the_fewest_bytes(rows, slots):
    """In: two families modulo two primes a run. Out: a mask a tile (the sums are few)."""

    def polynomials(run: int) -> int:
        return 4 * math.ceil(rows / run) + math.ceil(slots * run / DEGREE)

    least = min(polynomials(1 << log) for log in range(6, 13))
    assert polynomials(run_length(rows, slots)) <= 1.5 * least + 4


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(6, 12)), max_size=6), st.integers(0, 700))
def test_bytes_of_ciphertexts_and_masks(blocks, slots):
    count = np.array([rows for rows, _ in blocks], dtype=np.int64)
    run = np.array([1 << log for _, log in blocks], dtype=np.int32)
    end = count.cumsum()
    made = Blocks(np.arange(count.sum(), dtype=np.int32), end - count, end, run)
    runs = sum(math.ceil(rows / (1 << log)) for rows, log in blocks)
    tiles = sum(math.ceil(slots / (DEGREE >> log)) for _, log in blocks)
    assert made.ciphertext_bytes() == runs * FAMILIES * 2 * POLYNOMIAL_BYTES
    assert made.mask_bytes(slots) == tiles * POLYNOMIAL_BYTES
