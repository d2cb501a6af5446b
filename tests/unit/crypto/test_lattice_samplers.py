"""The samplers' distributions, with fixed seeds; the engines share them byte for byte."""

from __future__ import annotations

import numpy as np
import pytest

from lattice_ring import KeyStream, errors, flood, pack, rings, ternary, unpack
from lattices import seed_named
from veilboost.crypto.lattice.keys import DEGREE, ERROR_COINS, ERROR_SIGMA, POLYNOMIAL_BYTES

pytestmark = pytest.mark.fast
KEY = seed_named("samplers")
STREAMS = range(16)
MANY = len(STREAMS) * DEGREE


def test_the_key_stream_is_that_of_rfc_8439():
    """Section 2.4.2's key and nonce cannot be asked for (ours ends in zeros): appendix A.1, vectors 1 and 2."""
    words = KeyStream(bytes(32), 0).words(16)
    assert words[:2].astype("<u8").tobytes().hex() == "76b8e0ada0f13d90405d6ae55386bd28"
    assert words[8:10].astype("<u8").tobytes().hex() == "9f07e7be5551387a98ba977c732d080d"


def test_streams_of_a_key_are_unrelated_and_a_stream_goes_on():
    whole = KeyStream(KEY, 3).words(100)
    source = KeyStream(KEY, 3)
    assert np.array_equal(np.concatenate((source.words(1), source.words(60), source.words(39))), whole)
    assert not (KeyStream(KEY, 4).words(100) == whole).any()
    assert not (KeyStream(KEY, 3 + 2**32).words(100) == whole).any()


def test_errors_are_centred_binomial():
    found = np.concatenate([errors(KeyStream(KEY, stream)) for stream in STREAMS])
    variance = ERROR_SIGMA**2
    assert variance == ERROR_COINS / 2 == 10.5
    assert abs(found.mean()) < 5 * ERROR_SIGMA / np.sqrt(MANY)
    assert abs(found.var() - variance) < 5 * variance * np.sqrt(2 / MANY)
    assert np.abs(found).max() <= ERROR_COINS
    assert abs(np.corrcoef(found[1:], found[:-1])[0, 1]) < 5 / np.sqrt(MANY)


def test_ternaries_are_uniform():
    found = np.concatenate([ternary(KeyStream(KEY, stream)) for stream in STREAMS])
    counts = np.array([(found == value).sum() for value in (-1, 0, 1)])
    assert counts.sum() == MANY
    assert (np.abs(counts - MANY / 3) < 5 * np.sqrt(MANY * 2 / 9)).all()
    # Five come from one byte: at no distance within it may they have to do with each other.
    for apart in range(1, 6):
        assert abs(np.corrcoef(found[apart:], found[:-apart])[0, 1]) < 5 / np.sqrt(MANY)


@pytest.mark.parametrize("log_flood", [0, 1, 57, 62])
def test_floods_are_uniform_in_their_range(log_flood):
    found = flood(KeyStream(KEY, 0), MANY, log_flood)
    bound = 1 << log_flood
    assert found.min() >= -bound
    assert found.max() <= bound - 1
    assert {0, 1, -1, -2}.issuperset(found.tolist()) if log_flood < 2 else np.unique(found).size > 0.99 * MANY
    # On [-1, 1) the mean is about 0 (minus half a step) and the variance 1/3.
    unit = (found.astype(np.float64) + 0.5) / bound
    assert abs(unit.mean()) < 5 / np.sqrt(3 * MANY)
    assert abs((unit**2).mean() - (1 - 1 / (4 * bound**2)) / 3) < 5 * np.sqrt(4 / 45 / MANY)


def test_uniform_residues_are_uniform_and_in_range():
    for j, ring in enumerate(rings()):
        found = np.concatenate([ring.uniform(KEY, 2 * stream + j) for stream in STREAMS]).astype(np.float64)
        assert found.max() < ring.p
        assert abs(found.mean() / ring.p - 0.5) < 5 / np.sqrt(12 * MANY)


def test_packing_is_fifty_bits_each_lowest_first():
    residues = np.arange(DEGREE, dtype=np.uint64) * np.uint64(274_877_906_951) % np.uint64(2**50)
    packed = pack(residues)
    assert packed.shape == (POLYNOMIAL_BYTES,)
    as_one = int.from_bytes(packed.tobytes(), "little")
    assert [as_one >> 50 * i & (2**50 - 1) for i in range(DEGREE)] == residues.tolist()
    assert np.array_equal(unpack(packed), residues)
