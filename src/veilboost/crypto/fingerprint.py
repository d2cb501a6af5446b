"""Keyed digests: who lacks the key can neither recognise nor test one.

Of large data, at the speed of memory: AES-GMAC under a key that never leaves its party. Of many short texts: `blake2b`
is BLAKE2b in its own keyed mode (RFC 7693), `hmac-sha512` is HMAC (RFC 2104) over SHA-512, cut to the wanted length.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from veilboost.crypto.csprng import JobRandomness, Piece
from veilboost.errors import InvalidParameter
from veilboost.types import AnyArray, UInt8Array

_AT_ONCE = 1 << 20  # bytes; the library takes no more than 2^31 - 1 in one call, and 2^61 in all


def fingerprint(key: bytes, large: UInt8Array, *rest: AnyArray | bytes) -> bytes:
    """Sixteen bytes of `large` and `rest` together; who does not know the key cannot make others with the same ones."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.ciphers.modes import GCM

    # One key meets one nonce many times, so the tag itself is never shown: what leaves here is a keyed hash of it.
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
    """Sixteen bytes of all that noise protects and of all that says how it is drawn.

    Noise is drawn from `randomness.for_request(..., digest)` and booked under `digest.hex()`. So the same content again
    meets the same noise and costs nothing, and other content meets other noise and is booked beside the first. The
    digest is keyed: who reads it in a ledger, without the job's key, cannot try out what the content was.
    """
    key = randomness.for_request("key of digests").bytes(16)
    named: list[Piece] = []
    for part in parts:
        if isinstance(part, str | int | bytes):
            named.append(part)
            continue
        array = np.ascontiguousarray(part)
        named += [f"{array.dtype.str} {array.shape}", fingerprint(key, array.reshape(-1).view(np.uint8))]
    return randomness.for_request("digest of content", *named).bytes(16)


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
