"""Secure inference's lattice encryption in NumPy, by its definition: what the C++ engines must equal byte by byte."""

from __future__ import annotations

from functools import cache

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from veilboost.secure_inference.lattice import DEGREE, PRIMES

ROOTS = (4732080483711, 3833382005217, 534283243764, 1507580726352, 3761857733064)
_BITS = 43


def times(a, b, prime):
    """a * b modulo a prime of 43 bits, fifteen bits of b at a time."""
    p, a, b = np.uint64(prime), np.asarray(a, dtype=np.uint64), np.asarray(b, dtype=np.uint64)
    part, low = np.uint64(15), np.uint64((1 << 15) - 1)
    found = a * (b >> np.uint64(30)) % p
    found = ((found << part) + a * (b >> part & low)) % p
    return ((found << part) + a * (b & low)) % p


@cache
def _powers(at):
    """Powers of the root in bit-reversed order."""
    prime, powers = PRIMES[at], [1]
    for _ in range(DEGREE - 1):
        powers.append(powers[-1] * ROOTS[at] % prime)
    bits = DEGREE.bit_length() - 1
    return np.array([powers[int(f"{k:0{bits}b}"[::-1], 2)] for k in range(DEGREE)], dtype=np.uint64)


def forward(coefficients, at):
    """Values at the roots, in bit-reversed order, of whole numbers (N,) modulo one prime."""
    prime, p = PRIMES[at], np.uint64(PRIMES[at])
    values = (np.asarray(coefficients, dtype=np.int64) % prime).astype(np.uint64)
    groups = 1
    while groups < DEGREE:
        pairs = values.reshape(groups, 2, -1)
        high = times(pairs[:, 1], _powers(at)[groups : 2 * groups, None], prime)
        values = np.stack(((pairs[:, 0] + high) % p, (pairs[:, 0] + p - high) % p), axis=1).ravel()
        groups *= 2
    return values


def unpack(packed):
    """Whole polynomials: (polynomials, primes, N)."""
    bits = np.unpackbits(np.asarray(packed, dtype=np.uint8).reshape(-1, _BITS), axis=1, bitorder="little")
    weights = np.uint64(1) << np.arange(_BITS, dtype=np.uint64)
    return (bits.reshape(-1, _BITS) * weights).sum(axis=1).reshape(-1, len(PRIMES), DEGREE)


def pack(values):
    bits = (np.asarray(values, dtype=np.uint64).ravel()[:, None] >> np.arange(_BITS, dtype=np.uint64)) & np.uint64(1)
    return np.packbits(bits.astype(np.uint8).ravel(), bitorder="little")


class Stream:
    """ChaCha20 of a key and the number of a stream, read in words of 64 bits."""

    def __init__(self, key, stream):
        nonce = bytes(4) + stream.to_bytes(8, "little") + bytes(4)
        self._cipher = Cipher(algorithms.ChaCha20(key, nonce), mode=None).encryptor()

    def words(self, count):
        return np.frombuffer(self._cipher.update(bytes(8 * count)), dtype="<u8")

    def errors(self):
        words, mask = self.words(DEGREE), np.uint64((1 << 21) - 1)
        heads, tails = (np.bitwise_count(word & mask) for word in (words, words >> np.uint64(21)))
        return heads.astype(np.int64) - tails.astype(np.int64)


def ternaries(stream, count):
    """So many polynomials of -1, 0 and 1, five to a byte; what is left of a word is not used for the next."""
    bytes_, found = [], []
    for _ in range(count):
        own = []
        while len(own) < DEGREE:
            if not bytes_:
                bytes_ = stream.words(128).view(np.uint8).reshape(-1, 8).tolist()
            for byte in bytes_.pop(0):
                own += [byte // 3**k % 3 - 1 for k in range(5)] if byte < 243 else []
        found.append(np.array(own[:DEGREE], dtype=np.int64))
    return found


def uniform(seed):
    """a of a public key, at the roots: (primes, N)."""
    found = []
    for at, prime in enumerate(PRIMES):
        words = Stream(seed, at).words(DEGREE + 128) & np.uint64((1 << prime.bit_length()) - 1)
        found.append(words[words < prime][:DEGREE])
    return np.stack(found)


def encrypted(b, a, message, noise, stream):
    """Of a polynomial given as residues (primes, N): (2, primes, N)."""
    source = Stream(noise, stream)
    first, second = source.errors(), source.errors()
    (r,) = ternaries(source, 1)
    parts = np.empty((2, len(PRIMES), DEGREE), dtype=np.uint64)
    for at, prime in enumerate(PRIMES):
        mask, p = forward(r, at), np.uint64(prime)
        whole = (first + message[at].astype(np.int64)) % prime
        parts[0, at] = (times(mask, b[at], prime) + forward(whole, at)) % p
        parts[1, at] = (times(mask, a[at], prime) + forward(second, at)) % p
    return parts


def constant(values, at):
    """The constant coefficient is the mean of the values at the roots."""
    prime = PRIMES[at]
    return sum(values.tolist()) * pow(DEGREE, -1, prime) % prime


def blinded(b, a, node, row, factor, offset, noise, stream):
    """factor * (limit - shift * row) + offset, as residues, and an encryption of zero of degree two."""
    source = Stream(noise, stream)
    errors = (source.errors(), source.errors())
    r, r_ = ternaries(source, 2)
    constants, parts = [], np.empty((2, len(PRIMES), DEGREE), dtype=np.uint64)
    for at, prime in enumerate(PRIMES):
        p, minus = np.uint64(prime), (prime - factor[at]) % prime
        shift0, shift1, limit0, limit1 = node[:, at]
        row0, row1 = (times(part, minus, prime) for part in row[:, at])
        u, u_ = forward(r, at), forward(r_, at)

        def added(*products, prime=prime, p=p):
            total = np.uint64(0)
            for left, right in products:
                total = (total + times(left, right, prime)) % p
            return total

        first = added((shift0, row0), (limit0, factor[at]), (u_, b[at]))
        constants.append((constant(first, at) + offset[at]) % prime)
        middle = added((shift0, row1), (shift1, row0), (limit1, factor[at]), (u_, a[at]), (u, b[at]))
        parts[0, at] = (middle + forward(errors[0], at)) % p
        parts[1, at] = (added((shift1, row1), (u, a[at])) + forward(errors[1], at)) % p
    return np.concatenate((np.array(constants, dtype="<u8").view(np.uint8), pack(parts)))


def decrypted(secret, answer):
    """The residues of the constant coefficient."""
    firsts, parts = answer[:40].view("<u8").tolist(), unpack(answer[40:])
    found = []
    for at, prime in enumerate(PRIMES):
        s = forward(secret, at)
        rest = (times(parts[0, at], s, prime) + times(times(parts[1, at], s, prime), s, prime)) % np.uint64(prime)
        found.append((firsts[at] + constant(rest, at)) % prime)
    return found
