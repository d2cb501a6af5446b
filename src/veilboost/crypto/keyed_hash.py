"""A keyed hash of many short texts: who lacks the key can neither recognise nor test a digest.

`blake2b` is BLAKE2b in its own keyed mode (RFC 7693), `hmac-sha512` is HMAC (RFC 2104) over SHA-512, cut to the
wanted length.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from veilboost.errors import ImpossibleParameter
from veilboost.types import UInt8Array

HASHES = ("blake2b", "hmac-sha512")
KEY_BYTES = 32
_PERSON = b"veilboost align"
_BLOCK = 128  # bytes, of SHA-512


def keyed_digests(texts: Sequence[bytes], key: bytes, name: str, size: int) -> UInt8Array:
    """One digest of `size` bytes for each text: (texts, size)."""
    if name == "blake2b":
        digests = _blake2b(texts, key, size)
    elif name == "hmac-sha512":
        digests = _hmac_sha512(texts, key, size)
    else:
        raise ImpossibleParameter(f"there is no keyed hash {name!r}", f"use {' or '.join(HASHES)}")
    return np.frombuffer(b"".join(digests), np.uint8).reshape(len(texts), size)


def keyed_digest(key: bytes, content: bytes) -> bytes:
    """A keyed digest of one long content, apart from those of ids."""
    return hashlib.blake2b(content, key=key, digest_size=32, person=b"veilboost check").digest()


# Both loops absorb the key once and copy that state for each text: a third of the time of starting afresh.


def _blake2b(texts: Sequence[bytes], key: bytes, size: int) -> list[bytes]:
    start = hashlib.blake2b(key=key, digest_size=size, person=_PERSON).copy
    digests: list[bytes] = []
    for text in texts:
        state = start()
        state.update(text)
        digests.append(state.digest())
    return digests


def _hmac_sha512(texts: Sequence[bytes], key: bytes, size: int) -> list[bytes]:
    padded = key.ljust(_BLOCK, b"\0")
    inner = hashlib.sha512(bytes(byte ^ 0x36 for byte in padded)).copy
    outer = hashlib.sha512(bytes(byte ^ 0x5C for byte in padded)).copy
    digests: list[bytes] = []
    for text in texts:
        state, shell = inner(), outer()
        state.update(text)
        shell.update(state.digest())
        digests.append(shell.digest()[:size])
    return digests
