"""Masks that cancel over a group, and over nothing less."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilboost.crypto.csprng import Csprng
from veilboost.crypto.pairwise import PairwiseMasks
from veilboost.errors import MalformedMessage

pytestmark = pytest.mark.fast


def group(size):
    sides = [PairwiseMasks(Csprng(bytes([at])).bytes(32)) for at in range(size)]
    publics = [side.public for side in sides]
    for side in sides:
        side.agree(publics)
    return sides


@given(st.integers(2, 6), st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=5))
def test_masks_cancel_over_all_and_hide_each(size, values):
    own = np.array(values, dtype=np.int64)
    hidden = [side.hide(own.view(np.uint64), b"a") for side in group(size)]
    total = hidden[0].copy()
    for each in hidden[1:]:
        total += each
    assert np.array_equal(total.view(np.int64), own * size)  # both sides are modulo 2^64
    assert not any(np.array_equal(each.view(np.int64), own) for each in hidden)


def test_large_numbers():
    sides = group(3)
    hidden = [int.from_bytes(side.hide_number(-5 << 900, 200, b"a"), "little") for side in sides]
    assert sum(hidden) % (1 << 1600) == (-15 << 900) % (1 << 1600)


def test_another_label_is_another_mask():
    side = group(2)[0]
    zero = np.zeros(4, dtype=np.uint64)
    assert not np.array_equal(side.hide(zero, b"a"), side.hide(zero, b"b"))
    assert np.array_equal(side.hide(zero, b"a"), side.hide(zero, b"a"))


def test_strange_groups_are_refused():
    one, two = group(2)
    for publics in (
        [two.public],
        [one.public, one.public],
        [one.public, two.public, two.public],
        [one.public, bytes(32)],
    ):
        with pytest.raises(MalformedMessage):
            one.agree(publics)
