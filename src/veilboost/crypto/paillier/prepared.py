"""Encryption done beforehand: encryptions of zero, of which one multiplication each makes encryptions of anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from veilboost.crypto.csprng import Csprng, JobRandomness
from veilboost.crypto.paillier.integers import from_bytes, to_bytes
from veilboost.crypto.paillier.keys import INSECURE_KEY_BITS, KEY_BITS, PrivateKey
from veilboost.crypto.paillier.owner import Owner
from veilboost.errors import MalformedMessage

_LATER_DRAWS = 100_000  # decides only how large a table of masks pays


class PreparedOwner(Owner):
    """An owner with a stock of encryptions of zero. Each is used once; when they are gone, it encrypts as usual.

    (1 + m*n) times an encryption of zero is an encryption of m, as fresh as the zero was. So what is kept says nothing
    of what will be encrypted, and need not know it: neither labels nor common rows.
    """

    def __init__(self, key: PrivateKey, zeros: list[int], randomness: Csprng) -> None:
        super().__init__(key, 1, randomness)
        self._key, self._zeros = key, zeros
        self._later: Owner | None = None  # with tables, which take their time, where the stock does not suffice

    @staticmethod
    def prepare(key: PrivateKey, count: int, randomness: Csprng) -> PreparedOwner:
        """Make so many: the slow part of encrypting as many numbers."""
        made = PreparedOwner(key, [], randomness)
        made._zeros = Owner(key, count, randomness).encrypt([0] * count, randomness)
        return made

    def __getstate__(self) -> dict[str, Any]:
        """A copy, as another process gets it, has no stock: two numbers under one zero would show their difference."""
        return {**self.__dict__, "_zeros": []}

    @property
    def left(self) -> int:
        return len(self._zeros)

    def encrypt(self, plaintexts: Sequence[int], randomness: Csprng) -> list[int]:
        n, square = self.public.n, self.public.square
        ready = min(len(plaintexts), len(self._zeros))
        taken = [self._zeros.pop() for _ in range(ready)]
        made = [(1 + plain % n * n) * zero % square for plain, zero in zip(plaintexts, taken, strict=False)]
        if ready == len(plaintexts):
            return made
        if self._later is None:
            self._later = Owner(self._key, _LATER_DRAWS, randomness)
        return made + self._later.encrypt(plaintexts[ready:], randomness)

    def to_bytes(self) -> bytes:
        """The key and the stock, as secret as the key: bits of the modulus, both primes, the zeros."""
        bits = self.public.bits
        primes = to_bytes([self._key.p, self._key.q], bits // 16)
        return bits.to_bytes(4, "little") + primes.tobytes() + self.public.write(self._zeros).tobytes()

    @staticmethod
    def from_bytes(content: bytes) -> PreparedOwner:
        bits, body = int.from_bytes(content[:4], "little"), np.frombuffer(content, dtype=np.uint8)[4:]
        if bits not in KEY_BITS + INSECURE_KEY_BITS or len(body) < bits // 8 or (len(body) - bits // 8) % (bits // 4):
            raise MalformedMessage("what was prepared cannot be read", "prepare the job again")
        p, q = from_bytes(body[: bits // 8].reshape(2, -1))
        key = PrivateKey(p, q)
        return PreparedOwner(key, key.public.read(body[bits // 8 :].reshape(-1, bits // 4)), Csprng())


class PreparedRandomness(JobRandomness):
    """The randomness of a job of which part was drawn beforehand: a key pair and its stock."""

    def __init__(self, key: bytes | None, owner: PreparedOwner) -> None:
        super().__init__(key)
        self.owner = owner
