"""Dense ciphertexts: every engine against the others, against bytes kept in a file, and against plain sums."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import expansion_twin
from expansion_twin import NumpyExpansionPublic, divided_by_special, joined, rings, to_first_prime
from expansions import (
    depths,
    encrypt,
    encrypted_sums,
    exchange,
    golden_levels,
    key_bytes,
    keys,
    public_engine,
    sizes_of,
)
from lattices import LevelCase, engine_names, make_level
from veilboost import _native
from veilboost.crypto.csprng import Csprng
from veilboost.crypto.lattice.expansion import (
    DEGREE,
    KEY_BYTES,
    LEAST_RUN,
    MOST_BITS,
    MOST_DEPTH,
    MOST_RUN,
    POLYNOMIAL_BYTES,
    PRIMES,
    ROOTS,
    ROW_BYTES,
    DensePublicKey,
    DenseSecretKey,
    DenseSizes,
    DenseSums,
    check_runs,
    dense_run,
    log_flood,
    sizes_for_flood,
    sizes_for_sum,
)
from veilboost.crypto.lattice.keys import ERROR_SIGMA, Blocks, Ciphertext
from veilboost.errors import MalformedMessage

pytestmark = pytest.mark.fast
GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "expansion.json").read_text(encoding="utf-8"))
each_engine = pytest.mark.parametrize("engine", engine_names())
native_engine = pytest.mark.parametrize("engine", _native.lattice_engines())


# --- the same bytes everywhere --------------------------------------------------------------------------------------


@each_engine
@pytest.mark.parametrize("name", list(GOLDEN))
def test_bytes_and_sums_are_those_on_file(name, engine):
    case = golden_levels()[name]
    found = exchange(case, engine)
    assert found.digests() == GOLDEN[name]["sha256"]
    assert found.decrypted.tolist() == GOLDEN[name]["sums"] == case.true_sums().tolist()


LEVELS = {
    "one row of one bin": make_level(10, (1,), (1,), run=4096, bits=12),
    "more than 256 bins": make_level(11, (40,), (300, 4), run=64, bits=12),
    "runs of three lengths": make_level(12, (500, 30, 130), (7, 9), run=(512, 1024, 128), bits=12, shuffled=True),
}


@native_engine
@pytest.mark.parametrize("name", LEVELS)
def test_sums_are_exact_and_bytes_those_of_the_twin(name, engine):
    found = exchange(LEVELS[name], engine)
    assert np.array_equal(found.decrypted, LEVELS[name].true_sums())
    assert found.digests() == twin_digests(name)


@functools.cache
def twin_digests(name: str) -> dict[str, str]:
    return exchange(LEVELS[name], "numpy").digests()


MANY = make_level(13, (9000, 0, 333, 8192, 50), (40, 9, 30), run=(128, 64, 64, 128, 32), groups=2, bits=12)


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_change_no_byte(threads):
    """Three ciphertexts, and runs of one block in two of them."""
    engine = _native.lattice_engines()[0]
    one, other = exchange(MANY, engine), exchange(MANY, engine, threads)
    assert one.digests() == other.digests()
    assert np.array_equal(one.decrypted, MANY.true_sums())


def test_more_slots_than_a_line_holds_and_no_slots():
    engine = _native.lattice_engines()[0]
    for widths, rows in (((70, 20), (5, 9, 1)), ((), (70, 3))):
        case = make_level(14, rows, widths, run=4096 if widths else 64, bits=12)
        assert np.array_equal(exchange(case, engine, threads=2).decrypted, case.true_sums())


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_any_blocks_of_any_runs_in_any_bins(data):
    rows = data.draw(st.lists(st.integers(0, 300), min_size=1, max_size=4))
    widths = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=5))
    run = data.draw(st.lists(st.sampled_from([32, 64, 256, 1024]), min_size=len(rows), max_size=len(rows)))
    case = make_level(data.draw(st.integers(0, 999)), rows, widths, run=run, bits=12, shuffled=True)
    skewed = [(each * data.draw(st.integers(0, 1))).astype(each.dtype) for each in case.bins]  # or all in the first bin
    case = replace(case, bins=skewed)
    for engine in _native.lattice_engines()[:1]:
        assert np.array_equal(exchange(case, engine).decrypted, case.true_sums())


# --- sizes ----------------------------------------------------------------------------------------------------------


def test_the_modulus_with_the_special_prime_stays_below_the_bound_of_the_guidelines():
    """Guidelines of 2024: N = 8192, ternary secret, 128 bits (classical), log2 of the modulus up to 214."""
    assert math.prod(PRIMES).bit_length() == 150
    for p, root in zip(PRIMES, ROOTS, strict=True):
        assert pow(root, DEGREE, p) == p - 1
        assert p % (2 * DEGREE) == 1
        assert 2**50 - 2**21 < p < 2**50
        assert all(pow(base, p - 1, p) == 1 for base in (2, 3, 5, 7))
    assert KEY_BYTES == key_bytes(MOST_DEPTH) == 5_120_000


@given(st.integers(1, 2**37))
def test_answers_have_as_few_bits_as_the_sums_need_and_room_for_their_errors(largest):
    """Nine deviations from rounding beside the flood: wrong less than once in 2^60."""
    sizes = sizes_for_sum(largest)
    if sizes is None:
        assert DenseSizes((math.prod(PRIMES[:2]) // 2 // (largest + 1)).bit_length() - 1).bits > MOST_BITS
        return
    assert sizes.largest_sum >= largest
    assert DenseSizes(sizes.log_delta + 1).largest_sum < largest
    unit = math.prod(PRIMES[:2]) / 2**sizes.bits
    rounding = unit * math.sqrt((DEGREE * 2 / 3 + 1) / 12)
    switch = PRIMES[1] * math.sqrt((DEGREE * 2 / 3 + 1) / 12)
    left = 2 ** (sizes.log_delta - 1) - 2**sizes.most_log_flood
    assert math.erfc(left / math.hypot(rounding, switch) / math.sqrt(2)) < 2**-60


@given(st.integers(20, 90))
def test_the_smallest_scale_beside_a_flood_leaves_most_room_for_sums(flood):
    sizes = sizes_for_flood(flood)
    assert sizes.most_log_flood >= flood
    assert sizes.valid()
    assert sizes.bits == MOST_BITS or sizes.most_log_flood == flood


def level_of(total: int) -> LevelCase:
    """Rows in one bin of three whose g add up to `total` and whose h to its opposite."""
    largest = 2**31 - 1
    g = np.array([largest] * (total // largest) + [total % largest], dtype=np.int64)
    end, zero = np.array([len(g)]), np.zeros(1, dtype=np.int32)
    blocks = Blocks(np.arange(len(g), dtype=np.int32), end * 0, end, np.array([1024], dtype=np.int32))
    bins = np.ones((len(g), 1), dtype=np.uint8)
    return LevelCase(
        np.stack((g, -g), axis=1)[None].astype(np.int32), [bins], zero, np.array([3], dtype=np.int32), blocks, zero
    )


@native_engine
@pytest.mark.parametrize("log_delta", [63, 71, 80])
def test_sums_are_exact_up_to_the_bound_and_wrap_around_beyond(engine, log_delta):
    sizes = DenseSizes(log_delta)
    at, beyond = level_of(sizes.largest_sum), level_of(sizes.largest_sum + 3)
    assert np.array_equal(exchange(at, engine, sizes=sizes).decrypted, at.true_sums())
    assert not np.array_equal(exchange(beyond, engine, sizes=sizes).decrypted, beyond.true_sums())


@given(st.integers(1, 10**6), st.integers(1, 5000), st.integers(1, 500), st.sampled_from([32, 128, 4096]))
def test_an_answer_is_within_2_to_the_minus_40_and_no_more_is_flooded_than_needed(rows, slots, features, run):
    """Worked out again for one block: uniform noise on 2B integers hides x up to |x| / 2B."""
    end = np.array([rows])
    flood = log_flood(Blocks(end.astype(np.int32), end * 0, end, np.array([run], dtype=np.int32)), slots, features)
    spread = DEGREE / run
    switch = 2 * DEGREE * (ERROR_SIGMA**2 / 12) + DEGREE / 18
    variance = (
        rows * features / slots * spread**2 * (ERROR_SIGMA**2 + switch) + 4 / 3 * DEGREE * ERROR_SIGMA**2 + DEGREE / 18
    )
    distance = 2 * slots * math.sqrt(variance * 2 / math.pi) / 2 ** (flood + 1)
    assert 2**-41.01 < distance < 2**-39.99


def test_runs_are_powers_of_two_that_grow_with_rows_and_shrink_with_slots():
    runs = [dense_run(rows, 384, 30, 4000) for rows in (0, 100, 400, 3000, 50_000, 10**9)]
    assert runs == sorted(runs)
    assert runs[0] == LEAST_RUN
    assert dense_run(10**9, 1, 30, 4000) == MOST_RUN
    assert dense_run(3000, 5000, 30, 4000) < dense_run(3000, 384, 30, 4000) < dense_run(3000, 10, 30, 4000)
    assert dense_run(3000, 384, 30, leaf_bytes=100) < dense_run(3000, 384, 30, leaf_bytes=4000)


# --- what the owner sees --------------------------------------------------------------------------------------------

SEEN = make_level(3, (250,), (32, 32), run=256, bits=12)  # one run, two full tiles
SLOT = SEEN.bins[0][SEEN.blocks.rows].astype(np.int64) + SEEN.starts


@functools.cache
def watched() -> tuple[NumpyExpansionPublic, object, list[list[np.ndarray]]]:
    """The twin's sums without a flood, and what it switched down: for every tile the mask and the wanted numbers."""
    seen: list[list[np.ndarray]] = []

    def watching(by_prime):
        seen.append(list(by_prime))
        return to_first_prime(by_prime)

    secret, part = keys(SEEN, "numpy")
    public = NumpyExpansionPublic(SEEN.seed("public key"), part, 5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expansion_twin, "to_first_prime", watching)
        encrypted_sums(SEEN, public, encrypt(SEEN, secret, sizes_of(SEEN)), sizes_of(SEEN), flood=0)
    return public, secret, seen


