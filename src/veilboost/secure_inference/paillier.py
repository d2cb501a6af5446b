"""Secure inference with Paillier encryption, as published: a ciphertext for every attribute of every node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veilboost.crypto.csprng import Csprng
from veilboost.crypto.paillier.ciphertexts import Blinder
from veilboost.crypto.paillier.integers import big, from_bytes, inverses, power, to_bytes
from veilboost.crypto.paillier.keys import Owner, PrivateKey, PublicKey, check_public_key, generate_key
from veilboost.errors import MalformedMessage
from veilboost.secure_inference.attributes import MISSING
from veilboost.types import BoolArray, Int64Array, UInt8Array

# Decoys are plus or minus this, beyond all values: their sign is random and reveals nothing about a user's value.
DECOY = 4 * MISSING
_DIFFERENCE_BITS = (DECOY + MISSING).bit_length()
_LEAST_FACTOR = _DIFFERENCE_BITS + 40  # bits; with a smaller factor, common divisors of several answers could be found
_TABLE_DRAWS = 20_000  # only determines the best size of the table of masks


def generate_pair(randomness: Csprng, bits: int, allow_insecure: bool) -> tuple[bytes, bytes]:
    key = generate_key(bits, randomness, allow_insecure)
    return to_bytes([key.p, key.q], bits // 16).tobytes(), key.public.to_bytes().tobytes()


class PaillierPublic:
    """Encrypts nodes and rows, and blinds their differences (ELXGB Alg. 5, lines 1 to 9)."""

    def __init__(self, key: bytes, size: int) -> None:
        self._key = check_public_key(np.frombuffer(key, dtype=np.uint8), 8 * len(key))
        self._size = size
        self._most_factor = self._key.bits - _DIFFERENCE_BITS - 3
        self._random = Csprng()
        self._blinder = Blinder(self._key, _TABLE_DRAWS, self._random)

    def encrypt_nodes(self, nodes: Sequence[tuple[int, int]]) -> UInt8Array:
        plain: list[int] = []
        for serial, threshold in nodes:
            coins = np.unpackbits(np.frombuffer(self._random.bytes(-(-self._size // 8)), dtype=np.uint8))
            slots = [DECOY if coin else -DECOY for coin in coins[: self._size].tolist()]
            slots[serial - 1] = threshold
            plain += [serial, *slots]
        return self._rows(self._encrypt(plain), self._size + 1)

    def encrypt_rows(self, values: Int64Array) -> UInt8Array:
        return self._rows(self._encrypt([-value for value in values.ravel().tolist()]), self._size)  # eq. (6)

    def check_nodes(self, rows: UInt8Array) -> None:
        _ciphertexts(self._key, rows, self._size + 1)

    def check_rows(self, rows: UInt8Array) -> None:
        _ciphertexts(self._key, rows, self._size)

    def blind(
        self, nodes: UInt8Array, rows: UInt8Array, at_nodes: Int64Array, of_rows: Int64Array
    ) -> tuple[UInt8Array, BoolArray]:
        key, size = self._key, self._size
        flipped = np.frombuffer(self._random.bytes(len(at_nodes)), dtype=np.uint8) >= 128  # line 3: s
        blinded: list[int] = []
        for at, of, flip in zip(at_nodes.tolist(), of_rows.tolist(), flipped.tolist(), strict=True):
            # `check_nodes` and `check_rows` verified that they are units.
            node, row = key.read(nodes[at].reshape(-1, key.width)), key.read(rows[of].reshape(-1, key.width))
            slots: list[int] = []
            for threshold, value in zip(node[1:], row, strict=True):
                factor = self._factor()  # line 6, per slot
                difference = power(threshold * value % key.square, factor, key.square)  # lines 5 and 8
                slots.append(difference * (1 + self._below(factor) * key.n) % key.square)
            # Line 8, the exponent s; line 2: re-randomised, so that the CSP cannot recognise a node.
            blinded += [node[0], *(inverses(slots, key.square) if flip else slots)]
        return self._rows(self._blinder.blind(blinded, self._random), size + 1), flipped

    def _encrypt(self, plain: Sequence[int]) -> list[int]:
        n = self._key.n
        return self._blinder.blind([(1 + big(value) * n) % self._key.square for value in plain], self._random)

    def _rows(self, ciphertexts: list[int], entries: int) -> UInt8Array:
        return self._key.write(ciphertexts).reshape(-1, entries * self._key.width)

    def _factor(self) -> int:
        """n1: its length is uniform, so the size of a product reveals little about the size of a difference."""
        lengths = self._most_factor - _LEAST_FACTOR + 1
        bits = _LEAST_FACTOR + int.from_bytes(self._random.bytes(16), "little") % lengths
        return big(1 << (bits - 1)) | big(
            int.from_bytes(self._random.bytes(bits // 8 + 1), "little") % (1 << (bits - 1))
        )

    def _below(self, factor: int) -> int:
        """n2, uniform in [1, n1): then the value modulo the difference reveals nothing."""
        drawn = int.from_bytes(self._random.bytes(factor.bit_length() // 8 + 17), "little")
        return 1 + big(drawn) % (factor - 1)


class PaillierSecret:
    """Decrypts the attribute's number and then its slot (ELXGB Alg. 5, lines 10 to 15)."""

    def __init__(self, key: bytes, size: int, threads: int = 1) -> None:
        p, q = from_bytes(np.frombuffer(key, dtype=np.uint8).reshape(2, -1))
        self._private = PrivateKey(p, q)
        self._owner = Owner(self._private, 1, Csprng())
        self._size, self._threads = size, threads

    def directions(self, blinded: UInt8Array) -> BoolArray:
        public, size = self._private.public, self._size
        every = _ciphertexts(public, blinded, size + 1)
        serials = self._owner.decrypt(every[:: size + 1], self._threads)
        if any(not 1 <= serial <= size for serial in serials):
            raise MalformedMessage("a node has an attribute that is not in the directory")
        chosen = [every[pair * (size + 1) + int(serial)] for pair, serial in enumerate(serials)]
        values = self._owner.decrypt(chosen, self._threads)
        return np.array([2 * value < public.n for value in values], dtype=np.bool_)


def _ciphertexts(key: PublicKey, rows: UInt8Array, entries: int) -> list[int]:
    if rows.ndim != 2 or rows.shape[1] != entries * key.width:
        raise MalformedMessage("the ciphertexts have another key or the wrong number of attributes")
    return key.read_units(np.ascontiguousarray(rows).reshape(-1, key.width))
