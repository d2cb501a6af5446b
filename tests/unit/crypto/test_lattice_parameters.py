"""Every claim about sizes, worked out again: security margin, flooding, room for sums, shapes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilboost.crypto.lattice.keys import (
    DEGREE,
    ERROR_SIGMA,
    FAMILIES,
    LEAST_NARROWED,
    LEAST_RUN,
    MOST_LOG_FLOOD,
    MOST_RUN,
    POLYNOMIAL_BYTES,
    PRIMES,
    Blocks,
    Sizes,
    run_length,
    sizes_for,
    sizes_for_job,
)

pytestmark = pytest.mark.fast
Q = PRIMES[0] * PRIMES[1]
ROUNDING = PRIMES[1] * math.sqrt((DEGREE * 2 / 3 + 1) / 12)  # of the modulus switch, before it: s times 1/2 at most
shapes = {"rows": st.integers(1, 2**24), "slots": st.integers(1, 20_000), "features": st.integers(1, 2000)}


def noise_deviation(hits: float) -> float:
    """Errors of the tile's hits, u times the key's error, the mask's error times s: both ternary, variance 2/3."""
    return ERROR_SIGMA * math.sqrt(hits + DEGREE * 2 / 3 + DEGREE * 2 / 3)


def distance(hits_of_tiles: list[float], slots_of_tiles: list[int], log_flood: int) -> float:
    """Uniform noise on 2B integers, moved by x, is at a distance of |x| / 2B from itself; distances add up."""
    sizes = [noise_deviation(hits) * math.sqrt(2 / math.pi) for hits in hits_of_tiles]  # mean size of a normal number
    return sum(FAMILIES * slots * size for slots, size in zip(slots_of_tiles, sizes, strict=True)) / 2 ** (
        log_flood + 1
    )


def test_the_modulus_stays_below_the_bound_of_the_guidelines():
    """Guidelines of 2024: N = 4096, ternary secret, 128 bits (classical), errors of 3.19 and more, log2 q up to 106."""
    assert Q.bit_length() == 100
    assert all(pow(base, p - 1, p) == 1 for p in PRIMES for base in (2, 3, 5, 7))
    assert 3.2 <= ERROR_SIGMA < 3.3


@settings(deadline=None)
@given(**shapes)
def test_a_blocks_answer_is_within_2_to_the_minus_40_and_no_more_is_flooded_than_needed(rows, slots, features):
    log_flood = sizes_for(rows, slots, features).log_flood
    hits = rows * features * min(1, 64 / slots)  # evenly spread, in tiles of 64 slots
    assert distance([hits], [slots], log_flood) <= 2**-40
    assert log_flood == 57 or distance([hits], [slots], log_flood - 1) > 2**-40