def test_noise_is_as_large_as_reckoned():
    """c0 + c1 s - delta m before the flood. Two tiles of two families: 128 numbers."""
    _, secret, seen = watched()
    true, noises = SEEN.true_sums()[0].T.astype(object) << sizes_of(SEEN).log_delta, []
    for tile, (mask, wanted) in enumerate(zip(seen[::2], seen[1::2], strict=True)):
        by_prime = [
            ring.add(wanted[j], ring.inverse(ring.multiply(ring.forward(mask[j]), secret.secret[j]))[:, :32])
            for j, ring in enumerate(rings()[:2])
        ]
        noises.append(joined(by_prime) - true[:, 32 * tile : 32 * (tile + 1)])
    found = np.sqrt(np.mean(np.array(noises).astype(np.float64) ** 2))
    flood = log_flood(SEEN.blocks, SEEN.slots, 2)
    reckoned = 2 ** (flood - 39) / (2 * SEEN.slots * math.sqrt(2 / math.pi))  # an upper bound, up to a factor of two
    assert 0.3 * reckoned < found < reckoned


def tile_of(tile: int) -> np.ndarray:
    """Spelled out from the definition in expansion_engine.h."""
    polynomial = np.zeros(DEGREE, dtype=np.int64)
    for row, slots in enumerate(SLOT):
        for b in slots[slots // 32 == tile] % 32:
            exponent = int(b) - 32 * row
            polynomial[exponent % DEGREE] += -1 if exponent < 0 else 1
    return polynomial


def test_without_re_randomisation_the_owner_divides_and_reads_the_tile_and_with_it_nothing():
    """The owner knows the seeds and the keys, so it expands the mask itself and divides by it."""
    public, _, seen = watched()
    run = expansion_twin._runs(SEEN.blocks.begin, SEEN.blocks.end, depths(SEEN))[0]
    mask = [ring.inverse(ring.uniform(SEEN.seed("ciphertext"), j)) for j, ring in enumerate(rings()[:2])]
    nothing = [np.zeros((2, DEGREE), dtype=np.uint64) for _ in PRIMES]
    leaf = [each[2] for each in public.leaf(run, nothing, mask)]
    ring, own = rings()[0], divided_by_special(leaf)[0]
    inverse = np.array([pow(int(x), -1, ring.p) for x in ring.forward(own)], dtype=np.uint64)
    bare = ring.multiply(ring.forward(own), ring.forward(ring.residues(tile_of(0))))
    assert np.array_equal(ring.inverse(ring.multiply(bare, inverse)), ring.residues(tile_of(0)))
    found = ring.inverse(ring.multiply(ring.forward(seen[0][0]), inverse)).astype(np.float64)
    correlation = np.corrcoef(np.where(found > ring.p / 2, found - ring.p, found), tile_of(0))[0, 1]
    assert abs(correlation) < 6 / math.sqrt(DEGREE), "chance exceeds it once in 10^9"


@native_engine
def test_what_is_added_leaves_the_very_bytes_that_larger_values_would(engine):
    """So the answer tells only the new sum. One row of each slot carries what is added there."""
    case = make_level(5, (300, 90), (9,), run=(256, 512), bits=10)
    added = np.random.default_rng(5).integers(-1000, 1000, (2, 2, case.slots))
    values = case.values.copy()
    for block, (begin, end) in enumerate(zip(case.blocks.begin, case.blocks.end, strict=True)):
        rows = case.blocks.rows[begin:end]
        slots, first = np.unique(case.bins[0][rows, 0], return_index=True)
        assert len(slots) == case.slots
        values[0, rows[first]] += added[block].T.astype(np.int32)
    one, other = exchange(case, engine, added=added), exchange(replace(case, values=values), engine)
    assert np.array_equal(one.sums, other.sums)
    assert np.array_equal(one.masks, other.masks)
    assert np.array_equal(one.decrypted, case.true_sums() + added.transpose(0, 2, 1))


# --- what a peer sends ----------------------------------------------------------------------------------------------


@functools.cache
def owner() -> DenseSecretKey:
    return DenseSecretKey(Csprng())


@functools.cache
def receiver() -> DensePublicKey:
    return DensePublicKey(owner().public_seed, owner().public_part)


CASE = make_level(6, (100, 30), (20, 3), run=(64, 32), bits=12)


def answer(ciphertext: Ciphertext, sizes: DenseSizes, blocks: Blocks = CASE.blocks) -> DenseSums:
    return receiver().sum(ciphertext, blocks, CASE.bins, CASE.group, CASE.starts, CASE.widths, sizes, threads=1)


def encrypted() -> Ciphertext:
    seed, noise = Csprng().bytes(32), Csprng().bytes(32)
    return Ciphertext(seed, owner().encrypt_with(seed, noise, CASE.values, CASE.group, CASE.blocks, sizes_of(CASE), 1))


def test_keys_of_a_job_sum_exactly():
    sizes, run = sizes_of(CASE), CASE.blocks.run
    ciphertext = encrypted()
    assert len(ciphertext.packed) == ROW_BYTES * 130
    found = answer(ciphertext, sizes)
    assert np.array_equal(owner().decrypt(found, run, CASE.slots, sizes, 1), CASE.true_sums())
    again = answer(ciphertext, sizes)
    assert not np.array_equal(found.masks, again.masks), "masks and floods are fresh with every answer"


def test_answers_of_another_size_are_refused():
    sizes, run = sizes_of(CASE), CASE.blocks.run
    found = answer(encrypted(), sizes)
    for wrong in (DenseSums(found.sums[1:], found.masks), DenseSums(found.sums, found.masks[1:])):
        with pytest.raises(MalformedMessage, match="other nodes or bins"):
            owner().decrypt(wrong, run, CASE.slots, sizes, 1)


def test_ciphertexts_of_another_size_or_out_of_range_are_refused():
    ciphertext, sizes = encrypted(), sizes_of(CASE)
    with pytest.raises(MalformedMessage, match="another number of rows"):
        answer(Ciphertext(ciphertext.seed, ciphertext.packed[:-1]), sizes)
    with pytest.raises(MalformedMessage, match="another number of rows"):
        answer(Ciphertext(ciphertext.seed[:-1], ciphertext.packed), sizes)
    for row in (0, 129):
        packed = ciphertext.packed.copy()
        packed[ROW_BYTES * row : ROW_BYTES * row + 7] = 255
        with pytest.raises(MalformedMessage, match="out of range"):
            answer(Ciphertext(ciphertext.seed, packed), sizes)


def test_a_scale_without_room_for_the_flood_is_refused():
    needed = log_flood(CASE.blocks, CASE.slots, 2)
    with pytest.raises(MalformedMessage, match="no room to flood"):
        answer(encrypted(), DenseSizes(needed + 2))


@pytest.mark.parametrize("run", [0, 16, 48, 8192, -64])
def test_runs_of_an_invalid_length_are_refused(run):
    with pytest.raises(MalformedMessage, match="invalid length"):
        check_runs(replace(CASE.blocks, run=np.array([64, run], dtype=np.int32)))


@pytest.mark.parametrize("place", [0, 3 * POLYNOMIAL_BYTES, 4 * POLYNOMIAL_BYTES, KEY_BYTES - 25])
def test_keys_of_another_size_or_out_of_range_are_refused(place):
    part = owner().public_part.copy()
    part[place : place + 7] = 255
    with pytest.raises(MalformedMessage, match="out of range"):
        DensePublicKey(owner().public_seed, part)
    with pytest.raises(MalformedMessage, match="another size"):
        DensePublicKey(owner().public_seed, part[:-1])
    with pytest.raises(MalformedMessage, match="another size"):
        DensePublicKey(owner().public_seed[1:], part)


@native_engine
def test_the_kernel_refuses_arrays_that_do_not_fit_together(engine):
    case, sizes = golden_levels()["two tiles"], sizes_of(golden_levels()["two tiles"])
    secret, part = keys(case, engine)
    ciphertext = encrypt(case, secret, sizes)
    public = public_engine(case.seed("public key"), part, 5, engine)
    with pytest.raises(ValueError):
        encrypted_sums(case, public, ciphertext[1:], sizes)
    with pytest.raises(ValueError):
        encrypted_sums(case, public, ciphertext, sizes, added=np.zeros((1, 2, 3), dtype=np.int64))
    shallow = public_engine(case.seed("public key"), part[: key_bytes(4)], 4, engine)
    with pytest.raises(ValueError, match="no key for a depth"):
        encrypted_sums(case, shallow, ciphertext, sizes)
    beyond = replace(case.blocks, end=case.blocks.end + 100)
    with pytest.raises(ValueError):
        encrypt(replace(case, blocks=beyond), secret, sizes)
