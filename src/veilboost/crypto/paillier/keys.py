"""Paillier keys: two secret primes and their public product.

The owner of the primes encrypts faster and decrypts: both work modulo p^2 and q^2 and combine the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
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
    is_perfect_power,
    is_prime,
    join,
    ladder,
    power,
    powers,
    to_bytes,
    window_for,
)
from veilboost.errors import InvalidParameter, MalformedMessage
from veilboost.types import UInt8Array

KEY_BITS = (2048, 3072)
INSECURE_KEY_BITS = (512, 1024)  # the papers' sizes: for comparisons, never for real data
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
        """Read ciphertexts of a peer, each in (0, n^2). `halve` checks that they are units."""
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise MalformedMessage("ciphertexts have another width than the key")
        found = from_bytes(rows)
        if found and not 0 < min(found) <= max(found) < self.square:
            raise MalformedMessage("a ciphertext is zero or not below the square of the modulus")
        return found

    def read_units(self, rows: UInt8Array) -> list[int]:
        """Like `read`; also checks that each is coprime to the modulus."""
        found = self.read(rows)
        product = big(1)
        for value in found:
            product = product * value % self.n
        if common_divisor(product, self.n) != 1:
            raise MalformedMessage("a ciphertext has a factor in common with the modulus")
        return found


@dataclass(frozen=True)
class PrivateKey:
    """The primes, which allow decryption."""

    p: int
    q: int

    @cached_property
    def public(self) -> PublicKey:
        return PublicKey(self.p * self.q)

    def __repr__(self) -> str:
        return "PrivateKey(...)"  # never print the primes


def check_key_bits(bits: int, allow_insecure: bool) -> None:
    """Refuse insecure sizes, unless they are explicitly allowed."""
    if bits in KEY_BITS or (allow_insecure and bits in INSECURE_KEY_BITS):
        return
    if bits in INSECURE_KEY_BITS:
        raise InvalidParameter(
            f"key_bits={bits} can be factored and protects nobody",
            "use 2048 or 3072; to compare with published figures, set allow_insecure_key",
        )
    sizes = ", ".join(map(str, INSECURE_KEY_BITS + KEY_BITS))
    raise InvalidParameter(f"key_bits={bits} is not one of {sizes}", "set key_bits to 2048 or 3072")


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
    """Read and check a peer's key.

    A weakness that the owner chose in two large primes cannot be detected. A modulus that is even, short, prime, a
    power, or has a small factor can be detected; it would remove the masks of answers.
    """
    if written.shape != (bits // 8,):
        raise MalformedMessage("the public key does not have the agreed size")
    n = from_bytes(np.ascontiguousarray(written)[None])[0]
    if n.bit_length() != bits or n % 2 == 0:
        raise MalformedMessage("the public key is even or shorter than agreed")
    if is_prime(n) or is_perfect_power(n) or common_divisor(n, factorial_of_primes(_SMALL_FACTORS)) != 1:
        raise MalformedMessage("the public key is not a product of two large primes")
    return PublicKey(n)


class Owner:
    """Holds the key and tables sized for `draws` encryptions; more are possible at the same cost."""

    def __init__(self, key: PrivateKey, draws: int, randomness: Csprng) -> None:
        self.public = key.public
        self._p = PrimeFactor(key.p, key.q, draws, randomness)
        self._q = PrimeFactor(key.q, key.p, draws, randomness)
        self._back_square = power(self._q.square, -1, self._p.square)
        self._back = power(key.q, -1, key.p)

    def encrypt(self, plaintexts: Sequence[int], randomness: Csprng) -> list[int]:
        """(1 + m*n) * u with u a uniform n-th residue; plaintexts are reduced modulo n, so they may be negative."""
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


class PrimeFactor:
    """The arithmetic modulo the square of one of the primes; n = prime * other."""

    def __init__(self, prime: int, other: int, draws: int, randomness: Csprng) -> None:
        self.prime = prime
        self.square = prime * prime
        self._other = other
        # c^(p-1) = 1 - m*other*p modulo p^2, so m is (that - 1) / p times this.
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
    """A p-th residue modulo p^2 that generates all of them, except with probability about 2^-19.

    It is not a power of any prime below 2^16 that divides p - 1. A larger prime r could make its group smaller with
    probability 1 / r, and divides p - 1 with probability about 1 / r.
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


# --- encryptions of zero made in advance: one multiplication turns each into an encryption of any value ------------


_LATER_DRAWS = 100_000  # determines only the size of the table of masks


class PreparedOwner(Owner):
    """An owner with a stock of encryptions of zero. Each is used once; then it encrypts as usual.

    (1 + m*n) times an encryption of zero is an encryption of m, as fresh as the zero was. So the stock does not depend
    on the values to encrypt, neither on labels nor on aligned rows, and reveals nothing about them.
    """

    def __init__(self, key: PrivateKey, zeros: list[int], randomness: Csprng) -> None:
        super().__init__(key, 1, randomness)
        self._key, self._zeros = key, zeros
        self._later: Owner | None = None  # with tables, built only if the stock is used up

    @staticmethod
    def prepare(key: PrivateKey, count: int, randomness: Csprng) -> PreparedOwner:
        """Make `count` encryptions of zero: the slow part of encrypting as many numbers."""
        made = PreparedOwner(key, [], randomness)
        made._zeros = Owner(key, count, randomness).encrypt([0] * count, randomness)
        return made

    def __getstate__(self) -> dict[str, Any]:
        """A copy for another process has no stock: two numbers under one zero would reveal their difference."""
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
            raise MalformedMessage("the prepared key cannot be read", "prepare the job again")
        p, q = from_bytes(body[: bits // 8].reshape(2, -1))
        key = PrivateKey(p, q)
        return PreparedOwner(key, key.public.read(body[bits // 8 :].reshape(-1, bits // 4)), Csprng())


class PreparedRandomness(JobRandomness):
    """The randomness of a job with a key pair and a stock prepared in advance."""

    def __init__(self, key: bytes | None, owner: PreparedOwner) -> None:
        super().__init__(key)
        self.owner = owner
