"""The key's owner follows the protocol and studies what comes back: what of the bins does it see beyond their sums?"""

from __future__ import annotations

import numpy as np
import pytest

from lattice_ring import rings, to_first_prime, unpack
from lattice_twin import NumpyPublic
from lattices import encrypted_sums, engine_names, exchange, keys, make_level, public_engine, use_engine
from veilboost.crypto.csprng import Csprng
from veilboost.crypto.lattice.keys import DEGREE, PRIMES, PublicKey, SecretKey, Sizes

pytestmark = pytest.mark.fast
each_engine = pytest.mark.parametrize("engine", engine_names())
CASE = make_level(1, (64,), (64,))  # one run, one tile: every row in one of 64 slots
SLOT = CASE.bins[0][CASE.blocks.rows, 0].astype(np.int64)
BY_CHANCE = 6 / np.sqrt(DEGREE)  # a correlation that chance exceeds once in 10^9


def tile_of(slot) -> np.ndarray:
    """Spelled out from the definition in engine.h."""
    tile = np.zeros(DEGREE, dtype=np.int64)
    for row, b in enumerate(slot):
        tile[b * 64 + 63 - row] += 1
    return tile


def mask_of(exchanged_masks) -> np.ndarray:
    return unpack(exchanged_masks.reshape(1, -1))[0]


def quotient_by_the_known_half(second_half, ring, seed: bytes, j: int) -> np.ndarray:
    """What the owner can always compute: it chose `a`, so it divides by it."""
    a = ring.uniform(seed, j)
    inverse = np.array([pow(int(x), -1, ring.p) for x in a], dtype=np.uint64)
    return ring.inverse(ring.multiply(ring.forward(second_half), inverse))


