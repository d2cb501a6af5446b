"""Levels to be summed under encryption, made from a seed, and the whole exchange by one engine with fixed seeds."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from lattice_twin import NumpyPublic, NumpySecret
from veilboost import _native
from veilboost.crypto.lattice.keys import ENGINE_VARIABLE, POLYNOMIAL_BYTES, PRIMES, Blocks, Sizes, sizes_for
from veilboost.types import AnyArray, Int32Array, Int64Array, UInt8Array, UInt64Array

SecretEngine = _native.LatticeSecret | NumpySecret
PublicEngine = _native.LatticePublic | NumpyPublic
NOTHING = np.empty((0, 2, 0), dtype=np.int64)  # to add to sums


def engine_names() -> tuple[str, ...]:
    """The kernel's versions that run here, fastest first, and the twin."""
    return (*_native.lattice_engines(), "numpy")


def secret_engine(families: int, key: bytes, name: str) -> SecretEngine:
    return NumpySecret(families, key) if name == "numpy" else _native.LatticeSecret(families, key, name)


def public_engine(families: int, seed: bytes, packed: UInt8Array, name: str) -> PublicEngine:
    """Raises ValueError where the key has another size or a residue out of range."""
    if name == "numpy":
        return NumpyPublic(families, seed, packed)
    return _native.LatticePublic(families, seed, packed, name)


