"""Parameter-hiding order-revealing encryption without pairings (Peng, Chen, Wang, He, Huang; PKC 2024).

The fidelity option of MAL. Every bit is encoded as CLWW does, and the codes are carried in pairs of Schnorr responses
with randomness of their own for each bit; bits are shuffled. Who holds the comparison key tests a pair of bits of two
ciphertexts for "the one code is the other plus one", which holds only at the first differing bit, and sees neither
where it is nor whether earlier bits agree. Randomness per bit is essential: with one draw per ciphertext, ratios of
differences of responses give the position away without any key.

The group is the prime-order subgroup of edwards25519, by libsodium. A comparison tests up to n^2 pairs of bits, each by
eight multiplications: seconds for 64 bits.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import NamedTuple

import numpy as np
from nacl import bindings, exceptions

from veilboost.crypto.csprng import Csprng
from veilboost.crypto.ore.api import OreKeys, OreScheme, derive
from veilboost.errors import MalformedMessage

ORDER = 2**252 + 27742317777372353535851937790883648493  # of the subgroup
_PART = 32
_PARTS = 7  # G0, G1, Y0, Y1, z0, z1, hidden xi


class _Bit(NamedTuple):
    """One bit of a ciphertext, with its challenge opened. Names as in the paper; y0 and y1 are Y^ there."""

    g0: bytes
    g1: bytes
    y0: bytes
    y1: bytes
    z0: int
    z1: int
    xi: int


class Pore(OreScheme):
    """Schnorr responses per bit."""

    name = "pore"
    leakage = "the shape of the binary tree of the values, without its levels"

    @property
    def size(self) -> int:
        return self.bits * _PARTS * _PART

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
            xi = _scalar(hashlib.sha512(b"challenge" + _spell(u0) + w0 + _spell(u1) + w1).digest())
            z0, z1 = (r0 * u0 - xi * x0) % ORDER, (r1 * u1 - xi * x1) % ORDER
            # r0 belongs to G1 and Y1, r1 to G0 and Y0: responses of the same kind can then not be tested.
            points = (_base(r1), _base(r0), _times(big_y0, r1), _times(big_y1, r0))
            pieces += [*points, _spell(z0), _spell(z1), _xor(_spell(xi), _pad(keys.comparison, z0, z1))]
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
        for start in range(0, len(ciphertext), _PARTS * _PART):
            parts = [ciphertext[start + at * _PART : start + (at + 1) * _PART] for at in range(_PARTS)]
            z0, z1 = (int.from_bytes(part, "little") for part in parts[4:6])
            xi = int.from_bytes(_xor(parts[6], _pad(comparison, z0, z1)), "little")
            if max(z0, z1, xi) >= ORDER:
                raise MalformedMessage("a ciphertext is not one of this comparison key")
            bits.append(_Bit(parts[0], parts[1], parts[2], parts[3], z0, z1, xi))
        return bits


def _scalar(uniform: bytes) -> int:
    """64 uniform bytes as a scalar that is not zero."""
    return int.from_bytes(uniform, "little") % (ORDER - 1) + 1


def _code_hash(key: bytes, code: int) -> int:
    return _scalar(hmac.digest(key, (code % 2**256).to_bytes(32, "big"), "sha512"))


def _pad(comparison: bytes, z0: int, z1: int) -> bytes:
    """What hides a challenge from everybody without the comparison key."""
    return hmac.digest(comparison, b"challenge" + _spell(z0) + _spell(z1), "sha256")


def _spell(scalar: int) -> bytes:
    return scalar.to_bytes(_PART, "little")


def _xor(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one, "little") ^ int.from_bytes(other, "little")).to_bytes(_PART, "little")


def _base(scalar: int) -> bytes:
    return bindings.crypto_scalarmult_ed25519_base_noclamp(_spell(scalar))


def _times(point: bytes, scalar: int) -> bytes:
    try:
        return bindings.crypto_scalarmult_ed25519_noclamp(_spell(scalar), point)
    except exceptions.RuntimeError:
        raise MalformedMessage("a ciphertext holds what is no point of the group") from None


def _sum(first: bytes, by: int, second: bytes, times: int) -> bytes:
    return bindings.crypto_core_ed25519_add(_times(first, by), _times(second, times))
