"""The interface of order-revealing schemes: two keys, `encrypt` with both, `compare` with one.

The master key makes ciphertexts; the comparison key only compares them. A holder of the master key that sees a
ciphertext can find its value by encrypting guesses and comparing. So ciphertexts are sent only to the holder of the
comparison key, and a holder of both keys must not see ciphertexts of others.

No scheme here can decrypt. A value that must be read again is sent beside its ciphertext, see `seal_value`.
"""

from __future__ import annotations

import hmac
import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from veilboost.crypto.csprng import Csprng
from veilboost.errors import InfiniteValues, InvalidParameter, MalformedMessage
from veilboost.types import UInt8Array

KEY_BYTES = 32
NONCE_BYTES = 12
SEAL_BYTES = NONCE_BYTES + 16


@dataclass(frozen=True, repr=False)
class OreKeys:
    """The keys of a party that encrypts. A party that compares gets only the comparison key."""

    master: bytes
    comparison: bytes

    def for_purpose(self, *purpose: str | int) -> OreKeys:
        """Keys of one purpose: ciphertexts of different purposes cannot be compared."""
        return OreKeys(derive(self.master, *purpose), derive(self.comparison, *purpose))


def keygen(random: Csprng) -> OreKeys:
    """Fresh keys, the same for every scheme."""
    return OreKeys(random.bytes(KEY_BYTES), random.bytes(KEY_BYTES))


def derive(key: bytes, *purpose: str | int) -> bytes:
    """A separate key for every list of words."""
    spelled = b"".join(len(text).to_bytes(4, "big") + text for text in (str(word).encode() for word in purpose))
    return hmac.digest(key, b"veilboost ore" + spelled, "sha256")


class OreScheme(ABC):
    """One scheme for integers of `bits` bits."""

    name: ClassVar[str]  # the name in options
    leakage: ClassVar[str]  # what the holder of the comparison key learns of ciphertexts of one purpose, besides order

    def __init__(self, bits: int = 64) -> None:
        if bits not in (16, 32, 64):
            raise InvalidParameter(f"order-revealing encryption of {bits} bits", "choose 16, 32 or 64")
        self.bits = bits

    @property
    @abstractmethod
    def size(self) -> int:
        """Bytes of a ciphertext."""

    @abstractmethod
    def encrypt(self, keys: OreKeys, value: int, random: Csprng) -> bytes:
        """A ciphertext of 0 <= value < 2^bits."""

    @abstractmethod
    def compare(self, comparison: bytes, first: bytes, second: bytes) -> int:
        """-1, 0 or 1 if the first value is below, equal to or above the second. Refuses ciphertexts of another key."""

    def first_difference(self, comparison: bytes, first: bytes, second: bytes) -> range:
        """The range of bits, from the highest on, that contains the first difference: what comparing reveals besides.

        All bits, unless a scheme reveals more; an empty range if it reveals that the values are equal.
        """
        return range(self.bits)

    def _check_value(self, value: int) -> None:
        if not 0 <= value < 1 << self.bits:
            raise InvalidParameter(f"a value does not fit {self.bits} bits", "map it to an integer of that size")

    def _check_size(self, *ciphertexts: bytes) -> None:
        if any(len(ciphertext) != self.size for ciphertext in ciphertexts):
            raise MalformedMessage(f"a ciphertext of {self.name} has another size")


def seal(key: bytes, content: bytes, random: Csprng, about: bytes = b"") -> bytes:
    """Encrypt and authenticate `content`, and authenticate `about`."""
    nonce = random.bytes(NONCE_BYTES)
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, content, about)


def unseal(key: bytes, sealed: bytes, about: bytes = b"") -> bytes:
    """Decrypt what `seal` encrypted with the same key and the same `about`."""
    try:
        return ChaCha20Poly1305(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], about)
    except (InvalidTag, ValueError):
        raise MalformedMessage("a sealed value was changed, or made with another key") from None


# --- a number beside its ciphertext, sealed for holders of the master key -------------------------------------------


_DOUBLE = struct.Struct("<d")
SEALED_BYTES = _DOUBLE.size + SEAL_BYTES


def seal_value(keys: OreKeys, value: float, random: Csprng) -> bytes:
    """Seal a value under the keys of one purpose; it cannot be used as a value of another."""
    return seal(derive(keys.master, "value"), _DOUBLE.pack(value), random)


def read_value(keys: OreKeys, sealed: bytes) -> float:
    """The sealed value; raises `MalformedMessage` if it was changed or belongs to another purpose."""
    return float(_DOUBLE.unpack(unseal(derive(keys.master, "value"), sealed))[0])


# --- real numbers as integers in the same order --------------------------------------------------------------------


_SIGN = 1 << 63
_ALL = (1 << 64) - 1


def to_ordered(value: float) -> int:
    """A float64 as an unsigned 64-bit integer: x < y if and only if to_ordered(x) < to_ordered(y). Zero has no sign."""
    if not abs(value) < float("inf"):
        raise InfiniteValues("an extreme is infinite or not a number")
    (bits,) = struct.unpack("<Q", struct.pack("<d", value + 0.0))  # -0.0 + 0.0 is 0.0
    # Positive numbers increase with their bits, negative ones decrease: flip those and put the others above them.
    return bits ^ _ALL if bits & _SIGN else bits | _SIGN


def from_ordered(ordered: int) -> float:
    """The inverse of `to_ordered`."""
    bits = ordered ^ _SIGN if ordered & _SIGN else ordered ^ _ALL
    return float(struct.unpack("<d", struct.pack("<Q", bits))[0])


# --- digits 0, 1, 2 as bytes, five to a byte -----------------------------------------------------------------------


_PER_BYTE = 5
_PLACES = np.array([1, 3, 9, 27, 81], dtype=np.uint8)
_LARGEST = 3**_PER_BYTE - 1
_DIGITS = (np.arange(_LARGEST + 1)[:, None] // _PLACES % 3).astype(np.uint8)


def packed_size(count: int) -> int:
    """Bytes of `count` trits."""
    return -(-count // _PER_BYTE)


def pack_trits(trits: UInt8Array) -> bytes:
    """Pack one list of trits, or several of equal length (lists, trits), one after the other."""
    count = trits.shape[-1]
    padded = np.zeros((*trits.shape[:-1], packed_size(count) * _PER_BYTE), dtype=np.uint8)
    padded[..., :count] = trits
    return (padded.reshape(-1, _PER_BYTE) @ _PLACES).astype(np.uint8).tobytes()


def unpack_trits(packed: bytes, count: int) -> UInt8Array:
    codes = np.frombuffer(packed, np.uint8)
    if len(codes) != packed_size(count) or int(codes.max(initial=0)) > _LARGEST:
        raise MalformedMessage("a list of trits has a wrong length or value")
    return _DIGITS[codes].reshape(-1)[:count]
