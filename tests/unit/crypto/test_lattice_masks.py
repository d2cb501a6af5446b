"""Reusable masks: all engines write the twin's bytes, sums are exact, and answers show nothing but sums."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import masks_twin as twin
from lattice_ring import KeyStream, errors, rings, ternary
from lattices import seed_named
from masked_vectors import KEY, SECRET, SEED, Case, by_twin, case, digests, exchange, golden_cases
from veilboost import _native
from veilboost.crypto.lattice.keys import DEGREE, ENGINE_VARIABLE, FAMILIES, FLOOD_BITS, PRIMES
from veilboost.crypto.lattice.masks import (
    MOST_BITS,
    MaskOwner,
    MaskSizes,
    add_rows,
    answer,
    least_flood,
    make_masks,
    mask_sizes,
)
from veilboost.errors import MalformedMessage

pytestmark = pytest.mark.fast

GOLDEN = Path(__file__).parents[2] / "golden" / "masks.json"


# --- the same bytes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", golden_cases())
def test_the_twin_writes_the_bytes_on_file(name):
    assert digests(by_twin(golden_cases()[name])) == json.loads(GOLDEN.read_text())[name]


@pytest.mark.parametrize("engine", _native.lattice_engines())
@pytest.mark.parametrize("name", golden_cases())
def test_every_engine_writes_the_bytes_on_file(name, engine, monkeypatch):
    monkeypatch.setenv(ENGINE_VARIABLE, engine)
    assert digests(exchange(golden_cases()[name])) == json.loads(GOLDEN.read_text())[name]


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    rows=st.sampled_from([1, 2, 50, DEGREE, DEGREE + 1, 40_000]),
    widths=st.lists(st.sampled_from([1, 2, 5, 300]), min_size=1, max_size=3),
    bits=st.integers(1, 20),
    threads=st.integers(1, 2),
)
def test_sums_are_exact_whatever_the_sizes(seed, rows, widths, bits, threads):
    """More than 2^15 rows carry from the lower halves of numbers; bins of two bytes have a kernel of their own."""
    of = case(seed, rows, tuple(widths), bits)
    assert np.array_equal(exchange(of, threads)["decrypted"], of.true_sums())


def test_masks_in_pieces_are_the_same_masks():
    of = case(3, 90, (4, 3, 2))
    order = np.arange(90, dtype=np.int32)
    whole = make_masks(SEED, of.sizes, of.offsets, 0, 9, SECRET, 1, order, of.bins)
    first = make_masks(SEED, of.sizes, of.offsets, 0, 5, SECRET, 1, order, of.bins)
    second = make_masks(SEED, of.sizes, of.offsets, 5, 4, SECRET, 2, order, of.bins)
    for every, *parts in zip(whole, first, second, strict=True):
        assert np.array_equal(every, np.concatenate(parts))


def test_the_largest_sums_fit():
    sizes = mask_sizes(1000, 20, 4, 1)
    assert sizes is not None
    values = np.full((1000, FAMILIES), 1 << 20, dtype=np.int32)
    values[:, 1] *= -1
    offsets = np.array([0, 4], dtype=np.int32)
    of = Case(values, np.zeros((1000, 1), dtype=np.uint8), offsets, np.zeros((FAMILIES, 4), dtype=np.int64), sizes)
    assert np.array_equal(exchange(of)["decrypted"], of.true_sums())
    assert of.true_sums()[0].tolist() == [1000 << 20, -(1000 << 20)]


# --- noise ----------------------------------------------------------------------------------------------------------


def test_the_flood_covers_the_noise_that_was_measured():
    """The noise of every sum without its flood, read with all secrets: within the deviation that the flood assumes."""
    rows, widths = 6000, (40, 40)
    of = case(4, rows, widths)
    quiet = exchange(Case(of.values, of.bins, of.offsets, np.zeros_like(of.added), of.sizes))
    noise = np.array(unflooded_noise(of, quiet), dtype=np.float64)
    slots = len(of.slots)
    flood = least_flood(rows, slots, len(widths))
    assumed = 2.0 ** (flood + 1 - FLOOD_BITS) / (FAMILIES * slots)  # E|x| that fits this flood
    assert np.abs(noise).mean() < assumed
    assert np.abs(noise).mean() > assumed / 8, "the bound is not far from what happens"


def unflooded_noise(of: Case, quiet: dict[str, np.ndarray]) -> list[float]:
    """v + <unrounded mask, s> - delta sum, in units of a number: what the flood hides."""
    sizes, found = of.sizes, []
    dense = twin.as_numbers(quiet["dense"].reshape(len(of.bins), FAMILIES, -1))
    part = twin.as_numbers(quiet["part"])
    for slot in range(0, len(of.slots), 7):
        feature = int(np.searchsorted(of.offsets, slot, side="right")) - 1
        member = of.bins[:, feature] == slot - of.offsets[feature]
        mask = exact_mask(member, slot)
        for family in range(FAMILIES):
            secret = ternary(KeyStream(KEY, family)).astype(object)
            value = int(dense[member, family].sum()) + int((quiet["hiding"][slot].astype(object) * part[family]).sum())
            value -= int(of.values[member, family].astype(np.int64).sum()) << sizes.log_delta
            phase = (value * twin.Q + (int((mask * secret).sum()) << sizes.bits)) % (twin.Q << sizes.bits)
            phase -= (twin.Q << sizes.bits) if phase > (twin.Q << sizes.bits - 1) else 0
            found.append(phase / twin.Q)
    return found


def exact_mask(member: np.ndarray, slot: int) -> np.ndarray:
    """The mask of a slot before rounding, modulo q, as coefficients of the inner product."""
    source = KeyStream(SECRET, slot)
    error, u = errors(source), ternary(source)
    total = []
    for j, ring in enumerate(rings()):
        product = ring.multiply(ring.uniform(SEED, j), ring.forward(ring.residues(u)))
        for number, first in enumerate(range(0, len(member), DEGREE), start=1):
            rows = np.zeros(DEGREE, dtype=np.int64)
            rows[: len(member[first : first + DEGREE])] = member[first : first + DEGREE]
            a = ring.uniform(SEED, number * len(PRIMES) + j)
            product = ring.add(product, ring.multiply(a, ring.forward(ring.residues(twin.inverted(rows)))))
        total.append(ring.add(ring.inverse(product), ring.residues(error)).astype(object))
    p0, p1 = PRIMES
    whole = total[1] + p1 * ((total[0] - total[1]) * pow(p1, -1, p0) % p0)
    return np.concatenate((whole[:1], (-whole[:0:-1]) % twin.Q))


def test_sizes_follow_from_public_numbers():
    sizes = mask_sizes(24_000, 20, 384, 12)
    assert sizes == MaskSizes(53, 36)
    assert (sizes.bits, sizes.width, sizes.mask_bytes) == (91, 12, 6)
    assert sizes.vector_bytes(24_000) < 680_000
    assert sizes.largest_sum >= 24_000 << 20
    assert mask_sizes(24_000, 30, 384, 12) is None, "the sums would need more than 96 bits"
    assert least_flood(24_000, 3840, 120) > least_flood(24_000, 384, 12) > least_flood(100, 4, 1)


@pytest.mark.parametrize("sizes", [MaskSizes(-1, 36), MaskSizes(63, 20), MaskSizes(53, 5), MaskSizes(53, 42)])
def test_impossible_sizes_are_not_valid(sizes):
    assert not sizes.valid()


def test_a_decrypted_sum_is_wrong_less_than_once_in_2_to_the_40():
    """Flood, noise and the rounding of mask and answer stay below half of the scale: 16 deviations are left."""
    for sum_bits in range(12, 41):
        sizes = MaskSizes(53, sum_bits)
        unit = 2.0 ** (sizes.bits - 8 * sizes.mask_bytes)  # of the mask and the answer
        rounding = unit * math.sqrt(DEGREE * 2 / 3 / 12 + 1 / 12)
        noise = 2.0**14
        assert 2.0**sizes.log_flood + 16 * (rounding + noise) <= 2.0 ** (sizes.log_delta - 1)


# --- hiding ---------------------------------------------------------------------------------------------------------


def test_a_mask_shows_its_bin_unless_it_is_hidden():
    """The active party knows all a: from the mask without u it reads which rows are in the bin; with u it fails."""
    rows = 64
    rng = np.random.default_rng(5)
    bins = rng.integers(0, 2, (rows, 1)).astype(np.uint8)
    sizes, offsets = MaskSizes(53, 36), np.array([0, 2], dtype=np.int32)
    order = np.arange(rows, dtype=np.int32)
    masks, hiding = make_masks(SEED, sizes, offsets, 0, 2, SECRET, 1, order, bins)
    bits = 8 * sizes.mask_bytes
    sent = twin.as_numbers(np.ascontiguousarray(masks[1].T))
    # hiding = u(1/X), so the product with a'(1/X) is what was added to the sent coefficients.
    added = [
        ring.inverse(
            ring.multiply(
                ring.forward(ring.residues(twin.inverted(ring.inverse(ring.uniform(SEED, j)).astype(np.int64)))),
                ring.forward(ring.residues(hiding[1].astype(np.int64))),
            )
        )
        for j, ring in enumerate(rings())
    ]
    bare = (sent - twin.rounded(added, bits)) % 2**bits
    assert matching_rows(bare, bins[:, 0] == 1, bits)
    assert not matching_rows(sent, bins[:, 0] == 1, bits)


def matching_rows(mask: np.ndarray, member: np.ndarray, bits: int) -> bool:
    """Whether the mask is the one that these members give, up to small errors."""
    rows = np.zeros(DEGREE, dtype=np.int64)
    rows[: len(member)] = member
    made = []
    for j, ring in enumerate(rings()):
        a = ring.inverse(ring.uniform(SEED, len(PRIMES) + j)).astype(np.int64)
        turned = ring.forward(ring.residues(twin.inverted(a)))
        made.append(ring.inverse(ring.multiply(turned, ring.forward(ring.residues(rows)))))
    gap = (mask - twin.rounded(made, bits)) % 2**bits
    gap = np.minimum(gap, 2**bits - gap)
    return bool((gap.astype(np.float64) < 2.0**10).all())


def test_the_same_sums_twice_are_flooded_anew():
    of = case(6, 200, (8,))
    made = exchange(of)
    sums = add_rows(made["dense"], of.bins, of.offsets)
    first, second = (
        answer(sums, made["part"], of.slots, made["hiding"], of.sizes, seed_named(name), 1) for name in ("one", "two")
    )
    assert (first != second).all()


def test_an_answer_about_other_bins_is_refused():
    of = case(7, 30, (3,))
    owner, found = MaskOwner(SEED, 30, of.sizes), exchange(of)
    with pytest.raises(MalformedMessage):
        owner.decrypt(found["answer"][:, :2], of.slots, found["masks"], KEY, 1)


@pytest.mark.parametrize("bits", [MOST_BITS + 8, 40])
def test_the_kernel_refuses_impossible_sizes(bits):
    polynomials = _native.LatticeMasks(SEED, 10, "portable")
    width = -(-bits // 8)
    rows, part = np.empty((10, 2 * width), dtype=np.uint8), np.empty((2, DEGREE, width), dtype=np.uint8)
    with pytest.raises(ValueError, match="size"):
        polynomials.encrypt(np.zeros((10, 2), dtype=np.int32), KEY, 30, bits, rows, part, 1)
