"""Every engine against the others, against bytes kept in a file, and against plain sums."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path

import numpy as np
import pytest

from lattice_ring import rings
from lattices import LevelCase, encrypted_sums, engine_names, exchange, golden_levels, keys, make_level, public_engine
from veilboost import _native
from veilboost.crypto.lattice.keys import (
    DEGREE,
    ENGINE_VARIABLE,
    PRIMES,
    ROOTS,
    Blocks,
    Sizes,
    chosen_engine,
    run_length,
)
from veilboost.errors import InvalidParameter

pytestmark = pytest.mark.fast
GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "lattice.json").read_text(encoding="utf-8"))
each_engine = pytest.mark.parametrize("engine", engine_names())
native_engine = pytest.mark.parametrize("engine", _native.lattice_engines())


# --- the ring -------------------------------------------------------------------------------------------------------


def test_the_roots_have_order_2n_and_the_primes_leave_room():
    for p, root in zip(PRIMES, ROOTS, strict=True):
        assert pow(root, DEGREE, p) == p - 1
        assert p % (2 * DEGREE) == 1
        assert 2**50 - 2**18 < p < 2**50


def test_products_of_residues_are_right_at_the_ends_too():
    rng = np.random.default_rng(0)
    for ring in rings():
        ends = np.array([0, 1, 2, ring.p // 2, ring.p - 2, ring.p - 1], dtype=np.uint64)
        some = np.concatenate((ends, rng.integers(0, ring.p, 500).astype(np.uint64)))
        a, b = np.meshgrid(some, some)
        assert np.array_equal(ring.multiply(a, b), a.astype(object) * b.astype(object) % ring.p)


def test_the_transform_evaluates_at_odd_powers_of_the_root_in_wire_order():
    """By the definition, in Python's integers, at a few places."""
    coefficients = np.random.default_rng(1).integers(-(2**40), 2**40, DEGREE)
    for ring, root in zip(rings(), ROOTS, strict=True):
        values = ring.forward(ring.residues(coefficients))
        for place in (0, 1, 2, 1000, 4095):
            at = pow(root, 2 * int(f"{place:012b}"[::-1], 2) + 1, ring.p)
            value = functools.reduce(lambda sum_, c, at=at, p=ring.p: (sum_ * at + c) % p, coefficients[::-1].tolist())
            assert values[place] == value
        assert np.array_equal(ring.inverse(values), ring.residues(coefficients))


def test_products_of_transforms_are_products_modulo_x_to_the_n_plus_one():
    rng = np.random.default_rng(2)
    a, b = rng.integers(-1000, 1000, (2, DEGREE))
    long = np.convolve(a, b)
    expected = long[:DEGREE] - np.pad(long[DEGREE:], (0, 1))
    for ring in rings():
        product = ring.multiply(ring.forward(ring.residues(a)), ring.forward(ring.residues(b)))
        assert np.array_equal(ring.inverse(product), ring.residues(expected))


@native_engine
def test_transforms_agree(engine):
    rng = np.random.default_rng(3)
    for coefficients in (rng.integers(-(2**62), 2**62, DEGREE), np.full(DEGREE, PRIMES[0] - 1), np.full(DEGREE, -1)):
        for j, ring in enumerate(rings()):
            found = np.empty(DEGREE, dtype=np.uint64)
            _native.lattice_transform(coefficients, j, engine, found)
            assert np.array_equal(found, ring.forward(ring.residues(coefficients)))


# --- the same bytes everywhere --------------------------------------------------------------------------------------


@each_engine
@pytest.mark.parametrize("name", list(GOLDEN))
def test_bytes_and_sums_are_those_on_file(name, engine):
    case = golden_levels()[name]
    found = exchange(case, engine)
    assert found.digests() == GOLDEN[name]["sha256"]
    assert found.decrypted.tolist() == GOLDEN[name]["sums"] == case.true_sums().tolist()


