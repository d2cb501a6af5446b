"""What parties send to see that their rows are in the same order: salted digests of the whole list of ids."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from veilboost.errors import MalformedMessage
from veilboost.types import UInt8Array
from veilboost.wire.message import ArraySpec, Message, Reveals

Bytes = Annotated[UInt8Array, ArraySpec("uint8", 1)]


@dataclass(frozen=True)
class OrderCheck(Message):
    """Active to passive: so many rows, and a salted digest of their ids in order. Are yours the same?"""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("how many rows the active party has", "passive"),
        Reveals("a salted digest of all ids in order: a guess of the whole list can be tested", "passive"),
    )
    rows: int
    salt: Bytes
    digest: Bytes


@dataclass(frozen=True)
class OrderConfirmed(Message):
    """Passive to active: they are; the digest is made with another label, so only who has the ids can make it."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("that the passive party has the same ids in the same order", "active"),
    )
    digest: Bytes


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