@settings(deadline=None)
@given(st.integers(1, 10**6), st.lists(st.integers(1, 100), min_size=1, max_size=60), st.data())
def test_wherever_the_rows_fall(rows, widths, data):
    """All rows in one bin of each column, any bin: the tiles' own hits are within the same distance."""
    slots = sum(widths)
    log_flood = sizes_for(rows, slots, len(widths)).log_flood
    run = data.draw(st.sampled_from([64, 128, 1024, 4096]))
    in_tile = DEGREE // run
    starts = np.cumsum([0, *widths[:-1]])
    chosen = [start + data.draw(st.integers(0, width - 1)) for start, width in zip(starts, widths, strict=True)]
    tiles = math.ceil(slots / in_tile)
    hits = rows * np.bincount(np.array(chosen) // in_tile, minlength=tiles)
    sizes = [min(in_tile, slots - tile * in_tile) for tile in range(tiles)]
    assert distance(hits.tolist(), sizes, log_flood) <= 2**-40


@settings(deadline=None)
@given(**shapes, fewer=st.integers(1, 20_000), less=st.integers(1, 2000))
def test_what_is_enough_for_the_widest_party_is_enough_for_all(rows, slots, features, fewer, less):
    """The active party encrypts once, for the most slots and the most features of any party."""
    widest = sizes_for(rows, max(slots, fewer), max(features, less)).log_flood
    assert sizes_for(rows, slots, features).log_flood <= widest
    assert sizes_for(rows, fewer, less).log_flood <= widest


@pytest.mark.parametrize("log_flood", range(57, 63))
def test_noise_stays_below_half_a_step(log_flood):
    """Flood at its largest, eight deviations of the rounding and ten of the largest noise that it may hide."""
    sizes = Sizes(log_flood)
    noise = 10 * noise_deviation(2**24 * 64)
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


@settings(deadline=None)
@given(**shapes, bits=st.integers(0, 31))
def test_a_job_has_the_least_scale_that_hides_the_sums_of_its_blocks(rows, slots, features, bits):
    def fits(sizes: Sizes) -> bool:
        block, least = min(rows, sizes.largest_sum // 2**bits, 2**20), LEAST_NARROWED if sizes.narrowing else LEAST_RUN
        return block >= min(rows, least) and sizes_for(block, slots, features).log_flood <= sizes.log_flood

    fitting = [sizes for sizes in map(Sizes.of_scale, range(59, 100)) if fits(sizes)]
    assert sizes_for_job(rows, bits, slots, features) == min(fitting, default=None)


@given(log_delta=st.integers(-100, 200))
def test_the_scale_tells_the_flooding(log_delta):
    sizes = Sizes.of_scale(log_delta)
    assert sizes.log_delta == log_delta
    assert sizes.log_flood <= MOST_LOG_FLOOD
    assert sizes.narrowing == max(0, log_delta - 64)


@pytest.mark.parametrize("bits", [8, 10, 12, 16, 20])
def test_fewer_bits_never_leave_a_job_without_room(bits):
    """Blocks are as large as sums allow; where the most flooding does not hide as many rows, they are smaller."""
    for rows, slots, features in ((10**7, 640, 10), (10**6, 3200, 50), (10**6, 6400, 100), (27_572, 3000, 118)):
        sizes = sizes_for_job(rows, bits, slots, features)
        assert sizes is not None
        assert sizes.rows_per_block(bits) >= min(rows, 8191)
    assert sizes_for_job(10**7, 12, 640, 10) == Sizes(61)
    assert sizes_for_job(10**6, 12, 3200, 50) == Sizes(62, narrowing=6)


def test_some_sizes_by_hand():
    # Two hits a row: sqrt(2 * 24,000 + 5461) * 3.24 is 749; times 768 values and 0.8 it is 2^18.8; 40 + 18.8 - 1.
    assert sizes_for(24_000, 384, 12) == Sizes(58)
    assert sizes_for(1, 1, 1) == Sizes(57)
    assert Sizes(60).largest_sum == (Q // 2 >> 62) - 1 == 2**37 - 29
    assert sizes_for_job(24_000, 20, 384, 12) == Sizes(58)
    assert Sizes(58).rows_per_block(20) == 2**19 - 1
    assert sizes_for_job(10**6, 20, 640, 20) == Sizes(60)
    assert Sizes(60).rows_per_block(20) == 2**17 - 1
    assert sizes_for_job(100, 62, 384, 12) is None
    assert sizes_for_job(100, 20, 10**6, 100) is None


@settings(deadline=None)
@given(st.integers(0, 10**7), st.integers(0, 10**5))
def test_runs_are_powers_of_two_in_range(rows, slots):
    run = run_length(rows, slots)
    assert LEAST_RUN <= run <= MOST_RUN
    assert run.bit_count() == 1
    Blocks(np.empty(0, np.int32), np.zeros(1, np.int64), np.zeros(1, np.int64), np.array([run], np.int32)).check()


@settings(deadline=None)
@given(st.integers(1, 10**6), st.integers(1, 5000))
def test_the_run_is_near_the_shape_with_the_fewest_bytes(rows, slots):
    """In: two families modulo two primes a run. Out: a mask a tile (the sums are few)."""

    def polynomials(run: int) -> int:
        return 4 * math.ceil(rows / run) + math.ceil(slots * run / DEGREE)

    least = min(polynomials(1 << log) for log in range(6, 13))
    assert polynomials(run_length(rows, slots)) <= 1.5 * least + 4


@settings(deadline=None)
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
