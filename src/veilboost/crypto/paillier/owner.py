"""What only the key's owner can do: encrypt quickly, and decrypt. Both work modulo p^2 and q^2 and join the results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from veilboost.crypto.csprng import Csprng, JobRandomness
from veilboost.crypto.paillier.integers import (
    MARGIN,
    ResidueTable,
    big,
    common_divisor,
    factorial_of_primes,
    from_bytes,
    join,
    ladder,
    power,
    powers,
    to_bytes,
    window_for,
)
from veilboost.crypto.paillier.keys import INSECURE_KEY_BITS, KEY_BITS, PrivateKey
from veilboost.errors import MalformedMessage

_SMALL_FACTORS = 1 << 16


class Owner:
    """Holds the key and the tables for `draws` encryptions (more are possible, and cost no more)."""

    def __init__(self, key: PrivateKey, draws: int, randomness: Csprng) -> None:
        self.public = key.public
        self._p = PrimeSide(key.p, key.q, draws, randomness)
        self._q = PrimeSide(key.q, key.p, draws, randomness)
        self._back_square = power(self._q.square, -1, self._p.square)
        self._back = power(key.q, -1, key.p)

    def encrypt(self, plaintexts: Sequence[int], randomness: Csprng) -> list[int]:
        """(1 + m*n) * u with u a uniform n-th residue; plaintexts are taken modulo n, so they may be negative."""
        p, q = self._p, self._q
        return [
            _crt(cp, cq, p.square, q.square, self._back_square)
            for cp, cq in zip(p.encrypt(plaintexts, randomness), q.encrypt(plaintexts, randomness), strict=True)
        ]

    def decrypt(self, ciphertexts: Sequence[int], threads: int = 1) -> list[int]:
        """Plaintexts in [0, n)."""
        p, q = self._p, self._q
        return [
            _crt(mp, mq, p.prime, q.prime, self._back)
            for mp, mq in zip(p.decrypt(ciphertexts, threads), q.decrypt(ciphertexts, threads), strict=True)
        ]


class PrimeSide:
    """The arithmetic modulo the square of one of the primes; n = prime * other."""

    def __init__(self, prime: int, other: int, draws: int, randomness: Csprng) -> None:
        self.prime = prime
        self.square = prime * prime
        self._other = other
        # c^(p-1) = 1 - m*other*p modulo p^2, so m is what follows the 1, times this.
        self._scale = power(-other, -1, prime)
        bits = prime.bit_length() + MARGIN
        window = window_for(bits, draws)
        bases = ladder(_generator(prime, randomness), bits, window, self.square)
        self._residues = ResidueTable(prime, bases, window)

    def encrypt(self, plaintexts: Sequence[int], randomness: Csprng) -> list[int]:
        drawn = self._residues.draw(len(plaintexts), randomness)
        return [
            join(x, t + plaintext * self._other, self.prime, self.square)
            for plaintext, (x, t) in zip(plaintexts, drawn, strict=True)
        ]

    def decrypt(self, ciphertexts: Sequence[int], threads: int) -> list[int]:
        prime = self.prime
        raised = powers([value % self.square for value in ciphertexts], prime - 1, self.square, threads)
        return [(value - 1) // prime * self._scale % prime for value in raised]


def _generator(prime: int, randomness: Csprng) -> int:
    """A p-th residue modulo p^2 that generates them all, but for a chance of about 2^-19.

    It is no power of any prime below 2^16 that divides p - 1; a larger one could make its group smaller, with a
    chance of one over itself, and divides p - 1 with another such chance.
    """
    order = prime - 1
    small = _small_prime_factors(order)
    while True:
        drawn = int.from_bytes(randomness.bytes(prime.bit_length() // 8 + MARGIN // 8), "little")
        base = power(big(drawn), prime, prime * prime)
        if all(power(base, order // factor, prime) not in (0, 1) for factor in small):
            return base


def _small_prime_factors(value: int) -> list[int]:
    shared = common_divisor(value, factorial_of_primes(_SMALL_FACTORS))
    found: list[int] = []
    candidate = 2
    while shared > 1:
        if shared % candidate == 0:
            found.append(candidate)
            shared //= candidate
        candidate += 1
    return found


def _crt(at_p: int, at_q: int, p: int, q: int, q_inverse: int) -> int:
    """The number that is `at_p` modulo p and `at_q` modulo q (Garner)."""
    return at_q + q * ((at_p - at_q) * q_inverse % p)


# --- encryptions of zero made beforehand: one multiplication each makes an encryption of anything ------------------


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
