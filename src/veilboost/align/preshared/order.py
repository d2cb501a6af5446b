"""A salted digest of a whole list of ids, in order."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from veilboost.errors import MalformedMessage
from veilboost.types import UInt8Array

SALT_BYTES = DIGEST_BYTES = 32


def order_digest(ids: Sequence[bytes], salt: bytes, role: str) -> bytes:
    """Each role has its own digest, so that one cannot be sent back as the other."""
    state = hashlib.blake2b(key=salt, digest_size=DIGEST_BYTES, person=f"vb order {role}".encode())
    # Lengths first: no two lists run together into the same bytes.
    state.update(np.array([len(ids), *map(len, ids)], dtype="<u8").tobytes())
    state.update(b"".join(ids))
    return state.digest()


def checked_bytes(array: UInt8Array, size: int) -> bytes:
    if array.shape != (size,):
        raise MalformedMessage(f"a salt or digest is not of {size} bytes")
    return array.tobytes()
