"""The schemes of order-revealing encryption: CLWW, Lewi-Wu, and one that hides parameters."""

from __future__ import annotations

import hashlib
import hmac
from typing import NamedTuple

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from nacl import bindings, exceptions

from veilboost.crypto.csprng import Csprng
from veilboost.crypto.ore.api import (
    SEAL_BYTES,
    OreKeys,
    OreScheme,
    derive,
    pack_trits,
    packed_size,
    seal,
    unpack_trits,
    unseal,
)
from veilboost.errors import InvalidParameter, MalformedMessage
from veilboost.types import AnyArray, UInt8Array

_BLOCK = 16


class Clww(OreScheme):
    """CLWW (Chenette, Lewi, Weis, Wu 2016): one trit per bit. The baseline: small, fast, and it reveals the most.

    u_i = F(k, i, b_1 .. b_{i-1}) + b_i mod 3. Two values agree in u up to the first bit in which they differ; there the
    larger one is one ahead. Comparing needs no key, so the trits are sealed under the comparison key.
    """

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
        words = np.frombuffer(_aes(keys.master, bytes(blocks)), "<u8")[:: _BLOCK // 8]
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


SLOTS = 256
SECRET_BYTES = 16
_EQUAL, _ABOVE, _BELOW = 0, 1, 2  # of a left value compared with a right one
# _COMPARED[y, x]: how x compares with y.
_COMPARED = np.array([_ABOVE, _EQUAL, _BELOW], dtype=np.uint8)[
    1 - np.sign(np.arange(SLOTS) - np.arange(SLOTS)[:, None])
]
_ANSWER = {_EQUAL: 0, _ABOVE: 1, _BELOW: -1}
_RIGHT_BLOCK = packed_size(SLOTS)
# The inputs of a block's pseudo-random function, without its number and prefix: 256 for the slots' secrets and 256 for
# the order of the permutation.
_INPUTS = np.zeros((2 * SLOTS, SECRET_BYTES), dtype=np.uint8)
_INPUTS[:, 0], _INPUTS[:, 1] = np.arange(2 * SLOTS) % SLOTS, np.arange(2 * SLOTS) // SLOTS


class LewiWu(OreScheme):
    """Lewi and Wu 2016 with blocks of 8 bits: the default.

    A secret permutation p that depends on the preceding blocks hides a block's value x among its 256 possible values.

        left   for every block: the slot p(x), and the slot's secret F(k, prefix, p(x))
        right  for every block and slot j: trit CMP(p^-1(j), y) + H(F(k, prefix, j), r) mod 3, with a fresh r

    The left half opens one trit of each block of a right half, which is the comparison of the two blocks if all
    preceding blocks are equal. Two left halves cannot be compared, and a right half alone reveals nothing. Both are
    sealed under the comparison key, so that nobody can compare without it.
    """

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
        """The first block in which the values differ, and their order."""
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
    """AES on every block separately: a pseudo-random function if no input occurs twice."""
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(blocks)  # noqa: S305


def _hash(secrets: AnyArray, nonce: bytes) -> UInt8Array:
    """H(secret, nonce) as a trit: AES under the nonce, fed forward so that it cannot be inverted."""
    content = np.ascontiguousarray(secrets)
    mixed = np.frombuffer(_aes(nonce, content.tobytes()), np.uint8).reshape(content.shape) ^ content
    return (mixed.view("<u8")[:, 0] % 3).astype(np.uint8)


ORDER = 2**252 + 27742317777372353535851937790883648493  # of the subgroup
_SHARE = 32
_PARTS = 7  # G0, G1, Y0, Y1, z0, z1, hidden xi


class _Bit(NamedTuple):
    """One bit of a ciphertext, with its challenge opened. Names as in the paper, which writes Y^ for y0 and y1."""

    g0: bytes
    g1: bytes
    y0: bytes
    y1: bytes
    z0: int
    z1: int
    xi: int


class Pore(OreScheme):
    """Parameter-hiding order-revealing encryption without pairings (Peng, Chen, Wang, He, Huang; PKC 2024).

    The fidelity option of MAL. Every bit is encoded as in CLWW, and the codes are embedded in pairs of Schnorr
    responses with separate randomness for each bit; bits are shuffled. The holder of the comparison key tests a pair of
    bits of two ciphertexts for "one code is the other plus one", which holds only at the first differing bit, and
    learns neither its position nor whether earlier bits agree. Randomness per bit is essential: with one draw per
    ciphertext, ratios of differences of responses reveal the position without any key.

    The group is the prime-order subgroup of edwards25519, by libsodium. A comparison tests up to n^2 pairs of bits,
    with eight multiplications each: seconds for 64 bits.
    """

    name = "pore"
    leakage = "the shape of the binary tree of the values, without its levels"

    @property
    def size(self) -> int:
        return self.bits * _PARTS * _SHARE

    def encrypt(self, keys: OreKeys, value: int, random: Csprng) -> bytes:
        self._check_value(value)
        prf_key, hash_key = derive(keys.master, "prf"), derive(keys.master, "hash")
        x0, x1 = (_scalar(hashlib.sha512(derive(keys.master, name)).digest()) for name in ("x0", "x1"))
        big_y0, big_y1 = _base(x0), _base(x1)
        pieces: list[bytes] = []
        for at in np.argsort(np.frombuffer(random.bytes(8 * self.bits), "<u8"), kind="stable").tolist():
            below = self.bits - at
            bit = value >> (below - 1) & 1
            prefix = (value >> below << below).to_bytes(8, "big")
            code = int.from_bytes(hmac.digest(prf_key, bytes([at]) + prefix, "sha256"), "big") + bit
            u0, u1 = _code_hash(hash_key, code), _code_hash(hash_key, code + 1)
            r0, r1 = _scalar(random.bytes(64)), _scalar(random.bytes(64))
            w0, w1 = _base(r0 * u0 % ORDER), _base(r1 * u1 % ORDER)
            xi = _scalar(hashlib.sha512(b"challenge" + _scalar_bytes(u0) + w0 + _scalar_bytes(u1) + w1).digest())
            z0, z1 = (r0 * u0 - xi * x0) % ORDER, (r1 * u1 - xi * x1) % ORDER
            # r0 belongs to G1 and Y1, r1 to G0 and Y0, so that responses of the same kind cannot be tested.
            points = (_base(r1), _base(r0), _times(big_y0, r1), _times(big_y1, r0))
            pieces += [
                *points,
                _scalar_bytes(z0),
                _scalar_bytes(z1),
                _xor(_scalar_bytes(xi), _pad(keys.comparison, z0, z1)),
            ]
        return b"".join(pieces)

    def compare(self, comparison: bytes, first: bytes, second: bytes) -> int:
        self._check_size(first, second)
        ours, theirs = self._open(comparison, first), self._open(comparison, second)
        for a in ours:
            for b in theirs:
                if _sum(b.g0, a.z0, b.y0, a.xi) == _sum(a.g1, b.z1, a.y1, b.xi):  # u_i = u'_j + 1
                    return 1
                if _sum(b.g1, a.z1, b.y1, a.xi) == _sum(a.g0, b.z0, a.y0, b.xi):  # u_i + 1 = u'_j
                    return -1
        return 0

    def _open(self, comparison: bytes, ciphertext: bytes) -> list[_Bit]:
        bits: list[_Bit] = []
        for start in range(0, len(ciphertext), _PARTS * _SHARE):
            parts = [ciphertext[start + at * _SHARE : start + (at + 1) * _SHARE] for at in range(_PARTS)]
            z0, z1 = (int.from_bytes(part, "little") for part in parts[4:6])
            xi = int.from_bytes(_xor(parts[6], _pad(comparison, z0, z1)), "little")
            if max(z0, z1, xi) >= ORDER:
                raise MalformedMessage("a ciphertext does not belong to this comparison key")
            bits.append(_Bit(parts[0], parts[1], parts[2], parts[3], z0, z1, xi))
        return bits


def _scalar(uniform: bytes) -> int:
    """A nonzero scalar from 64 uniform bytes."""
    return int.from_bytes(uniform, "little") % (ORDER - 1) + 1


def _code_hash(key: bytes, code: int) -> int:
    return _scalar(hmac.digest(key, (code % 2**256).to_bytes(32, "big"), "sha512"))


def _pad(comparison: bytes, z0: int, z1: int) -> bytes:
    """The pad that hides a challenge from everybody without the comparison key."""
    return hmac.digest(comparison, b"challenge" + _scalar_bytes(z0) + _scalar_bytes(z1), "sha256")


def _scalar_bytes(scalar: int) -> bytes:
    return scalar.to_bytes(_SHARE, "little")


def _xor(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one, "little") ^ int.from_bytes(other, "little")).to_bytes(_SHARE, "little")


def _base(scalar: int) -> bytes:
    return bindings.crypto_scalarmult_ed25519_base_noclamp(_scalar_bytes(scalar))


def _times(point: bytes, scalar: int) -> bytes:
    try:
        return bindings.crypto_scalarmult_ed25519_noclamp(_scalar_bytes(scalar), point)
    except exceptions.RuntimeError:
        raise MalformedMessage("a ciphertext holds a value that is not a point of the group") from None


def _sum(first: bytes, by: int, second: bytes, times: int) -> bytes:
    return bindings.crypto_core_ed25519_add(_times(first, by), _times(second, times))


_SCHEMES: tuple[type[OreScheme], ...] = (LewiWu, Pore, Clww)
SCHEMES = tuple(scheme.name for scheme in _SCHEMES)


def scheme_named(name: str, bits: int = 64) -> OreScheme:
    for scheme in _SCHEMES:
        if scheme.name == name:
            return scheme(bits)
    raise InvalidParameter(f"there is no order-revealing encryption {name!r}", f"use {', '.join(SCHEMES)}")
