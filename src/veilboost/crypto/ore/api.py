"""What every order-revealing scheme has in common: two keys, `encrypt` with both, `compare` with one.

The master key makes ciphertexts, the comparison key compares them and does nothing else. Whoever holds the master key
and sees a ciphertext finds its value by encrypting guesses and comparing, so ciphertexts travel to the holder of the
comparison key only, and who holds both keys must not see ciphertexts of others.

No scheme here can decrypt. A value that is to be read again travels beside its ciphertext, see `value`.
"""

from __future__ import annotations

import hmac
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from veilboost.crypto.csprng import Csprng
from veilboost.errors import ImpossibleParameter, MalformedMessage

KEY_BYTES = 32
NONCE_BYTES = 12
SEAL_BYTES = NONCE_BYTES + 16


@dataclass(frozen=True, repr=False)
class OreKeys:
    """What who encrypts holds. The comparison key alone goes to who compares."""

    master: bytes
    comparison: bytes

    def for_purpose(self, *purpose: str | int) -> OreKeys:
        """Keys of one purpose: what is encrypted for another purpose cannot be compared with it."""
        return OreKeys(derive(self.master, *purpose), derive(self.comparison, *purpose))


def keygen(random: Csprng) -> OreKeys:
    """Fresh keys, the same for every scheme."""
    return OreKeys(random.bytes(KEY_BYTES), random.bytes(KEY_BYTES))


def derive(key: bytes, *purpose: str | int) -> bytes:
    """A key of its own for every list of words."""
    spelled = b"".join(len(text).to_bytes(4, "big") + text for text in (str(word).encode() for word in purpose))
    return hmac.digest(key, b"veilboost ore" + spelled, "sha256")


class OreScheme(ABC):
    """One scheme for whole numbers of `bits` bits.

    Attributes
    ----------
    name
        As options spell it.
    leakage
        What the holder of the comparison key learns of ciphertexts of one purpose, beside their order.
    """

    name: ClassVar[str]
    leakage: ClassVar[str]

    def __init__(self, bits: int = 64) -> None:
        if bits not in (16, 32, 64):
            raise ImpossibleParameter(f"order-revealing encryption of {bits} bits", "choose 16, 32 or 64")
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
        """-1, 0 or 1 as the first value is below, equal to or above the second.

        Raises
        ------
        MalformedMessage
            A ciphertext is none of this scheme and key.
        """

    def first_difference(self, comparison: bytes, first: bytes, second: bytes) -> range:
        """Among which bits, from the highest on, the first is in which the values differ: what comparing tells besides.

        Nothing more than all of them unless a scheme tells more; none where it shows that the values are equal.
        """
        return range(self.bits)

    def _check_value(self, value: int) -> None:
        if not 0 <= value < 1 << self.bits:
            raise ImpossibleParameter(f"a value does not fit {self.bits} bits", "map it to a whole number of that size")

    def _check_size(self, *ciphertexts: bytes) -> None:
        if any(len(ciphertext) != self.size for ciphertext in ciphertexts):
            raise MalformedMessage(f"a ciphertext of {self.name} has another size")


def seal(key: bytes, content: bytes, random: Csprng, about: bytes = b"") -> bytes:
    """Encrypt and authenticate `content`, and authenticate what it is about."""
    nonce = random.bytes(NONCE_BYTES)
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, content, about)


def unseal(key: bytes, sealed: bytes, about: bytes = b"") -> bytes:
    """What `seal` sealed with the same key and about the same."""
    try:
        return ChaCha20Poly1305(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], about)
    except (InvalidTag, ValueError):
        raise MalformedMessage("a sealed value was changed, or made with another key") from None
