"""The fingerprint of large data: the same however it is streamed, another for whatever differs."""

from __future__ import annotations

import hashlib
import itertools

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from veilboost.crypto import fingerprint as module
from veilboost.crypto.fingerprint import fingerprint

pytestmark = pytest.mark.fast
KEY = bytes(range(16))


def at_once(large: bytes, *rest: bytes) -> bytes:
    """The slow twin: all of it in one call."""
    digest = hashlib.blake2b(AESGCM(KEY).encrypt(bytes(12), b"", large), key=KEY, digest_size=16)
    for part in rest:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


class Recording:
    """An encryptor that remembers how much it was given at a time."""

    def __init__(self, inner, given):
        self._inner, self._given = inner, given

    def authenticate_additional_data(self, data):
        self._given.append(len(data))
        self._inner.authenticate_additional_data(data)

    def finalize(self):
        return self._inner.finalize()

    @property
    def tag(self):
        return self._inner.tag


def test_the_library_is_never_given_more_than_a_piece_at_a_time(monkeypatch):
    """It takes less than 2^31 bytes in one call, and a level of many rows has more."""
    from cryptography.hazmat.primitives import ciphers

    given, cipher = [], ciphers.Cipher

    class Watched(cipher):
        def encryptor(self):
            return Recording(super().encryptor(), given)

    monkeypatch.setattr(ciphers, "Cipher", Watched)
    large = np.arange(100, dtype=np.uint8)
    monkeypatch.setattr(module, "_AT_ONCE", 32)
    assert fingerprint(KEY, large) == at_once(large.tobytes())
    assert given == [32, 32, 32, 4]


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 31, 32, 33, 100])
def test_pieces_do_not_matter(monkeypatch, size):
    large = np.random.default_rng(size).integers(256, size=size).astype(np.uint8)
    for piece in (1, 7, 16, 31, 32, 1000):
        monkeypatch.setattr(module, "_AT_ONCE", piece)
        assert fingerprint(KEY, large, b"rest") == at_once(large.tobytes(), b"rest")


def test_whatever_differs_has_another_fingerprint(monkeypatch):
    """Bytes that move between the parts, over the edge of a piece or to another place are not the same content."""
    monkeypatch.setattr(module, "_AT_ONCE", 16)
    base = np.arange(48, dtype=np.uint8)
    swapped = np.concatenate([base[16:32], base[:16], base[32:]])
    contents = [
        (base,),
        (base, b""),
        (base, b"", b""),
        (base[:32],),
        (base[:47],),
        (np.append(base, np.uint8(0)),),
        (swapped,),
        (base[::-1].copy(),),
        (base[:32], base[32:]),
        (base[:16], base[16:]),
        (base[:0], base),
        (base, b"ab", b"c"),
        (base, b"a", b"bc"),
        (base, b"abc"),
    ]
    for bit in range(8 * len(base)):
        changed = base.copy()
        changed[bit // 8] ^= 1 << (bit % 8)
        contents.append((changed,))
    found = [fingerprint(KEY, *content) for content in contents]
    assert all(one != other for one, other in itertools.combinations(found, 2))
    assert fingerprint(bytes(16), base) != found[0]


def test_a_matrix_counts_by_its_bytes():
    table = np.arange(40, dtype=np.uint8).reshape(8, 5)
    assert fingerprint(KEY, table) == fingerprint(KEY, table.reshape(-1))
    assert fingerprint(KEY, table[:, :0]) == at_once(b"")
