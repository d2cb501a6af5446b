"""What only the key's owner can do: encrypt quickly, and decrypt. Both work modulo p^2 and q^2 and join the results."""

from __future__ import annotations

from collections.abc import Sequence

from veilboost.crypto.csprng import Csprng
from veilboost.crypto.paillier.halves import join
from veilboost.crypto.paillier.integers import big, common_divisor, factorial_of_primes, power, powers
from veilboost.crypto.paillier.keys import PrivateKey
from veilboost.crypto.paillier.residues import MARGIN, ResidueTable, ladder, window_for

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
