"""The interface of encryption schemes for secure inference. All ciphertexts are sent as rows of bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from veilboost.crypto.csprng import Csprng
from veilboost.errors import InvalidParameter
from veilboost.secure_inference import lattice, paillier
from veilboost.secure_inference.attributes import Directory
from veilboost.secure_inference.messages import ServiceDirectory
from veilboost.types import BoolArray, Int64Array, UInt8Array

SCHEMES = ("paillier", "lattice")


class PublicService(Protocol):
    """Operations with the public service key, for node owners, users and the active party."""

    def encrypt_nodes(self, nodes: Sequence[tuple[int, int]]) -> UInt8Array:
        """A row for each (serial number, threshold): the paper's T0."""
        ...

    def encrypt_rows(self, values: Int64Array) -> UInt8Array:
        """A row for each of (users, M) values: the paper's T1."""
        ...

    def check_nodes(self, rows: UInt8Array) -> None:
        """Refuse ciphertexts of another key, with another M, or outside of the group."""

    def check_rows(self, rows: UInt8Array) -> None:
        """As `check_nodes`, for users' rows."""

    def blind(
        self, nodes: UInt8Array, rows: UInt8Array, at_nodes: Int64Array, of_rows: Int64Array
    ) -> tuple[UInt8Array, BoolArray]:
        """For pairs of a node and a user's row, by index: the blinded values (T3), and which signs were flipped."""
        ...


class SecretService(Protocol):
    """Operations with the secret service key, for the CSP."""

    def directions(self, blinded: UInt8Array) -> BoolArray:
        """Whether each value is positive, which means left if the sign was not flipped."""
        ...


def check_scheme(scheme: str) -> str:
    if scheme not in SCHEMES:
        raise InvalidParameter(f"there is no encryption {scheme!r} for inference", f"use {' or '.join(SCHEMES)}")
    return scheme


def generate(scheme: str, randomness: Csprng, bits: int = 2048, allow_insecure: bool = False) -> tuple[bytes, bytes]:
    """Generate a pair of service keys, (secret, public). `bits` is for Paillier."""
    if check_scheme(scheme) == "paillier":
        return paillier.generate_pair(randomness, bits, allow_insecure)
    return lattice.generate_pair(randomness)


def public_service(scheme: str, key: bytes, size: int, threads: int = 1) -> PublicService:
    if check_scheme(scheme) == "paillier":
        return paillier.PaillierPublic(key, size)
    return lattice.LatticePublic(key, size, threads)


def secret_service(scheme: str, key: bytes, size: int, threads: int = 1) -> SecretService:
    if check_scheme(scheme) == "paillier":
        return paillier.PaillierSecret(key, size, threads)
    return lattice.LatticeSecret(key, threads)


@dataclass(frozen=True)
class KnownService:
    """The authority's public data: the directory, and the public key of a scheme."""

    directory: Directory
    scheme: str
    key: bytes

    @staticmethod
    def of(message: ServiceDirectory) -> KnownService:
        return KnownService(Directory.from_json(message.attributes), message.scheme, message.key.tobytes())

    def public(self, threads: int = 1) -> PublicService:
        return public_service(self.scheme, self.key, self.directory.size, threads)

    @property
    def fingerprint(self) -> UInt8Array:
        """Identifies the key of a ciphertext, which the ciphertext itself does not show."""
        return np.frombuffer(hashlib.sha256(self.key).digest(), dtype=np.uint8)
