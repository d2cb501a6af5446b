"""What does not fit is refused at every door, by every engine; what fits but means nothing does no harm."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lattices import (
    NOTHING,
    LevelCase,
    encrypt,
    encrypted_sums,
    engine_names,
    exchange,
    keys,
    make_level,
    public_engine,
    secret_engine,
    seed_named,
    use_engine,
)
from veilboost.crypto.csprng import Csprng
from veilboost.crypto.lattice.keys import (
    POLYNOMIAL_BYTES,
    PRIMES,
    Blocks,
    Ciphertext,
    EncryptedSums,
    PublicKey,
    SecretKey,
    Sizes,
)
from veilboost.errors import MalformedMessage

pytestmark = pytest.mark.fast
each_engine = pytest.mark.parametrize("engine", engine_names())
CASE = make_level(1, (70, 20), (6, 5))


def with_residue(packed: np.ndarray, polynomial: int, place: int, value: int) -> np.ndarray:
    """One residue of fifty bits replaced."""
    bits = np.unpackbits(packed, bitorder="little")
    at = (polynomial * POLYNOMIAL_BYTES * 8) + place * 50
    bits[at : at + 50] = [value >> bit & 1 for bit in range(50)]
    return np.packbits(bits, bitorder="little")


def public_of(engine: str):
    secret, part = keys(CASE, engine)
    return secret, public_engine(2, CASE.seed("public key"), part, engine)


# --- residues out of range ------------------------------------------------------------------------------------------


@each_engine
@pytest.mark.parametrize("j", [0, 1])
@pytest.mark.parametrize("place", [0, 1, 4095])
def test_residues_are_below_their_prime_in_keys_and_ciphertexts(engine, j, place, monkeypatch):
    use_engine(monkeypatch, engine)
    secret, part = keys(CASE, engine)
    seed = CASE.seed("public key")
    ciphertext = encrypt(CASE, secret, CASE.sizes)
    last = len(ciphertext) // POLYNOMIAL_BYTES - 2 + j
    public = public_engine(2, seed, with_residue(part, 2 + j, place, PRIMES[j] - 1), engine)
    assert encrypted_sums(CASE, public, with_residue(ciphertext, last, place, PRIMES[j] - 1), Sizes(57))[2]
    for beyond in (PRIMES[j], 2**50 - 1):
        with pytest.raises(ValueError, match="range"):
            public_engine(2, seed, with_residue(part, 2 + j, place, beyond), engine)
        with pytest.raises(MalformedMessage):
            PublicKey(seed, with_residue(part, j, place, beyond))
        assert not encrypted_sums(CASE, public, with_residue(ciphertext, last, place, beyond), Sizes(57))[2]


@each_engine
def test_residues_of_answers_are_below_the_first_prime(engine):
    found, (secret, _) = exchange(CASE, engine), public_of(engine)
    run, log_delta, out = CASE.blocks.run, CASE.sizes.log_delta, np.empty_like(found.decrypted)
    for place in (0, 77, 4095):
        masks = with_residue(found.masks, 1, place, PRIMES[0] - 1)
        assert secret.decrypt(found.sums, masks, run, log_delta, out, 1)
        assert not secret.decrypt(found.sums, with_residue(masks, 1, place, PRIMES[0]), run, log_delta, out, 1)
    for value in (PRIMES[0], 2**50, 2**64 - 1):
        sums = found.sums.copy()
        sums[1, 1, 10] = value
        assert not secret.decrypt(sums, found.masks, run, log_delta, out, 1)


# --- sizes ----------------------------------------------------------------------------------------------------------


@each_engine
def test_seeds_have_32_bytes(engine):
    secret, public = public_of(engine)
    for seed in (b"", bytes(31), bytes(33)):
        with pytest.raises(ValueError):
            secret_engine(2, seed, engine)
        with pytest.raises(ValueError):
            secret.public_key(seed, np.empty(4 * POLYNOMIAL_BYTES, dtype=np.uint8))
        with pytest.raises(ValueError):
            public_engine(2, seed, np.zeros(4 * POLYNOMIAL_BYTES, dtype=np.uint8), engine)
        for name in ("ciphertext", "errors"):
            with pytest.raises(ValueError):
                encrypt(renamed(name, seed), secret, CASE.sizes)
        for name in ("ciphertext", "noise"):
            with pytest.raises(ValueError):
                encrypted_sums(renamed(name, seed), public, encrypt(CASE, secret, CASE.sizes), Sizes(57))


def renamed(name: str, seed: bytes) -> LevelCase:
    return dataclasses.replace(CASE, names={name: seed.hex()})


def with_blocks(**changed) -> LevelCase:
    return dataclasses.replace(CASE, blocks=dataclasses.replace(CASE.blocks, **changed))


@each_engine
@pytest.mark.parametrize("run", [0, 1, 32, 63, 65, 96, 8192, -64, -(2**31)])
def test_runs_are_powers_of_two_in_range(engine, run):
    secret, public = public_of(engine)
    ciphertext = encrypt(CASE, secret, CASE.sizes)
    runs = np.array([64, run], dtype=np.int32)
    out = np.zeros((2, 11, 2), dtype=np.int64)
    with pytest.raises(ValueError):
        secret.decrypt(np.zeros((2, 2, 11), dtype=np.uint64), np.zeros(0, dtype=np.uint8), runs, 59, out, 1)
    blocks = CASE.blocks
    sums, masks = np.zeros((2, 2, 11), dtype=np.uint64), np.zeros(2 * POLYNOMIAL_BYTES, dtype=np.uint8)
    with pytest.raises(ValueError):
        public.sum(
            ciphertext, bytes(32), list(CASE.bins), CASE.group, blocks.rows, blocks.begin, blocks.end, runs,
            CASE.starts, CASE.widths, 57, 59, NOTHING, bytes(32), sums, masks, 1,
        )  # fmt: skip
    with pytest.raises(MalformedMessage):
        with_blocks(run=runs).blocks.check()


@each_engine
@pytest.mark.parametrize(
    "changed",
    [
        {"end": np.array([70, 91])},
        {"begin": np.array([-1, 70])},
        {"begin": np.array([0, 91]), "end": np.array([70, 90])},
        {"end": np.array([70])},
    ],
    ids=["beyond the rows", "before the rows", "backwards", "missing"],
)
def test_blocks_lie_among_the_rows(engine, changed):
    secret, public = public_of(engine)
    honest = encrypt(CASE, secret, CASE.sizes)
    out = np.empty_like(honest)
    blocks = with_blocks(**changed).blocks
    with pytest.raises(ValueError):
        secret.encrypt(
            CASE.values, CASE.group, blocks.rows, blocks.begin, blocks.end, blocks.run, 59, bytes(32), bytes(32), out, 1
        )
    with pytest.raises(ValueError):
        public.sum(
            honest, bytes(32), list(CASE.bins), CASE.group, blocks.rows, blocks.begin, blocks.end, blocks.run,
            CASE.starts, CASE.widths, 57, 59, NOTHING, bytes(32), np.zeros((2, 2, 11), dtype=np.uint64),
            np.zeros(2 * POLYNOMIAL_BYTES, dtype=np.uint8), 1,
        )  # fmt: skip


@each_engine
def test_arrays_of_other_sizes(engine):
    secret, public = public_of(engine)
    ciphertext = encrypt(CASE, secret, CASE.sizes)
    with pytest.raises(ValueError):
        secret.public_key(bytes(32), np.empty(4 * POLYNOMIAL_BYTES - 1, dtype=np.uint8))
    with pytest.raises(ValueError):
        public_engine(2, bytes(32), np.zeros(4 * POLYNOMIAL_BYTES + 1, dtype=np.uint8), engine)
    for wrong in (ciphertext[:-1], ciphertext[: 4 * POLYNOMIAL_BYTES], np.append(ciphertext, np.uint8(0))):
        with pytest.raises(ValueError):
            encrypted_sums(CASE, public, wrong, Sizes(57))
    with pytest.raises(ValueError):
        encrypted_sums(dataclasses.replace(CASE, bins=[CASE.bins[0][:, :1].copy()]), public, ciphertext, Sizes(57))
    with pytest.raises(ValueError):
        encrypted_sums(CASE, public, ciphertext, Sizes(63))
    found = exchange(CASE, engine)
    for sums, masks in (
        (found.sums[:1], found.masks),
        (found.sums, found.masks[:-1]),
        (found.sums[:, :1], found.masks),
    ):
        with pytest.raises(ValueError):
            secret.decrypt(np.ascontiguousarray(sums), masks, CASE.blocks.run, 59, np.empty_like(found.decrypted), 1)


def test_keys_refuse_messages_of_other_sizes():
    secret = SecretKey(Csprng(b"refusals"))
    public = PublicKey(secret.public_seed, secret.public_part)
    honest = secret.encrypt(CASE.values, CASE.group, CASE.blocks, CASE.sizes, Csprng(b"level"), 1)

    def summed(ciphertext: Ciphertext, blocks: Blocks = CASE.blocks) -> EncryptedSums:
        return public.sum(ciphertext, blocks, CASE.bins, CASE.group, CASE.starts, CASE.widths, CASE.sizes, 1)

    answer, run = summed(honest), CASE.blocks.run
    assert np.array_equal(secret.decrypt(answer, run, 11, CASE.sizes, 1), CASE.true_sums())
    for seed, part in ((b"", secret.public_part), (bytes(32), secret.public_part[:-1])):
        with pytest.raises(MalformedMessage):
            PublicKey(seed, part)
    for wrong in (Ciphertext(bytes(31), honest.packed), Ciphertext(honest.seed, honest.packed[:-1])):
        with pytest.raises(MalformedMessage):
            summed(wrong)
    with pytest.raises(MalformedMessage):
        summed(Ciphertext(honest.seed, with_residue(honest.packed, 0, 0, 2**50 - 1)))
    for altered in (
        EncryptedSums(answer.sums[:1], answer.masks),
        EncryptedSums(answer.sums[:, :, :10], answer.masks),
        EncryptedSums(answer.sums, answer.masks[:-1]),
        EncryptedSums(answer.sums + np.uint64(2**50), answer.masks),
        EncryptedSums(answer.sums, np.full_like(answer.masks, 255)),
    ):
        with pytest.raises(MalformedMessage):
            secret.decrypt(altered, run, 11, CASE.sizes, 1)


# --- bytes that mean nothing ----------------------------------------------------------------------------------------


def noise_bytes(size: int):
    """Mostly random bytes, with stretches of the largest: those are out of range."""
    made = st.builds(
        lambda seed, ones, at: np.where(
            (np.arange(size) - at) % size < ones, 255, np.random.default_rng(seed).integers(0, 256, size)
        ).astype(np.uint8),
        st.integers(0, 2**32),
        st.sampled_from([0, 1, 6, 7, 30]),
        st.integers(0, size - 1),
    )
    return made | st.sampled_from([np.zeros(size, dtype=np.uint8), np.full(size, 255, dtype=np.uint8)])


@each_engine
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_random_bytes_are_refused_or_give_meaningless_sums(engine, data):
    secret, public = public_of(engine)
    try:
        key = public_engine(2, seed_named("any"), data.draw(noise_bytes(4 * POLYNOMIAL_BYTES)), engine)
    except ValueError:
        key = public
    sums, masks, _ = encrypted_sums(CASE, key, data.draw(noise_bytes(CASE.blocks.ciphertext_bytes())), Sizes(57))
    out = np.zeros((2, 11, 2), dtype=np.int64)
    secret.decrypt(sums, masks, CASE.blocks.run, 59, out, 1)
    secret.decrypt(
        np.frombuffer(data.draw(st.binary(min_size=352, max_size=352)), dtype=np.uint64).reshape(2, 2, 11),
        data.draw(noise_bytes(2 * POLYNOMIAL_BYTES)),
        CASE.blocks.run,
        Sizes(57).log_delta,
        out,
        1,
    )
    assert np.abs(out).max() <= Sizes(57).largest_sum + 2, "within what a residue can say"
