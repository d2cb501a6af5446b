"""Points of Curve25519: hashing to the curve and multiplication, many points at a time.

A text is mapped to a point by two Elligator 2 maps and their sum (the construction of RFC 9380's `hash_to_curve`),
which takes the same steps for every text and always gives a point of the prime-order subgroup. Using the hash itself as
a coordinate would be faster and insecure: half of all coordinates lie on the twist, multiplication keeps them there,
and so blinding would not hide one bit of every hash.

Multiplication is X25519 (RFC 7748). Its scalars are multiples of 8, so a point of the twist or with a component of low
order, which only a dishonest peer sends, reveals nothing about the scalar.

On processors with AVX2 a kernel of our own computes four points at a time (ADR 0042); elsewhere libsodium computes the
same bytes one by one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from nacl import bindings, exceptions

from veilboost import _native
from veilboost.errors import MalformedMessage
from veilboost.types import UInt8Array

POINT_BYTES = 32
SCALAR_BYTES = 32
_PERSON = b"veilboost curve"
_CHUNK = 512  # points per task of a thread


def hash_to_points(texts: Sequence[bytes], threads: int = 1) -> UInt8Array:
    """One point for each text: (texts, 32), coordinates of Curve25519."""
    uniform = [hashlib.blake2b(text, digest_size=2 * POINT_BYTES, person=_PERSON).digest() for text in texts]
    if not _native.curve_supported():
        return _each(_uniform_to_point, uniform, threads)
    points = np.empty((len(texts), POINT_BYTES), dtype=np.uint8)
    given = np.frombuffer(b"".join(uniform), np.uint8).reshape(len(texts), 2 * POINT_BYTES)
    _native.curve_map(given, points, threads)
    return points


def multiply(points: UInt8Array, scalar: bytes, threads: int = 1) -> UInt8Array:
    """Every point times the scalar, in the same order; raises `MalformedMessage` for points of low order."""
    if not _native.curve_supported():
        return _multiply_by_libsodium(points, scalar, threads)
    product = np.empty_like(points, order="C")
    if not _native.curve_multiply(np.ascontiguousarray(points), scalar, product, threads):
        raise MalformedMessage("a point has low order")
    return product


def check_points(points: UInt8Array) -> None:
    """Check that these are coordinates below the field's prime, in canonical form."""
    if points.ndim != 2 or points.shape[1] != POINT_BYTES:
        raise MalformedMessage(f"points are not of {POINT_BYTES} bytes")
    # The prime is 2^255 - 19: little-endian ED FF .. FF 7F.
    beyond = (points[:, 31] == 0x7F) & (points[:, 1:31] == 0xFF).all(axis=1) & (points[:, 0] >= 0xED)
    if (points[:, 31] > 0x7F).any() or beyond.any():
        raise MalformedMessage("a point is not in canonical form")


def _multiply_by_libsodium(points: UInt8Array, scalar: bytes, threads: int) -> UInt8Array:
    def times(point: bytes) -> bytes:
        return bindings.crypto_scalarmult(scalar, point)

    content = np.ascontiguousarray(points).tobytes()
    each = [content[at : at + POINT_BYTES] for at in range(0, len(content), POINT_BYTES)]
    try:
        return _each(times, each, threads)
    except exceptions.RuntimeError as error:
        raise MalformedMessage("a point has low order") from error


def _uniform_to_point(uniform: bytes) -> bytes:
    first = bindings.crypto_core_ed25519_from_uniform(uniform[:POINT_BYTES])
    second = bindings.crypto_core_ed25519_from_uniform(uniform[POINT_BYTES:])
    # The same point in Montgomery form, where multiplication costs half; the sign of x is always dropped.
    return bindings.crypto_sign_ed25519_pk_to_curve25519(bindings.crypto_core_ed25519_add(first, second))


def _each(function: Callable[[bytes], bytes], inputs: Sequence[bytes], threads: int) -> UInt8Array:
    """The results as rows. libsodium runs without the interpreter's lock, so threads help."""

    def work(at: int) -> bytes:
        return b"".join([function(item) for item in inputs[at : at + _CHUNK]])

    starts = range(0, len(inputs), _CHUNK)
    if threads > 1 and len(starts) > 1:
        with ThreadPoolExecutor(threads) as pool:
            parts = list(pool.map(work, starts))
    else:
        parts = [work(at) for at in starts]
    return np.frombuffer(b"".join(parts), np.uint8).reshape(len(inputs), POINT_BYTES)
