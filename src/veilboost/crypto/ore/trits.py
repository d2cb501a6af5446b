"""Digits 0, 1, 2 as bytes, five to a byte."""

from __future__ import annotations

import numpy as np

from veilboost.errors import MalformedMessage
from veilboost.types import UInt8Array

_PER_BYTE = 5
_PLACES = np.array([1, 3, 9, 27, 81], dtype=np.uint8)
_LARGEST = 3**_PER_BYTE - 1
_DIGITS = (np.arange(_LARGEST + 1)[:, None] // _PLACES % 3).astype(np.uint8)


def packed_size(count: int) -> int:
    """Bytes of so many trits."""
    return -(-count // _PER_BYTE)


def pack_trits(trits: UInt8Array) -> bytes:
    """The trits of one list, or of several of equal length, one after the other: (lists, trits)."""
    count = trits.shape[-1]
    padded = np.zeros((*trits.shape[:-1], packed_size(count) * _PER_BYTE), dtype=np.uint8)
    padded[..., :count] = trits
    return (padded.reshape(-1, _PER_BYTE) @ _PLACES).astype(np.uint8).tobytes()


def unpack_trits(packed: bytes, count: int) -> UInt8Array:
    codes = np.frombuffer(packed, np.uint8)
    if len(codes) != packed_size(count) or int(codes.max(initial=0)) > _LARGEST:
        raise MalformedMessage("a list of trits is not what it should be")
    return _DIGITS[codes].reshape(-1)[:count]
