"""Whatever the level looks like, its sums come back exactly, and all engines write the same bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lattices import LevelCase, engine_names, exchange, make_level
from veilboost.crypto.csprng import Csprng
from veilboost.crypto.lattice.keys import PublicKey, SecretKey

pytestmark = pytest.mark.fast


@st.composite
def levels(draw) -> LevelCase:
    blocks = draw(st.lists(st.tuples(st.integers(0, 300), st.sampled_from([64, 128, 256, 4096])), max_size=3))
    widths = draw(st.lists(st.integers(1, 40), min_size=1, max_size=5))
    return make_level(
        draw(st.integers(0, 2**32)),
        [rows for rows, _ in blocks],
        widths,
        run=[run if sum(widths) * run <= 2**15 else 64 for _, run in blocks],
        groups=draw(st.integers(1, 3)),
        bits=draw(st.sampled_from([1, 20, 25])),
        shuffled=draw(st.booleans()),
    )


@settings(max_examples=12, deadline=None)
@given(levels(), st.integers(1, 3))
def test_engines_agree_and_sums_are_exact(case, threads):
    twin = exchange(case, "numpy")
    assert np.array_equal(twin.decrypted, case.true_sums())
    for engine in engine_names():
        assert exchange(case, engine, threads).digests() == twin.digests()


@settings(max_examples=25, deadline=None)
@given(levels(), st.data())
def test_what_is_added_to_encrypted_sums_is_added_to_the_sums(case, data):
    """With keys as protocols use them, and randomness that is kept."""
    secret = SecretKey(Csprng(b"properties"))
    public = PublicKey(secret.public_seed, secret.public_part)
    blocks = case.blocks
    ciphertext = secret.encrypt(case.values, case.group, blocks, case.sizes, Csprng(b"level"), 1)
    true = case.true_sums()
    room = case.sizes.largest_sum - int(np.abs(true).max(initial=0))
    size = data.draw(st.integers(0, room))
    added = np.random.default_rng(data.draw(st.integers(0, 99))).integers(
        -size, size + 1, (len(blocks.run), case.families, case.slots)
    )
    added.flat[:2] = -size, size
    noisy = public.sum(ciphertext, blocks, case.bins, case.group, case.starts, case.widths, case.sizes, 1, added=added)
    found = secret.decrypt(noisy, blocks.run, case.slots, case.sizes, 1)
    assert np.array_equal(found, true + added.transpose(0, 2, 1))
