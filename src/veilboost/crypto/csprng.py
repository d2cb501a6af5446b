"""The only source of secret randomness: the operating system's generator, or a stored key."""

from __future__ import annotations

import hashlib
import hmac
import os
from typing import TypeAlias

KEY_BYTES = 32
_SMALL = 4096  # below it the system's own bytes are as fast as an expanded key

Piece: TypeAlias = "str | int | bytes"


class Csprng:
    """A source of secret bytes.

    Without a seed, the bytes come from the operating system. With a seed, they are an expansion of it, the same in
    every run. A seed is as secret as what it protects: it comes from `JobRandomness` and is never chosen by a person,
    except in tests (`unsafe_key`).
    """

    def __init__(self, seed: bytes | None = None) -> None:
        self._seed = seed
        self._drawn = 0

    def bytes(self, count: int) -> bytes:
        if self._seed is None:
            return os.urandom(count) if count <= _SMALL else _keystream(os.urandom(KEY_BYTES), count)
        # Draws are numbered, so that two draws never share bytes.
        head = len(self._seed).to_bytes(8, "big") + self._seed + self._drawn.to_bytes(8, "big")
        self._drawn += 1
        return _keystream(hashlib.shake_256(b"veilboost csprng" + head).digest(KEY_BYTES), count)


class Pool(Csprng):
    """Serves many small draws from few large ones, which cost less; every byte is used once."""

    def __init__(self, source: Csprng, size: int = 2 * _SMALL) -> None:
        super().__init__()
        self._source, self._size = source, size
        self._held, self._used = b"", 0

    def bytes(self, count: int) -> bytes:
        if self._used + count > len(self._held):
            self._held, self._used = self._source.bytes(max(self._size, count)), 0
        start, self._used = self._used, self._used + count
        return self._held[start : self._used]


class JobRandomness:
    """The secret randomness of one party in one job: a key, drawn once and stored with the run.

    The randomness of a request is a pseudo-random function of the key and of the request (its id and a digest of its
    content). So a retry or a resumed job draws the same values, never new noise that could be averaged with the first;
    and a request with different content draws independent values.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self.key = os.urandom(KEY_BYTES) if key is None else key
        if len(self.key) != KEY_BYTES:
            raise ValueError(f"a job key has {KEY_BYTES} bytes")

    def __repr__(self) -> str:
        return "JobRandomness(...)"  # never print the key

    def for_request(self, *parts: Piece) -> Csprng:
        """The generator of one request: the same parts give the same bytes, different parts independent ones."""
        return Csprng(hmac.digest(self.key, b"".join(_encoded(part) for part in parts), "sha256"))


def unsafe_key(seed: int, owner: str) -> bytes:
    """A key that anyone who knows the seed can compute, so that a test can repeat its noise. It protects nothing."""
    return hashlib.sha256(f"veilboost unsafe noise seed {seed} {owner}".encode()).digest()


def _encoded(part: Piece) -> bytes:
    """An unambiguous encoding of one part of a request's name: kind, length, content."""
    kind = b"b" if isinstance(part, bytes) else b"s" if isinstance(part, str) else b"i"
    content = part if isinstance(part, bytes) else str(part).encode()
    return kind + len(content).to_bytes(8, "big") + content


def _keystream(key: bytes, count: int) -> bytes:
    """`count` bytes of ChaCha20's key stream. A key is used for one stream only, so the nonce may be zero."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    return Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(count))
