"""Keyed digests of large data, at the speed of memory: AES-GMAC under a key that never leaves its party."""

from __future__ import annotations

import hashlib

import numpy as np

from veilboost.crypto.csprng import JobRandomness, Part
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


def content_digest(randomness: JobRandomness, *parts: Part | AnyArray) -> bytes:
    """Sixteen bytes of all that noise protects and of all that says how it is drawn.

    Noise is drawn from `randomness.for_request(..., digest)` and booked under `digest.hex()`. So the same content again
    meets the same noise and costs nothing, and other content meets other noise and is booked beside the first. The
    digest is keyed: who reads it in a ledger, without the job's key, cannot try out what the content was.
    """
    key = randomness.for_request("key of digests").bytes(16)
    named: list[Part] = []
    for part in parts:
        if isinstance(part, str | int | bytes):
            named.append(part)
            continue
        array = np.ascontiguousarray(part)
        named += [f"{array.dtype.str} {array.shape}", fingerprint(key, array.reshape(-1).view(np.uint8))]
    return randomness.for_request("digest of content", *named).bytes(16)
