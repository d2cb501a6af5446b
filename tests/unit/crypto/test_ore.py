"""Order-revealing encryption: order kept, nothing compared without the key, strangers refused."""

import math
import random
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilboost.crypto.csprng import Csprng
from veilboost.crypto.ore.api import (
    SEALED_BYTES,
    derive,
    from_ordered,
    keygen,
    pack_trits,
    read_value,
    seal,
    seal_value,
    to_ordered,
    unpack_trits,
    unseal,
)
from veilboost.crypto.ore.schemes import SCHEMES, SLOTS, LewiWu, Pore, scheme_named
from veilboost.errors import InfiniteValues, InvalidParameter, MalformedMessage

pytestmark = pytest.mark.fast

QUICK = ("lewi_wu", "clww")
KEYS = keygen(Csprng(b"keys"))
AWKWARD = [
    0.0,
    -0.0,
    5e-324,
    -5e-324,
    2.2e-308,
    -2.2e-308,
    1.0,
    math.nextafter(1.0, 2.0),
    -1.0,
    1.7e308,
    -1.7e308,
    255.0,
]


def sign(a, b):
    return (a > b) - (a < b)


@pytest.mark.parametrize("name", QUICK)
@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 63))
@settings(max_examples=60, deadline=None)
def test_order_is_kept(name, first, second, shared_bits):
    scheme = scheme_named(name)
    # Also values that agree in many leading bits.
    near = first ^ (second >> shared_bits)
    for other in (second, near, first):
        one, two = (scheme.encrypt(KEYS, value, Csprng()) for value in (first, other))
        assert len(one) == scheme.size
        assert scheme.compare(KEYS.comparison, one, two) == sign(first, other)
        assert scheme.compare(KEYS.comparison, two, one) == sign(other, first)


def test_order_is_kept_by_pore():
    scheme = scheme_named("pore", 16)
    draw = random.Random(5)
    first = draw.getrandbits(16)
    for other in (first ^ 1, first ^ (1 << 15), first):
        one, two = (scheme.encrypt(KEYS, value, Csprng()) for value in (first, other))
        assert scheme.compare(KEYS.comparison, one, two) == sign(first, other)


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_floats_keep_their_order(first, second):
    assert sign(to_ordered(first), to_ordered(second)) == sign(first, second)
    assert from_ordered(to_ordered(first)) == first


def test_awkward_floats_are_ordered_by_every_quick_scheme():
    assert to_ordered(0.0) == to_ordered(-0.0)
    for name in QUICK:
        scheme = scheme_named(name)
        made = [(value, scheme.encrypt(KEYS, to_ordered(value), Csprng())) for value in AWKWARD]
        for first, one in made:
            for second, two in made:
                assert scheme.compare(KEYS.comparison, one, two) == sign(first, second)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_what_has_no_place_is_refused(value):
    with pytest.raises(InfiniteValues):
        to_ordered(value)


@pytest.mark.parametrize("name", QUICK)
def test_who_lacks_the_comparison_key_or_has_another_purpose_compares_nothing(name):
    scheme = scheme_named(name)
    low, high = KEYS.for_purpose(3, "low"), KEYS.for_purpose(3, "high")
    one, two = scheme.encrypt(low, 7, Csprng()), scheme.encrypt(low, 9, Csprng())
    assert scheme.compare(low.comparison, one, two) == -1
    assert low.comparison == derive(KEYS.comparison, 3, "low")  # what a comparer derives from its key alone
    for wrong in (high.comparison, KEYS.comparison, KEYS.master):
        with pytest.raises(MalformedMessage):
            scheme.compare(wrong, one, two)


def test_pore_without_its_key_or_with_garbage():
    scheme = scheme_named("pore", 16)
    one = scheme.encrypt(KEYS, 7, Csprng())
    with pytest.raises(MalformedMessage):
        scheme.compare(KEYS.master, one, one)
    with pytest.raises(MalformedMessage):
        scheme.compare(KEYS.comparison, one, b"\0" * scheme.size)


