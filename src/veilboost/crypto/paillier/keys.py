"""Keys: two secret primes, and their product for everyone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from veilboost.crypto.csprng import Csprng
from veilboost.crypto.paillier.integers import (
    big,
    common_divisor,
    factorial_of_primes,
    from_bytes,
    is_perfect_power,
    is_prime,
    to_bytes,
)
from veilboost.errors import ImpossibleParameter, MalformedMessage
from veilboost.types import UInt8Array

KEY_BITS = (2048, 3072)
INSECURE_KEY_BITS = (512, 1024)  # the papers' sizes: for comparisons, not for anyone's data
_SMALL_FACTORS = 1 << 16


@dataclass(frozen=True)
class PublicKey:
    """The modulus n; ciphertexts are units modulo n^2."""

    n: int

    @cached_property
    def square(self) -> int:
        return self.n * self.n

    @property
    def bits(self) -> int:
        return self.n.bit_length()

    @property
    def width(self) -> int:
        """Bytes of a ciphertext."""
        return self.bits // 4

    def to_bytes(self) -> UInt8Array:
        return to_bytes([self.n], self.bits // 8)[0]

    def write(self, ciphertexts: list[int]) -> UInt8Array:
        """Ciphertexts as rows of little-endian bytes, all of the same width."""
        return to_bytes(ciphertexts, self.width)

    def read(self, rows: UInt8Array) -> list[int]:
        """Ciphertexts that came from outside, each in (0, n^2). That they are units remains to be seen (`halve`)."""
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise MalformedMessage("ciphertexts have another width than the key's")
        found = from_bytes(rows)
        if found and not 0 < min(found) <= max(found) < self.square:
            raise MalformedMessage("a ciphertext is zero or not below the square of the modulus")
        return found

    def read_units(self, rows: UInt8Array) -> list[int]:
        """As `read`, and each has no factor in common with the modulus."""
        found = self.read(rows)
        product = big(1)
        for value in found:
            product = product * value % self.n
        if common_divisor(product, self.n) != 1:
            raise MalformedMessage("a ciphertext has a factor in common with the modulus")
        return found


@dataclass(frozen=True)
class PrivateKey:
    """The primes. Whoever has them decrypts."""

    p: int
    q: int

    @cached_property
    def public(self) -> PublicKey:
        return PublicKey(self.p * self.q)

    def __repr__(self) -> str:
        return "PrivateKey(...)"  # never the primes, wherever it is printed


def check_key_bits(bits: int, allow_insecure: bool) -> None:
    """Refuse sizes that do not protect, unless they are asked for in so many words."""
    if bits in KEY_BITS or (allow_insecure and bits in INSECURE_KEY_BITS):
        return
    if bits in INSECURE_KEY_BITS:
        raise ImpossibleParameter(
            f"key_bits={bits} can be factored and protects nobody",
            "take 2048 or more; to compare with published figures set allow_insecure_key",
        )
    raise ImpossibleParameter(f"key_bits={bits} is not one of {', '.join(map(str, INSECURE_KEY_BITS + KEY_BITS))}")


def generate_key(bits: int, randomness: Csprng, allow_insecure: bool = False) -> PrivateKey:
    """Two independent uniform primes of half the bits, both above sqrt(1/2) of their range."""
    check_key_bits(bits, allow_insecure)
    p = _prime(bits // 2, randomness)
    q = p
    while p == q:
        q = _prime(bits // 2, randomness)
    return PrivateKey(p, q)


def _prime(bits: int, randomness: Csprng) -> int:
    # The two highest bits are set, so that the product of two has all of its bits; the lowest, so that it is odd.
    fixed = (big(3) << (bits - 2)) | 1
    while True:
        drawn = int.from_bytes(randomness.bytes(bits // 8), "little")
        if is_prime(candidate := big(drawn) | fixed):
            return candidate


def check_public_key(written: UInt8Array, bits: int) -> PublicKey:
    """The key that came from outside, or a refusal.

    Two large primes cannot be told from two with a weakness that their owner chose; a modulus that is even, short,
    prime, a power, or has a small factor can, and would let the answers' masks fall off.
    """
    if written.shape != (bits // 8,):
        raise MalformedMessage("the public key has another size than was agreed")
    n = from_bytes(np.ascontiguousarray(written)[None])[0]
    if n.bit_length() != bits or n % 2 == 0:
        raise MalformedMessage("the public key is even or shorter than was agreed")
    if is_prime(n) or is_perfect_power(n) or common_divisor(n, factorial_of_primes(_SMALL_FACTORS)) != 1:
        raise MalformedMessage("the public key is not a product of two large primes")
    return PublicKey(n)
