"""Keyed digests: without the key, nobody can recognise or test one.

For large data, at the speed of memory: AES-GMAC under a key that never leaves its party. For many short texts:
`blake2b` is BLAKE2b in its keyed mode (RFC 7693), `hmac-sha512` is HMAC (RFC 2104) with SHA-512, truncated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from veilboost.crypto.csprng import JobRandomness, Piece
from veilboost.errors import InvalidParameter
from veilboost.types import AnyArray, UInt8Array

DIGEST_BYTES = 16  # of `content_digest`
_AT_ONCE = 1 << 20  # bytes; the library accepts at most 2^31 - 1 per call, and 2^61 in total


def fingerprint(key: bytes, large: UInt8Array, *rest: AnyArray | bytes) -> bytes:
    """A digest of 16 bytes of `large` and `rest`; without the key, nobody can find a collision."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.ciphers.modes import GCM

    # The nonce is reused under one key, so the tag stays internal: the function returns a keyed hash of it.
    mac = Cipher(AES(key), GCM(bytes(12))).encryptor()
    content = large.reshape(-1).data
    for begin in range(0, len(content), _AT_ONCE):
        mac.authenticate_additional_data(content[begin : begin + _AT_ONCE])
    mac.finalize()
    digest = hashlib.blake2b(mac.tag, key=key, digest_size=16)
    for part in rest:
        small = part if isinstance(part, bytes) else part.tobytes()
        digest.update(len(small).to_bytes(8, "little") + small)
    return digest.digest()


def content_digest(randomness: JobRandomness, *parts: Piece | AnyArray) -> bytes:
    """A digest of 16 bytes of the content that noise protects and of the parameters of the noise.

    Noise is drawn from `randomness.for_request(..., digest)` and booked under `digest.hex()`. So the same content gets
    the same noise again and costs nothing, and different content gets different noise and is booked in addition. The
    digest is keyed: a reader of the ledger without the job's key cannot test guesses of the content.
    """
    key = randomness.for_request("key of digests").bytes(16)
    named: list[Piece] = []
    for part in parts:
        if isinstance(part, str | int | bytes):
            named.append(part)
            continue
        array = np.ascontiguousarray(part)
        named += [f"{array.dtype.str} {array.shape}", fingerprint(key, array.reshape(-1).view(np.uint8))]
    return randomness.for_request("digest of content", *named).bytes(DIGEST_BYTES)


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
        raise InvalidParameter(f"there is no keyed hash {name!r}", f"use {' or '.join(HASHES)}")
    return np.frombuffer(b"".join(digests), np.uint8).reshape(len(texts), size)


def keyed_digest(key: bytes, content: bytes) -> bytes:
    """A keyed digest of one long content, in a different domain than those of ids."""
    return hashlib.blake2b(content, key=key, digest_size=32, person=b"veilboost check").digest()


# Both loops absorb the key once and copy that state for each text, which takes a third of the time.


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