def use_engine(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Keys made from now on compute by this engine."""
    if name == "numpy":  # the twin in the kernel's place
        monkeypatch.setattr(_native, "LatticeSecret", lambda *key: NumpySecret(*key[:-1]))
        monkeypatch.setattr(_native, "LatticePublic", lambda *key: NumpyPublic(*key[:-1]))
    else:
        monkeypatch.setenv(ENGINE_VARIABLE, name)


def seed_named(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


@dataclass(frozen=True)
class LevelCase:
    """Values (groups, rows, families), the bins of every group, and blocks of rows of both."""

    values: Int32Array
    bins: Sequence[AnyArray]
    starts: Int32Array
    widths: Int32Array
    blocks: Blocks
    group: Int32Array
    names: dict[str, str] = field(default_factory=dict)  # other seeds than the usual ones

    @property
    def families(self) -> int:
        return self.values.shape[2]

    @property
    def slots(self) -> int:
        return int(self.widths.sum())

    @property
    def sizes(self) -> Sizes:
        largest = int((self.blocks.end - self.blocks.begin).max(initial=0))
        return sizes_for(largest, self.slots, len(self.widths), self.families)

    @property
    def runs(self) -> int:
        return self.blocks.ciphertext_bytes() // (2 * len(PRIMES) * POLYNOMIAL_BYTES)

    def seed(self, of: str) -> bytes:
        return bytes.fromhex(self.names[of]) if of in self.names else seed_named(of)

    def true_sums(self) -> Int64Array:
        sums = np.zeros((len(self.blocks.run), self.slots, self.families), dtype=np.int64)
        for block, (begin, end) in enumerate(zip(self.blocks.begin, self.blocks.end, strict=True)):
            rows, group = self.blocks.rows[begin:end], self.group[block]
            slot = self.bins[group][rows].astype(np.int64) + self.starts
            for feature in range(len(self.starts)):
                np.add.at(sums[block], slot[:, feature], self.values[group, rows].astype(np.int64))
        return sums


def make_level(
    seed: int,
    rows: Sequence[int],
    widths: Sequence[int],
    run: Sequence[int] | int = 64,
    groups: int = 1,
    families: int = 2,
    bits: int = 20,
    shuffled: bool = False,
) -> LevelCase:
    """Blocks of so many rows each, of a table that has some more; block k belongs to group k modulo `groups`."""
    rng = np.random.default_rng(seed)
    total = sum(rows) + 3
    end = np.cumsum(rows, dtype=np.int64)
    order = rng.permutation(len(widths)) if shuffled else np.arange(len(widths))
    wide = np.array(widths, dtype=np.int32)
    starts = np.zeros(len(widths), dtype=np.int32)
    starts[order] = np.concatenate(([0], np.cumsum(wide[order])[:-1])) if len(widths) else []
    kind = np.uint8 if max(widths, default=1) <= 256 else np.uint16
    run_of = np.full(len(rows), run, dtype=np.int32) if isinstance(run, int) else np.array(run, dtype=np.int32)
    return LevelCase(
        rng.integers(-(1 << bits), 1 << bits, (groups, total, families)).astype(np.int32),
        [rng.integers(0, wide, (total, len(widths))).astype(kind) for _ in range(groups)],
        starts,
        wide,
        Blocks(rng.permutation(total)[: sum(rows)].astype(np.int32), end - rows, end, run_of),
        (np.arange(len(rows)) % groups).astype(np.int32),
    )


@dataclass(frozen=True)
class Exchange:
    """Every byte of an exchange, and what came out."""

    public: UInt8Array
    ciphertext: UInt8Array
    sums: UInt64Array
    masks: UInt8Array
    decrypted: Int64Array

    def digests(self) -> dict[str, str]:
        return {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in vars(self).items()}


def keys(case: LevelCase, engine: str) -> tuple[SecretEngine, UInt8Array]:
    secret = secret_engine(case.families, case.seed("secret key"), engine)
    public = np.empty(case.families * len(PRIMES) * POLYNOMIAL_BYTES, dtype=np.uint8)
    secret.public_key(case.seed("public key"), public)
    return secret, public


def encrypt(case: LevelCase, secret: SecretEngine, sizes: Sizes, threads: int = 1) -> UInt8Array:
    out = np.empty(case.runs * case.families * len(PRIMES) * POLYNOMIAL_BYTES, dtype=np.uint8)
    blocks = case.blocks
    secret.encrypt(
        case.values,
        case.group,
        blocks.rows,
        blocks.begin,
        blocks.end,
        blocks.run,
        sizes.log_delta,
        case.seed("ciphertext"),
        case.seed("errors"),
        out,
        threads,
    )
    return out


def encrypted_sums(
    case: LevelCase,
    public: PublicEngine,
    ciphertext: UInt8Array,
    sizes: Sizes,
    threads: int = 1,
    added: Int64Array = NOTHING,
) -> tuple[UInt64Array, UInt8Array, bool]:
    blocks = case.blocks
    sums = np.zeros((len(blocks.run), case.families, case.slots), dtype=np.uint64)
    masks = np.zeros(blocks.mask_bytes(case.slots), dtype=np.uint8)
    fits = public.sum(
        ciphertext,
        case.seed("ciphertext"),
        list(case.bins),
        case.group,
        blocks.rows,
        blocks.begin,
        blocks.end,
        blocks.run,
        case.starts,
        case.widths,
        sizes.log_flood,
        sizes.log_delta,
        added,
        case.seed("noise"),
        sums,
        masks,
        threads,
    )
    return sums, masks, fits


def exchange(
    case: LevelCase, engine: str, threads: int = 1, sizes: Sizes | None = None, added: Int64Array = NOTHING
) -> Exchange:
    sizes = sizes or case.sizes
    secret, part = keys(case, engine)
    ciphertext = encrypt(case, secret, sizes, threads)
    public = public_engine(case.families, case.seed("public key"), part, engine)
    sums, masks, fits = encrypted_sums(case, public, ciphertext, sizes, threads, added)
    assert fits
    out = np.zeros((len(case.blocks.run), case.slots, case.families), dtype=np.int64)
    assert secret.decrypt(sums, masks, case.blocks.run, sizes.log_delta, out, threads)
    return Exchange(part, ciphertext, sums, masks, out)


def golden_levels() -> dict[str, LevelCase]:
    """Those whose bytes are kept in `golden/lattice.json`."""
    usual = make_level(1, (150, 0, 67), (5, 1, 9), run=(64, 128, 64), groups=2, shuffled=True)
    # Modulo the second prime this seed's expansion holds a word that is no residue and must be left out: one seed in a
    # million does. It is used for the public key and for the ciphertexts alike.
    rare = (1776814).to_bytes(32, "little").hex()
    skipping = make_level(2, (10,), (4,))
    skipping.names.update({"public key": rare, "ciphertext": rare})
    return {"usual": usual, "a word left out": skipping, "one family": make_level(3, (70,), (3, 2), families=1)}
