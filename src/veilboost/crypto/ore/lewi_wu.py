"""Lewi and Wu 2016 with blocks of 8 bits: the default.

A block's value x is hidden among its 256 possible ones by a secret permutation p that depends on the blocks before it.

    left   for every block: the slot p(x), and the slot's secret F(k, prefix, p(x))
    right  for every block and slot j: trit CMP(p^-1(j), y) + H(F(k, prefix, j), r) mod 3, with a fresh r

The left half opens one trit of each block of a right half, which is the comparison of the two blocks as long as the
blocks before them are equal. Two left halves do not compare, and a right half alone tells nothing. Both are sealed
under the comparison key, so that nobody without it compares anything.
"""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from veilboost.crypto.csprng import Csprng
from veilboost.crypto.ore.api import SEAL_BYTES, OreKeys, OreScheme, pack_trits, packed_size, seal, unpack_trits, unseal
from veilboost.types import AnyArray, UInt8Array

SLOTS = 256
SECRET_BYTES = 16
_EQUAL, _ABOVE, _BELOW = 0, 1, 2  # of a left value against a right one
# _COMPARED[y, x]: how x compares with y.
_COMPARED = np.array([_ABOVE, _EQUAL, _BELOW], dtype=np.uint8)[
    1 - np.sign(np.arange(SLOTS) - np.arange(SLOTS)[:, None])
]
_ANSWER = {_EQUAL: 0, _ABOVE: 1, _BELOW: -1}
_RIGHT_BLOCK = packed_size(SLOTS)
# The inputs of a block's pseudo-random function, but for its number and prefix: 256 for the slots' secrets and 256 for
# the order of the permutation.
_INPUTS = np.zeros((2 * SLOTS, SECRET_BYTES), dtype=np.uint8)
_INPUTS[:, 0], _INPUTS[:, 1] = np.arange(2 * SLOTS) % SLOTS, np.arange(2 * SLOTS) // SLOTS


class LewiWu(OreScheme):
    """Left and right halves of 8-bit blocks."""

    name = "lewi_wu"
    leakage = "which values are equal, and the number of the first byte in which two values differ"

    @property
    def blocks(self) -> int:
        return self.bits // 8

    @property
    def size(self) -> int:
        left = self.blocks * (1 + SECRET_BYTES)
        right = SECRET_BYTES + self.blocks * _RIGHT_BLOCK
        return left + right + SEAL_BYTES

    def encrypt(self, keys: OreKeys, value: int, random: Csprng) -> bytes:
        self._check_value(value)
        digits = np.frombuffer(value.to_bytes(self.blocks, "big"), np.uint8)
        nonce = random.bytes(SECRET_BYTES)
        inputs = np.repeat(_INPUTS[None], self.blocks, axis=0)
        for at in range(self.blocks):
            inputs[at, :, 2] = at
            inputs[at, :, 3 : 3 + at] = digits[:at]
        drawn = np.frombuffer(_aes(keys.master, inputs.tobytes()), np.uint8).reshape(inputs.shape)
        value_of_slot = drawn[:, SLOTS:].view("<u8")[..., 0].argsort(axis=1)
        slot = (value_of_slot == digits[:, None]).argmax(axis=1)
        blocks = np.arange(self.blocks)
        left = np.column_stack((slot.astype(np.uint8), drawn[blocks, slot]))
        compared = _COMPARED[digits[:, None], value_of_slot]
        hidden = _hash(drawn[:, :SLOTS].reshape(-1, SECRET_BYTES), nonce).reshape(compared.shape)
        right = nonce + pack_trits((compared + hidden) % 3)
        return seal(keys.comparison, left.tobytes() + right, random)

    def compare(self, comparison: bytes, first: bytes, second: bytes) -> int:
        return self._compared(comparison, first, second)[1]

    def first_difference(self, comparison: bytes, first: bytes, second: bytes) -> range:
        block, answer = self._compared(comparison, first, second)
        return range(8 * block, 8 * block + 8 if answer else self.bits)

    def _compared(self, comparison: bytes, first: bytes, second: bytes) -> tuple[int, int]:
        """The first block in which the values differ, and how."""
        self._check_size(first, second)
        left, right = unseal(comparison, first), unseal(comparison, second)
        halves = np.frombuffer(left, np.uint8, self.blocks * (1 + SECRET_BYTES)).reshape(self.blocks, -1)
        trits_at = halves.size
        nonce = right[trits_at : trits_at + SECRET_BYTES]
        opened = _hash(halves[:, 1:], nonce)
        for at in range(self.blocks):
            start = trits_at + SECRET_BYTES + at * _RIGHT_BLOCK
            trit = unpack_trits(right[start : start + _RIGHT_BLOCK], SLOTS)[halves[at, 0]]
            answer = (int(trit) - int(opened[at])) % 3
            if answer != _EQUAL:
                return at, _ANSWER[answer]
        return self.blocks, 0


def _aes(key: bytes, blocks: bytes) -> bytes:
    """AES on every block by itself: a pseudo-random function as long as no input comes twice."""
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(blocks)  # noqa: S305


def _hash(secrets: AnyArray, nonce: bytes) -> UInt8Array:
    """H(secret, nonce) as a trit: AES under the nonce, fed forward so that it cannot be inverted."""
    content = np.ascontiguousarray(secrets)
    mixed = np.frombuffer(_aes(nonce, content.tobytes()), np.uint8).reshape(content.shape) ^ content
    return (mixed.view("<u8")[:, 0] % 3).astype(np.uint8)
