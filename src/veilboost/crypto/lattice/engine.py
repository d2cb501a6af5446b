"""Who computes: the C++ kernel in the fastest version that this processor runs, or the NumPy twin.

All write the same bytes for the same input. `VEILBOOST_LATTICE_ENGINE` names one; by default the fastest is taken.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol

from veilboost import _native
from veilboost.errors import ImpossibleParameter
from veilboost.types import AnyArray, Int32Array, Int64Array, UInt8Array, UInt64Array

VARIABLE = "VEILBOOST_LATTICE_ENGINE"


class SecretEngine(Protocol):
    """What needs the secret key. Outputs are allocated by the caller."""

    def public_key(self, seed: bytes, out: UInt8Array) -> None: ...
    def encrypt(
        self,
        values: Int32Array,
        group: Int32Array,
        rows: Int32Array,
        begin: Int64Array,
        end: Int64Array,
        run: Int32Array,
        log_delta: int,
        seed: bytes,
        noise: bytes,
        out: UInt8Array,
        threads: int,
    ) -> None: ...
    def decrypt(
        self, sums: UInt64Array, masks: UInt8Array, run: Int32Array, log_delta: int, out: Int64Array, threads: int
    ) -> bool:
        """False where a residue is out of range."""
        ...


class PublicEngine(Protocol):
    """What a holder of the public key can do."""

    def sum(
        self,
        ciphertext: UInt8Array,
        seed: bytes,
        bins: Sequence[AnyArray],
        matrix: Int32Array,
        rows: Int32Array,
        begin: Int64Array,
        end: Int64Array,
        run: Int32Array,
        feature_start: Int32Array,
        feature_width: Int32Array,
        log_flood: int,
        log_delta: int,
        added: Int64Array,
        noise: bytes,
        sums: UInt64Array,
        masks: UInt8Array,
        threads: int,
    ) -> bool:
        """False where a residue is out of range."""
        ...


def engine_names() -> tuple[str, ...]:
    """Those that run here, fastest first."""
    return (*_native.lattice_engines(), "numpy")


def chosen_engine() -> str:
    name = os.environ.get(VARIABLE, "auto")
    if name != "auto" and name not in engine_names():
        raise ImpossibleParameter(f"{VARIABLE}={name!r} does not run here", f"use one of {', '.join(engine_names())}")
    return name


def secret_engine(families: int, key: bytes, name: str) -> SecretEngine:
    if name == "numpy":
        from veilboost.crypto.lattice.numpy_engine import NumpySecret

        return NumpySecret(families, key)
    return _native.LatticeSecret(families, key, name)


def public_engine(families: int, seed: bytes, packed: UInt8Array, name: str) -> PublicEngine:
    """Raises ValueError where the key has another size or a residue out of range."""
    if name == "numpy":
        from veilboost.crypto.lattice.numpy_engine import NumpyPublic

        return NumpyPublic(families, seed, packed)
    return _native.LatticePublic(families, seed, packed, name)
