"""Paillier encryption against the textbook's formulas, its packing, and sums per label against NumPy."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilboost.crypto.csprng import Csprng
from veilboost.crypto.paillier.ciphertexts import Blinder, PairPacking, add, compress, subtract, sums_by_label
from veilboost.crypto.paillier.integers import Halves, halve, inverses, join, powers, window_for
from veilboost.crypto.paillier.keys import Owner, PrivateKey, generate_key
from veilboost.errors import MalformedMessage

pytestmark = pytest.mark.fast


@functools.cache
def short_key() -> PrivateKey:
    return generate_key(512, Csprng(b"a short key"), allow_insecure=True)


@functools.cache
def short_owner() -> Owner:
    return Owner(short_key(), 100, Csprng(b"tables"))


def textbook_decrypt(key: PrivateKey, ciphertext: int) -> int:
    """Paillier 1999, scheme 1, with g = 1 + n."""
    n = int(key.p * key.q)
    order = math.lcm(int(key.p) - 1, int(key.q) - 1)
    return (pow(int(ciphertext), order, n * n) - 1) // n * pow(order, -1, n) % n


def encrypt(plaintexts: list[int]) -> list[int]:
    return short_owner().encrypt(plaintexts, Csprng())


def signed(plaintexts: list[int]) -> list[int]:
    n = short_key().public.n
    return [int(m) if m <= n // 2 else int(m) - int(n) for m in plaintexts]


# --- the scheme -----------------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-(2**500), 2**500), max_size=5))
def test_what_is_encrypted_comes_back_here_and_by_the_book(plaintexts):
    ciphertexts = encrypt(plaintexts)
    n = short_key().public.n
    assert short_owner().decrypt(ciphertexts) == [m % n for m in plaintexts]
    assert [textbook_decrypt(short_key(), c) for c in ciphertexts] == [m % n for m in plaintexts]


@pytest.mark.parametrize("bits", [1024, 2048, 3072])
def test_every_key_size_works(bits):
    key = generate_key(bits, Csprng(), allow_insecure=True)
    assert key.public.bits == bits
    assert int(key.p).bit_length() == int(key.q).bit_length() == bits // 2
    owner = Owner(key, 1, Csprng())
    assert owner.decrypt(owner.encrypt([5, -1], Csprng())) == [5, key.public.n - 1]
    assert textbook_decrypt(key, owner.encrypt([77], Csprng())[0]) == 77


def test_equal_plaintexts_look_different_and_seeds_repeat_them():
    assert len(set(encrypt([3] * 20))) == 20
    owner = short_owner()
    assert owner.encrypt([1, 2], Csprng(b"s")) == owner.encrypt([1, 2], Csprng(b"s"))
    assert owner.encrypt([1, 2], Csprng(b"s")) != owner.encrypt([1, 2], Csprng(b"t"))


def characters(key: PrivateKey, units: list[int]) -> set[tuple[bool, bool]]:
    """Is a unit a square modulo p, and modulo q? The owner can tell, and a mask must not leave it as it was."""
    return {
        (pow(int(c), int(key.p - 1) // 2, int(key.p)) == 1, pow(int(c), int(key.q - 1) // 2, int(key.q)) == 1)
        for c in units
    }


def test_randomness_reaches_every_class_of_units():
    key = short_key()
    assert len(characters(key, encrypt([0] * 60))) == 4
    blinder = Blinder(key.public, 10, Csprng())
    assert len(characters(key, blinder.blind([1] * 60, Csprng()))) == 4


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(-(2**200), 2**200), st.integers(-(2**200), 2**200)), min_size=1, max_size=4))
def test_ciphertexts_add_and_subtract(pairs):
    left, right = encrypt([a for a, _ in pairs]), encrypt([b for _, b in pairs])
    public, decrypt = short_key().public, short_owner().decrypt
    assert signed(decrypt(add(public, left, right))) == [a + b for a, b in pairs]
    assert signed(decrypt(subtract(public, left, right))) == [a - b for a, b in pairs]


def test_blinding_keeps_the_plaintext_and_nothing_else():
    public = short_key().public
    ciphertexts = encrypt([1, 2, -3])
    blinder = Blinder(public, 10, Csprng())
    first, second = blinder.blind(ciphertexts, Csprng()), blinder.blind(ciphertexts, Csprng())
    assert signed(short_owner().decrypt(first)) == signed(short_owner().decrypt(second)) == [1, 2, -3]
    assert len({*ciphertexts, *first, *second}) == 9


def test_an_owner_who_remembers_its_ciphertexts_learns_the_rows_of_a_sum_unless_it_is_blinded():
    """Two sets of rows with the same sum: without a fresh mask the product itself tells which it was."""
    public = short_key().public
    sent = encrypt([4, 1, 2, 3])
    rows = [0, 1], [2, 3]  # 4 + 1 and 2 + 3

    def product(chosen: list[int]) -> int:
        return functools.reduce(lambda a, b: a * b % public.square, [sent[k] for k in chosen])

    answer = product(rows[0])
    assert [product(r) == answer for r in rows] == [True, False]
    blinded = Blinder(public, 10, Csprng()).blind([answer], Csprng())[0]
    assert signed(short_owner().decrypt([blinded])) == [5]
    assert not any(product(r) == blinded for r in rows)


def test_threads_change_nothing():
    ciphertexts = encrypt(list(range(7)))
    public = short_key().public
    assert short_owner().decrypt(ciphertexts, 3) == list(range(7))
    assert powers(ciphertexts, 12345, public.square, 3) == powers(ciphertexts, 12345, public.square)
    assert compress(public, ciphertexts, 40, 3, 2) == compress(public, ciphertexts, 40, 3)


def test_the_key_is_never_printed():
    assert str(short_key().p) not in repr(short_key())


# --- arithmetic beneath it ------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 2**400), min_size=1, max_size=6))
def test_halves_join_to_the_unit_and_to_products(values):
    public = short_key().public
    units = [v % public.square or 1 for v in values]
    halves = halve(units, public.n)
    assert [join(x, t, public.n, public.square) for x, t in zip(halves.x, halves.t, strict=True)] == units
    whole = join(math.prod(map(int, halves.x)), sum(halves.t), public.n, public.square)
    assert whole == math.prod(map(int, units)) % public.square


def test_inverses_of_many():
    assert inverses([2, 3, 5], 7) == [4, 5, 3]
    assert inverses([], 7) == []
    with pytest.raises(ZeroDivisionError):
        inverses([2, 7], 7)


def test_a_larger_table_where_there_is_more_to_draw():
    windows = [window_for(1088, draws) for draws in (1, 100, 10_000, 10**7)]
    assert windows == sorted(windows)
    assert windows[0] < windows[-1] == 10


# --- packing --------------------------------------------------------------------------------------------------------

SMALL = st.integers(-(2**30), 2**30)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(SMALL, SMALL), min_size=1, max_size=40), st.integers(1, 10**6))
def test_packed_pairs_come_back_through_encryption(pairs, rows):
    array = np.array(pairs, dtype=np.int32)
    packing, public = PairPacking.for_sums(array, rows), short_key().public
    capacity = packing.capacity(public.bits)
    packages = compress(public, encrypt(packing.pack(array)), packing.width, capacity)
    assert len(packages) == -(-len(pairs) // capacity)
    unpacked = packing.unpack(short_owner().decrypt(packages), len(pairs), public.n)
    assert unpacked.tolist() == array.tolist()


@pytest.mark.parametrize("pair", [(2**30, 2**30), (-(2**30), -(2**30)), (-(2**30), 2**30), (2**30, 0), (0, 0)])
def test_fields_hold_all_rows_at_the_extreme(pair):
    rows = 10**7
    packing = PairPacking.for_sums(np.array([pair, (0, 0)], dtype=np.int32), rows)
    n = short_key().public.n
    members = packing.capacity(n.bit_length())
    total = [pair[0] * rows, pair[1] * rows]
    one = (total[0] << packing.low) + total[1]
    plaintext = sum(one << (packing.width * k) for k in range(members)) % n
    assert packing.unpack([plaintext], members, n).tolist() == [total] * members


def test_a_plaintext_with_more_than_its_fields_is_refused():
    packing, n = PairPacking(20, 20), short_key().public.n
    packing.unpack([5], 1, n)
    with pytest.raises(MalformedMessage):
        packing.unpack([1 << 41], 1, n)


def test_impossible_fields():
    assert PairPacking(36, 35).fits(512)
    for high, low in [(0, 5), (5, 0), (65, 5), (5, 65), (-3, 10)]:
        assert not PairPacking(high, low).fits(512)


# --- sums -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "widths"),
    [(1, [1]), (1, [3, 2]), (50, [1]), (60, [4]), (200, [2, 3, 4]), (97, [8, 1, 5, 256, 2]), (40, [1000] * 9)],
)
def test_sums_by_label_equal_numpy(rows, widths):
    rng = np.random.default_rng(rows)
    labels = np.stack([rng.integers(0, width, rows) for width in widths], axis=1).astype(np.uint16)
    values = rng.integers(-(2**20), 2**20, rows)
    public = short_key().public
    halves = halve(encrypt(values.tolist()), public.n)
    sums = signed(short_owner().decrypt(sums_by_label(public, halves, labels, widths)))
    expected = [np.bincount(labels[:, f], values, width) for f, width in enumerate(widths)]
    assert sums == np.concatenate(expected).astype(np.int64).tolist()


def test_sums_of_nobody_and_of_no_columns():
    public = short_key().public
    nobody = Halves([], [])
    assert short_owner().decrypt(sums_by_label(public, nobody, np.empty((0, 2), dtype=np.uint8), [2, 3])) == [0] * 5
    halves = halve(encrypt([1, 2]), public.n)
    assert sums_by_label(public, halves, np.empty((2, 0), dtype=np.uint8), []) == []


def test_rows_alike_in_several_columns_are_multiplied_once(monkeypatch):
    """The point of merging: 2000 rows in 6 columns of 8 bins take less than two thirds of the multiplications."""

    class Counted(int):
        def __mul__(self, other: int) -> Counted:
            count.append(1)
            return Counted(int(self) * int(other))

        def __mod__(self, other: int) -> Counted:
            return Counted(int(self) % int(other))

    count: list[int] = []
    rows, columns = 2000, 6
    labels = np.random.default_rng(0).integers(0, 8, (rows, columns))
    items = Halves([Counted(3)] * rows, [0] * rows)
    sums_by_label(short_key().public, items, labels, [8] * columns)
    assert len(count) < rows * columns * 2 / 3