@pytest.mark.parametrize("name", SCHEMES)
def test_strangers_are_refused(name):
    scheme = scheme_named(name, 32)
    with pytest.raises(InvalidParameter):
        scheme.encrypt(KEYS, 2**32, Csprng())
    with pytest.raises(MalformedMessage):
        scheme.compare(KEYS.comparison, b"", b"")
    with pytest.raises(InvalidParameter):
        scheme_named(name, 48)
    with pytest.raises(InvalidParameter):
        scheme_named("rot13")


def test_lewi_wu_hides_the_value_in_the_left_half():
    """The slot of a value's block tells nothing of the value: under other keys it is another."""
    slots = {unseal(keys.comparison, LewiWu().encrypt(keys, 0, Csprng()))[0] for keys in map(_keys, range(40))}
    assert len(slots) > 25
    assert max(slots) < SLOTS


def test_lewi_wu_right_half_is_fresh_and_its_trits_are_even():
    """With the left half of the same value the trits open; without it they look uniform."""
    opened = [unseal(KEYS.comparison, LewiWu().encrypt(KEYS, 77, Csprng())) for _ in range(40)]
    left = 8 * 17
    assert len({content[:left] for content in opened}) == 1
    assert len({content[left:] for content in opened}) == 40
    trits = np.concatenate([unpack_trits(content[left + 16 : left + 16 + 52], SLOTS) for content in opened])
    share = np.bincount(trits, minlength=3) / len(trits)
    assert np.abs(share - 1 / 3).max() < 0.03


def test_lewi_wu_blocks_depend_on_all_blocks_before_them():
    """Equal later bytes show only where the bytes before them are equal too."""
    first, same, other = (
        unseal(KEYS.comparison, LewiWu().encrypt(KEYS, value, Csprng())) for value in (0x0042, 0x0042, 1 << 56 | 0x0042)
    )
    blocks = [slice(17 * at, 17 * at + 17) for at in range(8)]
    assert all(first[block] == same[block] for block in blocks)
    assert not any(first[block][1:] == other[block][1:] for block in blocks)


def test_pore_is_fresh_in_every_bit():
    """Responses of one draw for all bits would have differences in fixed ratios; here no part comes twice."""
    scheme = Pore(16)
    content = scheme.encrypt(KEYS, 1, Csprng()) + scheme.encrypt(KEYS, 1, Csprng())
    parts = [content[at : at + 32] for at in range(0, len(content), 32)]
    assert len(set(parts)) == len(parts)


def test_a_value_beside_its_ciphertext_is_read_by_its_purpose_only():
    sealed = seal_value(KEYS.for_purpose(1), -2.5, Csprng())
    assert len(sealed) == SEALED_BYTES
    assert read_value(KEYS.for_purpose(1), sealed) == -2.5
    for keys, content in (
        (KEYS.for_purpose(2), sealed),
        (KEYS.for_purpose(1), sealed[:-1] + bytes([sealed[-1] ^ 1])),
        (KEYS, b""),
    ):
        with pytest.raises(MalformedMessage):
            read_value(keys, content)


def test_seals_know_what_they_are_about():
    sealed = seal(KEYS.master, b"x", Csprng(), b"this")
    assert unseal(KEYS.master, sealed, b"this") == b"x"
    with pytest.raises(MalformedMessage):
        unseal(KEYS.master, sealed, b"that")


@given(st.lists(st.integers(0, 2), max_size=40))
def test_trits_come_back(trits):
    packed = pack_trits(np.array(trits, dtype=np.uint8))
    assert unpack_trits(packed, len(trits)).tolist() == trits


def test_impossible_trits_are_refused():
    with pytest.raises(MalformedMessage):
        unpack_trits(struct.pack("B", 243), 5)


def _keys(number):
    return keygen(Csprng(bytes([number])))
