"""The whole exchange of dense ciphertexts by one engine with fixed seeds, for the levels of `lattices`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from expansion_twin import NumpyExpansionPublic, NumpyExpansionSecret
from lattices import NOTHING, LevelCase, make_level
from veilboost import _native
from veilboost.crypto.lattice.expansion import (
    DEGREE,
    POLYNOMIAL_BYTES,
    DenseSizes,
    answer_bytes,
    ciphertext_bytes,
    log_flood,
    sizes_for_sum,
)
from veilboost.types import Int32Array, Int64Array, UInt8Array

SecretEngine = _native.ExpansionSecret | NumpyExpansionSecret
PublicEngine = _native.ExpansionPublic | NumpyExpansionPublic


def secret_engine(key: bytes, name: str) -> SecretEngine:
    return NumpyExpansionSecret(key) if name == "numpy" else _native.ExpansionSecret(key, name)


def public_engine(seed: bytes, packed: UInt8Array, depth: int, name: str) -> PublicEngine:
    """Raises ValueError where the keys have another size or a residue out of range."""
    if name == "numpy":
        return NumpyExpansionPublic(seed, packed, depth)
    return _native.ExpansionPublic(seed, packed, depth, name)


def key_bytes(depth: int) -> int:
    return (2 + 6 * depth) * 2 * POLYNOMIAL_BYTES


def depths(case: LevelCase) -> Int32Array:
    return np.array([(DEGREE // run).bit_length() - 1 for run in case.blocks.run.tolist()], dtype=np.int32)


def sizes_of(case: LevelCase, bits: int = 12) -> DenseSizes:
    rows = int((case.blocks.end - case.blocks.begin).max(initial=1))
    sizes = sizes_for_sum(rows << bits)
    assert sizes is not None
    return sizes


@dataclass(frozen=True)
class Exchange:
    """Every byte of an exchange, and what came out."""

    public: UInt8Array
    ciphertext: UInt8Array
    sums: UInt8Array
    masks: UInt8Array
    decrypted: Int64Array

    def digests(self) -> dict[str, str]:
        return {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in vars(self).items()}


def keys(case: LevelCase, engine: str, depth: int | None = None) -> tuple[SecretEngine, UInt8Array]:
    secret = secret_engine(case.seed("secret key"), engine)
    depth = int(depths(case).max(initial=1)) if depth is None else depth
    public = np.empty(key_bytes(depth), dtype=np.uint8)
    secret.public_keys(case.seed("public key"), depth, public, 1)
    return secret, public


def encrypt(case: LevelCase, secret: SecretEngine, sizes: DenseSizes, threads: int = 1) -> UInt8Array:
    out = np.empty(ciphertext_bytes(case.blocks), dtype=np.uint8)
    blocks, seeds = case.blocks, (case.seed("ciphertext"), case.seed("errors"))
    secret.encrypt(
        case.values,
        case.group,
        blocks.rows,
        blocks.begin,
        blocks.end,
        depths(case),
        sizes.log_delta,
        *seeds,
        out,
        threads,
    )
    return out


def encrypted_sums(
    case: LevelCase,
    public: PublicEngine,
    ciphertext: UInt8Array,
    sizes: DenseSizes,
    threads: int = 1,
    added: Int64Array = NOTHING,
    flood: int | None = None,
) -> tuple[UInt8Array, UInt8Array, bool]:
    blocks = case.blocks
    sums, masks = (np.zeros(size, dtype=np.uint8) for size in answer_bytes(blocks.run, case.slots, sizes))
    fits = public.sum(
        ciphertext,
        case.seed("ciphertext"),
        list(case.bins),
        case.group,
        blocks.rows,
        blocks.begin,
        blocks.end,
        depths(case),
        case.starts,
        case.slots,
        log_flood(blocks, case.slots, len(case.widths)) if flood is None else flood,
        sizes.log_delta,
        sizes.bits,
        added,
        case.seed("noise"),
        sums,
        masks,
        threads,
    )
    return sums, masks, fits


def exchange(
    case: LevelCase, engine: str, threads: int = 1, sizes: DenseSizes | None = None, added: Int64Array = NOTHING
) -> Exchange:
    sizes = sizes or sizes_of(case)
    secret, part = keys(case, engine)
    ciphertext = encrypt(case, secret, sizes, threads)
    public = public_engine(case.seed("public key"), part, int(depths(case).max(initial=1)), engine)
    sums, masks, fits = encrypted_sums(case, public, ciphertext, sizes, threads, added)
    assert fits
    out = np.zeros((len(case.blocks.run), case.slots, 2), dtype=np.int64)
    secret.decrypt(sums, masks, depths(case), case.slots, sizes.bits, sizes.log_delta, out, threads)
    return Exchange(part, ciphertext, sums, masks, out)


def golden_levels() -> dict[str, LevelCase]:
    """Those whose bytes are kept in `golden/expansion.json`."""
    return {
        "usual": make_level(1, (600, 0, 67), (5, 1, 9), run=(512, 256, 256), groups=2, bits=12, shuffled=True),
        "two tiles": make_level(2, (70,), (20, 20), run=256, bits=12),
    }
