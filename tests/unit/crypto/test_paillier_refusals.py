"""Keys and ciphertexts that come from outside are looked at before they are used."""

from __future__ import annotations

import numpy as np
import pytest

from veilboost.crypto.csprng import Csprng
from veilboost.crypto.paillier.integers import halve, to_bytes
from veilboost.crypto.paillier.keys import check_public_key, generate_key
from veilboost.errors import InvalidParameter, MalformedMessage

pytestmark = pytest.mark.fast
KEY = generate_key(512, Csprng(b"refusals"), allow_insecure=True)
N, P = int(KEY.public.n), int(KEY.p)


def written(n: int, size: int = 64) -> np.ndarray:
    return to_bytes([n], size)[0]


def test_a_good_key_is_taken():
    assert check_public_key(KEY.public.to_bytes(), 512) == KEY.public


def prime_of(bits: int) -> int:
    from gmpy2 import next_prime

    return int(next_prime(3 << (bits - 2)))


@pytest.mark.parametrize(
    "modulus",
    [
        N - 1,  # even
        N >> 8 | 1,  # short
        0,
        1,
        prime_of(512),  # prime
        prime_of(256) ** 2,  # a square
        prime_of(128) ** 4,  # a fourth power
        3 * prime_of(510),  # a small factor
        65521 * prime_of(496),
    ],
    ids=["even", "short", "zero", "one", "prime", "square", "fourth power", "three", "small factor"],
)
def test_a_modulus_that_protects_nobody_is_refused(modulus):
    with pytest.raises(MalformedMessage):
        check_public_key(written(modulus), 512)


def test_a_key_of_another_size_is_refused():
    for bits in (1024, 2048):
        with pytest.raises(MalformedMessage):
            check_public_key(KEY.public.to_bytes(), bits)
    with pytest.raises(MalformedMessage):
        check_public_key(written(N, 65), 512)


@pytest.mark.parametrize("value", [0, N * N, N * N + 1, 2**1024 - 1], ids=["zero", "square", "above", "most"])
def test_a_ciphertext_out_of_range_is_refused(value):
    for read in (KEY.public.read, KEY.public.read_units):
        with pytest.raises(MalformedMessage):
            read(to_bytes([5, value], 128))


@pytest.mark.parametrize("value", [N, P, P * 12345, N * (N - 1)], ids=["n", "p", "of p", "of n"])
def test_a_ciphertext_that_is_no_unit_is_refused(value):
    rows = to_bytes([5, value, 7], 128)
    with pytest.raises(MalformedMessage):
        KEY.public.read_units(rows)
    with pytest.raises(MalformedMessage):
        halve(KEY.public.read(rows), KEY.public.n)


@pytest.mark.parametrize("shape", [(2, 127), (2, 129), (2, 0), (256,)])
def test_ciphertexts_of_another_width_are_refused(shape):
    with pytest.raises(MalformedMessage):
        KEY.public.read(np.ones(shape, dtype=np.uint8))


def test_no_ciphertexts_are_fine():
    assert KEY.public.read_units(np.empty((0, 128), dtype=np.uint8)) == []


@pytest.mark.parametrize("bits", [512, 1024])
def test_short_keys_must_be_asked_for(bits):
    with pytest.raises(InvalidParameter, match="protects nobody"):
        generate_key(bits, Csprng())


@pytest.mark.parametrize("bits", [0, 256, 2047, 4096])
def test_other_sizes_do_not_exist(bits):
    with pytest.raises(InvalidParameter):
        generate_key(bits, Csprng(), allow_insecure=True)