LEVELS = {
    "one row": make_level(10, (1,), (3,)),
    "one bin": make_level(11, (90,), (1,)),
    "features of one bin": make_level(12, (90,), (1,) * 70),
    "many features in a tile": make_level(13, (80,), (3, 1, 7, 2, 1, 20, 1, 1), shuffled=True),
    "features across tiles": make_level(14, (200,), (50, 30, 70), run=128, shuffled=True),
    "256 bins": make_level(15, (300,), (256,), run=128),
    "more than 256 bins": make_level(16, (300,), (300, 4), run=64),
    "runs as long as the ring": make_level(17, (4099,), (2,), run=4096),
    "a multiple of nothing": make_level(18, (1009, 13), (11, 5), run=(128, 64)),
    "an empty node among others": make_level(19, (65, 0, 64, 63), (6,), groups=3),
    "only an empty node": make_level(20, (0,), (6,)),
    "no node": make_level(21, (), (6,)),
    "three families": make_level(22, (70,), (4, 4), families=3),
}


@each_engine
@pytest.mark.parametrize("name", LEVELS)
def test_sums_are_exact_and_bytes_those_of_the_twin(name, engine):
    case, found = LEVELS[name], exchange(LEVELS[name], engine)
    assert np.array_equal(found.decrypted, case.true_sums())
    if engine != "numpy":
        assert found.digests() == twin_digests(name)


@functools.cache
def twin_digests(name: str) -> dict[str, str]:
    return exchange(LEVELS[name], "numpy").digests()


@native_engine
@pytest.mark.parametrize("threads", [2, 3, 16])
def test_threads_change_no_byte(engine, threads):
    case = make_level(23, (500, 20, 130), (40, 9, 30), run=(256, 64, 64), groups=2)
    assert exchange(case, engine, threads).digests() == exchange(case, engine).digests()


def test_more_ciphertexts_than_are_held_at_a_time():
    """The kernel, whatever the engine, loads about a thousand runs together, in whole blocks."""
    case = make_level(24, (520 * 64, 510 * 64, 10), (3,))
    assert np.array_equal(exchange(case, engine_names()[0], threads=2).decrypted, case.true_sums())


# --- how large sums may be ------------------------------------------------------------------------------------------


def level_of(values: list[int], others: int = 0) -> LevelCase:
    """Rows of these values for g and their opposite for h, all in one bin of three; others are 0 in another bin."""
    rows = len(values) + others
    g = np.array(values + [0] * others, dtype=np.int64)
    bins = np.array([1] * len(values) + [2] * others, dtype=np.uint8)[:, None]
    end = np.array([rows])
    run = np.array([run_length(rows, 3)], dtype=np.int32)
    blocks = Blocks(np.arange(rows, dtype=np.int32), end * 0, end, run)
    values3 = np.stack((g, -g), axis=1)[None].astype(np.int32)
    zero = np.zeros(1, dtype=np.int32)
    return LevelCase(values3, [bins], zero, np.array([3], dtype=np.int32), blocks, zero)


