"""CLWW (Chenette, Lewi, Weis, Wu 2016): one trit per bit. The baseline: tiny, fast, and it tells the most.

u_i = F(k, i, b_1 .. b_{i-1}) + b_i mod 3. Two values agree in u up to the first bit in which they differ, and there the
larger one is one ahead. Comparison needs no key by itself, so the trits are sealed under the comparison key.
"""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from veilboost.crypto.csprng import Csprng
from veilboost.crypto.ore.api import SEAL_BYTES, OreKeys, OreScheme, pack_trits, packed_size, seal, unpack_trits, unseal
from veilboost.types import UInt8Array

_BLOCK = 16


class Clww(OreScheme):
    """Trits of pseudo-random functions of prefixes."""

    name = "clww"
    leakage = "which values are equal, and the number of the first bit in which two values differ"

    @property
    def size(self) -> int:
        return packed_size(self.bits) + SEAL_BYTES

    def encrypt(self, keys: OreKeys, value: int, random: Csprng) -> bytes:
        self._check_value(value)
        blocks = bytearray()
        for at in range(self.bits):
            below = self.bits - at  # bits from position `at` on are cleared
            blocks += at.to_bytes(8, "big") + (value >> below << below).to_bytes(8, "big")
        encryptor = Cipher(algorithms.AES(keys.master), modes.ECB()).encryptor()  # noqa: S305 - a pseudo-random function
        words = np.frombuffer(encryptor.update(bytes(blocks)), "<u8")[:: _BLOCK // 8]
        bits = np.array([value >> (self.bits - 1 - at) & 1 for at in range(self.bits)], dtype=np.uint64)
        trits = (words % 3 + bits) % 3
        return seal(keys.comparison, pack_trits(trits.astype(np.uint8)), random)

    def compare(self, comparison: bytes, first: bytes, second: bytes) -> int:
        self._check_size(first, second)
        one, other = self._trits(comparison, first), self._trits(comparison, second)
        different = np.flatnonzero(one != other)
        if not len(different):
            return 0
        at = different[0]
        return 1 if (int(one[at]) - int(other[at])) % 3 == 1 else -1

    def first_difference(self, comparison: bytes, first: bytes, second: bytes) -> range:
        self._check_size(first, second)
        different = np.flatnonzero(self._trits(comparison, first) != self._trits(comparison, second))
        return range(int(different[0]), int(different[0]) + 1) if len(different) else range(self.bits, self.bits)

    def _trits(self, comparison: bytes, ciphertext: bytes) -> UInt8Array:
        return unpack_trits(unseal(comparison, ciphertext), self.bits)