def correlation(found, p: int) -> float:
    centred = np.where(found > p // 2, found.astype(np.float64) - p, found.astype(np.float64))
    return abs(np.corrcoef(centred, tile_of(SLOT))[0, 1])


# --- what re-randomisation is for -----------------------------------------------------------------------------------


def test_without_re_randomisation_the_owner_divides_and_reads_the_tile():
    for j, ring in enumerate(rings()):
        a = ring.uniform(CASE.seed("ciphertext"), j)
        second_half = ring.inverse(ring.multiply(a, ring.forward(ring.residues(tile_of(SLOT)))))
        found = quotient_by_the_known_half(second_half, ring, CASE.seed("ciphertext"), j)
        assert np.array_equal(found, tile_of(SLOT)), "every row's bin, exactly"


def test_with_re_randomisation_the_same_division_gives_nothing():
    """Before the modulus switch, where the attack above is at its strongest."""
    u, error = np.random.default_rng(5).integers(-1, 2, (2, DEGREE))
    for j, ring in enumerate(rings()):
        a, key = ring.uniform(CASE.seed("ciphertext"), j), ring.uniform(CASE.seed("public key"), j)
        product = ring.multiply(a, ring.forward(ring.residues(tile_of(SLOT))))
        hiding = ring.multiply(key, ring.forward(ring.residues(u)))
        second_half = ring.add(ring.inverse(ring.add(product, hiding)), ring.residues(error))
        found = quotient_by_the_known_half(second_half, ring, CASE.seed("ciphertext"), j)
        assert correlation(found, ring.p) < BY_CHANCE


@each_engine
def test_the_real_answer_gives_nothing(engine, monkeypatch):
    """Keys and masks from the system's generator, as at work."""
    use_engine(monkeypatch, engine)
    secret = SecretKey(Csprng())
    ciphertext = secret.encrypt(CASE.values, CASE.group, CASE.blocks, CASE.sizes, Csprng(), 1)
    public = PublicKey(secret.public_seed, secret.public_part)
    answer = public.sum(ciphertext, CASE.blocks, CASE.bins, CASE.group, CASE.starts, CASE.widths, CASE.sizes, threads=1)
    assert np.array_equal(secret.decrypt(answer, CASE.blocks.run, 64, CASE.sizes, 1), CASE.true_sums())
    ring = rings()[0]
    lifted = ring.scale(mask_of(answer.masks), PRIMES[1])  # undo the switch as far as it goes
    assert correlation(quotient_by_the_known_half(lifted, ring, ciphertext.seed, 0), ring.p) < BY_CHANCE


# --- guesses are not confirmed --------------------------------------------------------------------------------------


def answer_to_a_guess(slot) -> np.ndarray:
    """The mask that this tile would have without re-randomisation, after the switch."""
    tile = tile_of(slot)
    parts = [
        ring.inverse(ring.multiply(ring.uniform(CASE.seed("ciphertext"), j), ring.forward(ring.residues(tile))))
        for j, ring in enumerate(rings())
    ]
    return to_first_prime(parts[0], parts[1])


def far_from(mask, guess) -> float:
    """Mean distance on the circle of residues, as a share of the largest: 0 for the same, 1/2 for unrelated ones."""
    p = PRIMES[0]
    apart = (mask.astype(np.int64) - guess.astype(np.int64)) % p
    return float(np.minimum(apart, p - apart).mean() / (p / 2))


def guesses() -> tuple[np.ndarray, np.ndarray]:
    """The right tile, and one with a single row in another bin."""
    other = SLOT.copy()
    other[7] = (other[7] + 1) % 64
    return answer_to_a_guess(SLOT), answer_to_a_guess(other)


def test_a_key_with_a_zero_half_would_let_guesses_be_confirmed(monkeypatch):
    """Why the uniform half is expanded from a seed: an owner who may choose it as 0 switches the masking off."""
    _, part = keys(CASE, "numpy")
    public = NumpyPublic(2, CASE.seed("public key"), part)
    monkeypatch.setattr(public, "_key", [np.zeros_like(each) for each in public._key])
    _, masks, _ = encrypted_sums(CASE, public, exchange(CASE, "numpy").ciphertext, CASE.sizes)
    right, wrong = guesses()
    assert far_from(mask_of(masks), right) < 1e-12
    assert far_from(mask_of(masks), wrong) > 0.45


@each_engine
@pytest.mark.parametrize("zero_key", [False, True], ids=["an honest key", "a packed half of zeros"])
def test_an_answer_is_as_far_from_the_right_guess_as_from_any(engine, zero_key):
    _, part = keys(CASE, engine)
    public = public_engine(2, CASE.seed("public key"), part * 0 if zero_key else part, engine)
    _, masks, fits = encrypted_sums(CASE, public, exchange(CASE, engine).ciphertext, CASE.sizes)
    assert fits
    mask = mask_of(masks)
    for guess in guesses():
        # Uniform distances: mean 1/2, deviation 1/sqrt(12 N) = 0.0045.
        assert abs(far_from(mask, guess) - 0.5) < 6 / np.sqrt(12 * DEGREE)
    counts = np.bincount((mask >> np.uint64(46)).astype(np.int64), minlength=16)
    assert ((counts - DEGREE / 16) ** 2 / (DEGREE / 16)).sum() < 50, "chi-square of 15 degrees: once in 10^5"


# --- what flooding is for -------------------------------------------------------------------------------------------


def test_noise_that_depends_on_the_tile_is_as_small_as_reckoned_and_buried_by_the_flood(monkeypatch):
    """Seen before the modulus switch: c0 + c1 s - delta m, first without a flood, then with it."""
    seen: list[list[np.ndarray]] = []

    def watching(first, second):
        seen.append([first, second])
        return to_first_prime(first, second)

    monkeypatch.setattr("lattice_twin.to_first_prime", watching)
    secret, part = keys(CASE, "numpy")
    ciphertext = exchange(CASE, "numpy").ciphertext
    public = NumpyPublic(2, CASE.seed("public key"), part)
    noises = {}
    for log_flood in (0, CASE.sizes.log_flood):
        seen.clear()
        encrypted_sums(CASE, public, ciphertext, Sizes(log_flood))
        noises[log_flood] = noise_of(seen, secret)
    expected = 3.24 * np.sqrt(64 + 2 * DEGREE * 2 / 3)  # what sizes_for reckons with
    assert 0.8 * expected < noises[0].std() < 1.2 * expected
    largest = 1 << CASE.sizes.log_flood
    assert 0.5 * largest < np.abs(noises[CASE.sizes.log_flood]).max() < 1.01 * largest


def noise_of(seen, secret) -> np.ndarray:
    """c0 + c1 s - delta m at the wanted coefficients, modulo both primes, put together."""
    wanted, mask = seen
    true = CASE.true_sums()[0].T.astype(object) << CASE.sizes.log_delta
    by_prime = []
    for j, ring in enumerate(rings()):
        product = ring.inverse(ring.multiply(ring.forward(mask[j]), secret._secret[j]))
        by_prime.append((wanted[j].astype(object) + product[:, 63::64].astype(object) - true) % ring.p)
    p0, p1 = PRIMES
    joined = by_prime[1] + p1 * ((by_prime[0] - by_prime[1]) * pow(p1, -1, p0) % p0)
    return np.where(joined > p0 * p1 // 2, joined - p0 * p1, joined).astype(np.float64)