def values_adding_up_to(total: int) -> list[int]:
    largest = 2**31 - 1
    return [largest] * (total // largest) + [total % largest]


@each_engine
def test_all_rows_in_one_bin_at_the_bound(engine):
    largest = level_of(values_adding_up_to(Sizes(57).largest_sum))
    assert largest.sizes == Sizes(57)
    found = exchange(largest, engine).decrypted
    assert np.array_equal(found, largest.true_sums())
    assert found[0, 1].tolist() == [Sizes(57).largest_sum, -Sizes(57).largest_sum]


@each_engine
@pytest.mark.parametrize("log_flood", [57, 60, 62])
def test_beyond_the_bound_sums_wrap_around(engine, log_flood):
    """Two beyond it: one is within the rounding of the bound itself."""
    sizes = Sizes(log_flood)
    at, beyond = (level_of(values_adding_up_to(sizes.largest_sum + more)) for more in (0, 2))
    assert np.array_equal(exchange(at, engine, sizes=sizes).decrypted, at.true_sums())
    assert not np.array_equal(exchange(beyond, engine, sizes=sizes).decrypted, beyond.true_sums())


@each_engine
def test_the_most_negative_value(engine):
    case = level_of([-(2**31) + 1] * 100, others=50)
    case.values[0, :100, 0] = -(2**31)
    assert np.array_equal(exchange(case, engine).decrypted, case.true_sums())


# --- choosing -------------------------------------------------------------------------------------------------------


def test_an_engine_is_chosen_by_name(monkeypatch):
    monkeypatch.delenv(ENGINE_VARIABLE, raising=False)
    assert chosen_engine() == "auto"
    for name in _native.lattice_engines():
        monkeypatch.setenv(ENGINE_VARIABLE, name)
        assert chosen_engine() == name
    monkeypatch.setenv(ENGINE_VARIABLE, "abacus")
    with pytest.raises(InvalidParameter, match="portable"):
        chosen_engine()


@each_engine
def test_other_noise_gives_other_bytes_and_the_same_sums(engine):
    case = make_level(25, (70,), (5,))
    secret, part = keys(case, engine)
    public = public_engine(2, case.seed("public key"), part, engine)
    first = exchange(case, engine)
    other = dataclasses.replace(case, names={"noise": "07" * 32})
    sums, masks, fits = encrypted_sums(other, public, first.ciphertext, case.sizes)
    assert fits
    assert not (sums == first.sums).any()
    assert np.mean(masks == first.masks) < 0.01
    out = np.zeros_like(first.decrypted)
    assert secret.decrypt(sums, masks, case.blocks.run, case.sizes.log_delta, out, 1)
    assert np.array_equal(out, case.true_sums())


# --- numbers that the holder of the ciphertexts adds ------------------------------------------------------------------


@each_engine
def test_what_is_added_leaves_the_very_bytes_that_larger_values_would(engine):
    """So the answer tells the new sum and nothing of what was added: the encryption's errors are the same bytes.

    One row of each slot carries what is added there. Noise that is rounded into the answer afterwards differs.
    """
    case = make_level(5, (300, 40), (9,), run=(128, 64))
    rng = np.random.default_rng(5)
    added = rng.integers(-(2**30), 2**30, (2, 2, case.slots))
    values = case.values.copy()
    for block, (begin, end) in enumerate(zip(case.blocks.begin, case.blocks.end, strict=True)):
        rows = case.blocks.rows[begin:end]
        slots, first = np.unique(case.bins[0][rows, 0], return_index=True)
        added[block, :, np.setdiff1d(np.arange(case.slots), slots)] = 0  # a slot without rows has nobody to carry it
        values[0, rows[first]] += added[block][:, slots].T.astype(np.int32)
    one = exchange(case, engine, added=added)
    other = exchange(dataclasses.replace(case, values=values), engine)
    assert np.array_equal(one.sums, other.sums)
    assert np.array_equal(one.masks, other.masks)
    assert np.array_equal(one.decrypted, case.true_sums() + added.transpose(0, 2, 1))


@each_engine
def test_added_numbers_may_be_as_large_as_a_sum(engine):
    case, sizes = make_level(6, (70,), (3, 2), bits=1), Sizes(57)
    most = sizes.largest_sum - 200
    added = np.array([most, -most, 1, 0, -1] * 2).reshape(1, 2, 5)
    found = exchange(case, engine, sizes=sizes, added=added)
    assert np.array_equal(found.decrypted, case.true_sums() + added.transpose(0, 2, 1))


@each_engine
def test_added_numbers_of_another_shape_are_refused(engine):
    case = make_level(6, (70,), (3, 2))
    with pytest.raises(ValueError):
        exchange(case, engine, added=np.zeros((1, 2, 4), dtype=np.int64))
