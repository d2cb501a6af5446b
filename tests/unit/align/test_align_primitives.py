"""Keyed hashes, points and secret bytes, against published vectors and other code."""

from __future__ import annotations

import hashlib
import hmac

import numpy as np
import pytest

from veilboost import _native
from veilboost.align.ids import contains, distinct, find, sort_order, strictly_sorted
from veilboost.crypto.csprng import Csprng
from veilboost.crypto.curve import check_points, hash_to_points, multiply
from veilboost.crypto.fingerprint import keyed_digests
from veilboost.errors import InvalidParameter, MalformedMessage

pytestmark = pytest.mark.fast

TEXTS = [b"", b"7", b"C000123", "Zoë".encode(), bytes(range(256)) * 3]


def rows(*items: bytes) -> np.ndarray:
    return np.frombuffer(b"".join(items), np.uint8).reshape(len(items), -1)


def test_digests_are_those_of_the_standard_library():
    key = bytes(range(32))
    for size in (16, 20):
        blake = [hashlib.blake2b(t, key=key, digest_size=size, person=b"veilboost align").digest() for t in TEXTS]
        assert keyed_digests(TEXTS, key, "blake2b", size).tobytes() == b"".join(blake)
        sha = [hmac.digest(key, t, "sha512")[:size] for t in TEXTS]
        assert keyed_digests(TEXTS, key, "hmac-sha512", size).tobytes() == b"".join(sha)
    assert keyed_digests([], key, "blake2b", 16).shape == (0, 16)
    with pytest.raises(InvalidParameter, match="md5"):
        keyed_digests(TEXTS, key, "md5", 16)


def test_hmac_sha512_of_rfc_4231():
    expected = "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554"
    found = keyed_digests([b"what do ya want for nothing?"], b"Jefe", "hmac-sha512", 32)
    assert found.tobytes().hex() == expected


@pytest.fixture(params=["kernel", "libsodium"])
def either(request, monkeypatch):
    """The kernel for processors with AVX2, and what others use."""
    if request.param == "libsodium":
        monkeypatch.setattr(_native, "curve_supported", lambda: False)
    elif not _native.curve_supported():
        pytest.skip("this processor has no AVX2")


@pytest.mark.skipif(not _native.curve_supported(), reason="this processor has no AVX2")
@pytest.mark.parametrize("count", [1, 3, 4, 128, 301])
def test_the_kernel_computes_the_bytes_of_libsodium(count, monkeypatch):
    texts = [b"%d" % k for k in range(count)]
    edges = [2, 9, 2**255 - 21, 2**254, 2**26 - 1, 2**255 - 2**26, (2**255 - 19) // 2]  # some are on the twist
    some = np.concatenate([hash_to_points(texts), rows(*(edge.to_bytes(32, "little") for edge in edges))])
    scalars = [bytes(32), b"\xff" * 32, Csprng(b"scalar").bytes(32)]
    found = [multiply(some, scalar, threads=2) for scalar in scalars]
    monkeypatch.setattr(_native, "curve_supported", lambda: False)
    np.testing.assert_array_equal(some[:count], hash_to_points(texts))
    for scalar, mine in zip(scalars, found, strict=True):
        np.testing.assert_array_equal(mine, multiply(some, scalar))


def test_multiplication_of_rfc_7748(either):
    scalar = bytes.fromhex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4")
    point = bytes.fromhex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c")
    expected = "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"
    assert multiply(rows(point), scalar).tobytes().hex() == expected


def on_curve(u: int) -> bool:
    """Whether u^3 + 486662 u^2 + u is a square: on the curve and not on its twist."""
    p = 2**255 - 19
    return pow((u * u * u + 486662 * u * u + u) % p, (p - 1) // 2, p) == 1


def test_hashed_points_are_on_the_curve_and_of_prime_order(either):
    points = hash_to_points([b"%d" % k for k in range(64)])
    assert distinct(points)
    assert all(on_curve(int.from_bytes(point.tobytes(), "little")) for point in points)
    # The other half of the coordinates would be on the twist, and stay there: the bit that must not show.
    assert not all(on_curve(int.from_bytes(hashlib.sha256(b"%d" % k).digest(), "little")) for k in range(64))


def test_a_hash_to_the_curve_never_changes(either):
    """Parties of different releases must meet at the same points."""
    expected = "c46c3b542e90875cd0d252fba5780505d29ad44d50513d88dcba15979a4b4e21"
    assert hash_to_points([b"C000123"]).tobytes().hex() == expected


def test_blinding_commutes_and_threads_do_not_matter(either):
    points = hash_to_points([b"%d" % k for k in range(1200)], threads=2)
    one, two = Csprng(b"one").bytes(32), Csprng(b"two").bytes(32)
    there = multiply(multiply(points, one), two, threads=2)
    np.testing.assert_array_equal(there, multiply(multiply(points, two, threads=2), one))
    assert not (there == points).all(axis=1).any()
    assert multiply(points[:0], one).shape == hash_to_points([]).shape == (0, 32)


LOW_ORDER = [
    bytes(32),
    (1).to_bytes(32, "little"),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    (2**255 - 20).to_bytes(32, "little"),
]


@pytest.mark.parametrize("point", LOW_ORDER, ids=lambda point: point[:4].hex())
def test_points_of_low_order_are_refused(point, either):
    check_points(rows(point))
    with pytest.raises(MalformedMessage, match="low order"):
        multiply(rows(point), Csprng(b"s").bytes(32))


@pytest.mark.parametrize("value", [2**255 - 19, 2**255 - 1, 2**255 + 9, 2**256 - 1])
def test_a_point_has_one_spelling(value):
    with pytest.raises(MalformedMessage, match="canonical"):
        check_points(rows(value.to_bytes(32, "little")))


def test_secret_bytes_repeat_only_with_a_seed():
    assert Csprng().bytes(32) != Csprng().bytes(32)
    seeded, again = Csprng(b"test"), Csprng(b"test")
    draws = [seeded.bytes(32), seeded.bytes(32)]
    assert draws == [again.bytes(32), again.bytes(32)]
    assert draws[0] != draws[1]
    assert Csprng(b"other").bytes(32) not in draws


@pytest.mark.parametrize("span", [2, 256])
def test_rows_of_bytes_sort_and_are_found_like_python_bytes(span):
    """Small spans make rows that share their first eight bytes, where the fast comparison does not decide."""
    rng = np.random.default_rng(0)
    table = rng.integers(span, size=(300, 12)).astype(np.uint8)
    texts = [row.tobytes() for row in table]
    order = sort_order(table)
    assert [texts[k] for k in order] == sorted(texts)
    assert distinct(table) == (len(set(texts)) == len(texts))
    known = rows(*sorted(set(texts)))
    assert strictly_sorted(known)
    assert not strictly_sorted(known[::-1])
    assert not strictly_sorted(np.repeat(known[:1], 2, axis=0))
    queries = np.concatenate((known[::3], rng.integers(256, size=(50, 12)).astype(np.uint8)))
    listed = [row.tobytes() for row in known]
    expected = [listed.index(q.tobytes()) if q.tobytes() in listed else -1 for q in queries]
    assert find(known, queries).tolist() == expected
    assert contains(known[:0], queries).tolist() == [False] * len(queries)
